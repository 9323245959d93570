import { ThreadWriter } from '@epitaph/storage/sqlite/writer.ts';
const proto = ThreadWriter.prototype as any;
const run = proto.run; const stats = new Map<any, any>();
proto.run = async function (jobs: any[], tr: any) {
  const t = performance.now(); const out = await run.call(this, jobs, tr);
  const s = stats.get(this) ?? { groups: 0, jobs: 0, ms: 0, kinds: {} as any }; stats.set(this, s);
  s.groups++; s.jobs += jobs.length; s.ms += performance.now() - t; for (const j of jobs) s.kinds[j.kind] = (s.kinds[j.kind] ?? 0) + 1;
  return out;
};
process.on('exit', () => { for (const s of stats.values()) console.log(s.groups, 'groups', (s.jobs / s.groups).toFixed(1), 'jobs/group', (s.ms / s.groups).toFixed(2), 'ms/group', Math.round(s.ms), 'ms busy', s.kinds); });
await import('./p1.tmp.ts');
