import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { rmSync } from 'node:fs';
rmSync('/tmp/scratch/d2', { recursive: true, force: true });
const store = await openEmbeddedStore({ folder: '/tmp/scratch/d2', clock: 'manual', startMs: 1_700_000_000_500, onFault: (e) => console.error('fault', e) });
const caller = { actor: 'key:primary', correlationId: crypto.randomUUID() };
await store.createDatabase(caller, 'db');
const { resource: c } = await store.createContainer(caller, 'db', 'c', { partitionKey: { paths: ['/pk'], kind: 'Hash', version: 2 }, indexingPolicy: { indexingMode: 'consistent' } }, 100);
const N = Number(process.argv[2] ?? 30000);
const what = process.argv[3] ?? 'all';
const pad = 'x'.repeat(900);
async function round(name: string) {
  let i = 0; const t = performance.now();
  await Promise.all(Array.from({ length: 64 }, async () => {
    while (i < N) { const n = i++; const d = { id: `i${n}`, pk: `p${n % 100}`, pad };
      await store.writeItem(caller, c, 'upsert', { id: d.id, partitionKey: `["${d.pk}"]`, document: d, json: JSON.stringify(d) }); }
  }));
  console.log(name, Math.round((N / (performance.now() - t)) * 1000), '/s');
}
await round('creates');
if (what !== 'creates') await round('updates');
if (what === 'all') {
await store.advanceClock(caller, 200_000);
{ const t = performance.now(); const r = await store.runPurge(caller); console.log(r, Math.round(N / (performance.now() - t) * 1000), 'items/s'); }
}
await store.close();
