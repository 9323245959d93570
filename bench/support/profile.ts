import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { MeasuredWindow } from './timing.ts';

/** The part of a V8 CPU profile that is read here. Times are microseconds of the monotonic clock. */
interface CpuProfile {
  readonly nodes: readonly ProfileNode[];
  readonly startTime: number;
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

interface ProfileNode {
  readonly id: number;
  readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
  readonly children?: readonly number[];
}

export interface ThreadProfile {
  readonly thread: string;
  readonly work: string;
  /** The share of the measured time in which the thread was busy, from 0 to 1. */
  readonly busy: number;
  /** The measured time per operation in microseconds. It is the same for all threads. */
  readonly operationUs: number;
  /** Functions by the time spent in themselves, as parts of the measured time. */
  readonly self: readonly { readonly name: string; readonly share: number }[];
  /** The same for functions of ours, with all that they call. */
  readonly total: readonly { readonly name: string; readonly share: number }[];
}

/**
 * Reads the profiles that a process has written to a folder, one for each thread. Returns, for each kind of measured work,
 * on which functions each thread spent its time.
 */
export function readProfiles(folder: string, windows: readonly MeasuredWindow[]): ThreadProfile[] {
  const threads = readdirSync(folder)
    .filter((name) => name.endsWith('.cpuprofile'))
    .toSorted()
    .map((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')) as CpuProfile);
  const works = [...new Set(windows.map(({ work }) => work))];
  return works.flatMap((work) =>
    threads.map((profile) =>
      threadProfile(
        profile,
        work,
        windows.filter((window) => window.work === work),
      ),
    ),
  );
}

function threadProfile(profile: CpuProfile, work: string, windows: readonly MeasuredWindow[]): ThreadProfile {
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const parents = new Map<number, number>();
  for (const { id, children } of profile.nodes) for (const child of children ?? []) parents.set(child, id);
  const self = new Map<string, number>();
  const total = new Map<string, number>();
  let idle = 0;
  let all = 0;
  let at = profile.startTime;
  let window = 0;
  profile.samples.forEach((sample, index) => {
    at += profile.timeDeltas[index]!;
    while (window < windows.length && windows[window]!.endUs < at) window += 1;
    if (window === windows.length || windows[window]!.startUs > at) return;
    // A sample counts for the time until the next one, as far as that is in the measured window.
    const lasting = Math.max(0, Math.min(profile.timeDeltas[index + 1] ?? 0, windows[window]!.endUs - at));
    all += lasting;
    const node = nodes.get(sample)!;
    const name = nameOf(node, nodes, parents);
    if (name === '(idle)') idle += lasting;
    self.set(name, (self.get(name) ?? 0) + lasting);
    const seen = new Set<string>();
    for (let id: number | undefined = sample; id !== undefined; id = parents.get(id)) {
      const frame = nodes.get(id)!;
      if (!frame.callFrame.url.includes('/packages/')) continue;
      const caller = place(frame);
      if (seen.has(caller)) continue;
      seen.add(caller);
      total.set(caller, (total.get(caller) ?? 0) + lasting);
    }
  });
  const ranked = (times: ReadonlyMap<string, number>) =>
    [...times]
      .filter(([name]) => name !== '(idle)')
      .toSorted((left, right) => right[1] - left[1])
      .map(([name, time]) => ({ name, share: time / all }));
  const operations = windows.reduce((sum, each) => sum + each.operations, 0);
  const measuredUs = windows.reduce((sum, { startUs, endUs }) => sum + endUs - startUs, 0);
  return {
    thread: threadName(profile.nodes),
    work,
    busy: all === 0 ? 0 : 1 - idle / all,
    operationUs: measuredUs / operations,
    self: ranked(self),
    total: ranked(total),
  };
}

/** Native functions get their caller's name too: `run` alone says little. */
function nameOf(
  node: ProfileNode,
  nodes: ReadonlyMap<number, ProfileNode>,
  parents: ReadonlyMap<number, number>,
): string {
  const { functionName, url } = node.callFrame;
  if (url.includes('/packages/')) return place(node);
  const own =
    url === ''
      ? functionName || '(native)'
      : `${functionName || '(anonymous)'} ${url.replace(/^.*\/node_modules\//, '')}`;
  if (own.startsWith('(')) return own;
  for (let id = parents.get(node.id); id !== undefined; id = parents.get(id)) {
    const caller = nodes.get(id)!;
    if (caller.callFrame.url.includes('/packages/')) return `${own} ← ${place(caller)}`;
  }
  return own;
}

function place({ callFrame: { functionName, url, lineNumber } }: ProfileNode): string {
  return `${functionName || '(anonymous)'} ${url.replace(/^.*\/packages\//, '').replace('/src/', '/')}:${lineNumber + 1}`;
}

function threadName(nodes: readonly ProfileNode[]): string {
  const count = (file: string) => nodes.filter(({ callFrame }) => callFrame.url.endsWith(file)).length;
  if (count('contender-host.ts') > 0) return 'main thread';
  const ofLog = count('/log-writer-core.ts');
  const ofReadModel = count('/read-model-writer-core.ts');
  if (ofLog + ofReadModel === 0) return 'another thread';
  return ofLog > ofReadModel ? 'log and vault writer' : 'read model writer';
}

/** The profile of a process as text. Time that a thread spends in SQLite counts to the function that called it. */
export function printProfiles(profiles: readonly ThreadProfile[], top: number): string {
  return profiles
    .filter(({ busy }) => busy >= 0.005)
    .map(({ thread, work, busy, operationUs, self, total }) => {
      const line = ({ name, share }: { readonly name: string; readonly share: number }) =>
        `    ${(share * 100).toFixed(1).padStart(5)} % ${(share * operationUs).toFixed(2).padStart(8)} µs  ${name}`;
      return [
        `\n${work}, ${thread}: busy ${(busy * 100).toFixed(0)} % of the time, ${(busy * operationUs).toFixed(1)} of ${operationUs.toFixed(1)} µs an operation`,
        '  in itself (SQLite counts to its caller)',
        ...self.slice(0, top).map(line),
        '  with all that it calls',
        ...total.slice(0, top).map(line),
      ].join('\n');
    })
    .join('\n');
}
