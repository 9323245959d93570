import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { Random } from '../simulation/random.ts';

export interface Intent {
  readonly action:
    | 'upsert'
    | 'create'
    | 'patch'
    | 'delete'
    | 'erase'
    | 'delete-partition'
    | 'batch'
    | 'hold'
    | 'release'
    | 'policy';
  readonly v: number;
  readonly ttl?: number;
}

/** The document expected by the acknowledged writes, with its `_ts` and `ttl` in seconds. */
interface Standing {
  readonly v: number;
  readonly ts: number;
  readonly ttl: number | undefined;
}

interface KnownItem {
  /** Undefined: never written, or deleted. */
  standing: Standing | undefined;
  /** An operation that was begun and not answered. */
  open: Intent | undefined;
}

/** Items that are always written in one batch, with the same value. */
export const TOGETHER = ['x', 'y', 'z'];

/** What the store must contain, as far as that is known. */
class Known {
  readonly items = new Map<string, KnownItem>();
  /** Partition keys whose delete is in progress. */
  readonly leaving = new Set<string>();
  /** By partition, the value of the items that are written in a batch, and that of a batch that was begun and not answered. */
  readonly together = new Map<string, { standing: number | undefined; open: number | undefined }>();
  /** Items under holds, from the request of the hold on. */
  readonly holds = new Map<string, { readonly v: number; state: 'placing' | 'held' | 'releasing' | 'released' }>();
  /** The newest acknowledged version of the container's policy. */
  policyVersion = 0;

  begun(subject: string, intent: Intent): void {
    if (intent.action === 'delete-partition') this.leaving.add(subject);
    else if (intent.action === 'batch') {
      this.together.set(subject, { standing: this.together.get(subject)?.standing, open: intent.v });
    } else if (intent.action === 'hold') this.holds.set(subject, { v: intent.v, state: 'placing' });
    else if (intent.action === 'release') this.holds.get(subject)!.state = 'releasing';
    else if (intent.action !== 'policy') this.item(subject).open = intent;
  }

  /** @param number the `_ts` of the write, or the version of the policy */
  acknowledged(subject: string, number: number): void {
    const hold = this.holds.get(subject);
    const together = this.together.get(subject);
    if (together !== undefined) Object.assign(together, { standing: together.open, open: undefined });
    else if (subject === 'policy') this.policyVersion = number;
    else if (hold !== undefined) hold.state = hold.state === 'placing' ? 'held' : 'released';
    else if (this.leaving.delete(subject)) {
      for (const [item, known] of this.items) if (item.startsWith(`${subject}-`)) known.standing = undefined;
    } else {
      const item = this.item(subject);
      item.standing = after(item.standing, item.open!, number);
      item.open = undefined;
    }
  }

  refused(subject: string): void {
    this.item(subject).open = undefined;
  }

  item(name: string): KnownItem {
    let known = this.items.get(name);
    if (known === undefined) this.items.set(name, (known = { standing: undefined, open: undefined }));
    return known;
  }
}

export interface KillReport {
  readonly rounds: number;
  readonly acknowledged: number;
  readonly purged: number;
  /** The number of acknowledged holds at the time of the kills, each on an item that had expired. */
  readonly held: number;
  /** The number of operations that were unanswered at the kills, and how many of them had happened. */
  readonly open: number;
  readonly happened: number;
}

const CALLER = { actor: 'key:primary', correlationId: crypto.randomUUID() };
/** A new folder is begun after this many rounds, because checking takes longer as the log grows. */
const ROUNDS_A_FOLDER = 8;

/**
 * Runs a store under full load in a process of its own, kills it with SIGKILL at a random moment, opens the folder that is left, and checks
 * it against what the process had acknowledged. Does so repeatedly on the same folder.
 *
 * @throws an Error with the seed, the round and the fault
 */
export async function killRounds(
  rounds: number,
  seed: number,
  say: (line: string) => void = () => {},
): Promise<KillReport> {
  const random = new Random(seed);
  const totals = { rounds, acknowledged: 0, purged: 0, held: 0, open: 0, happened: 0 };
  let folder = '';
  let known = new Known();
  let value = 1;
  try {
    for (let round = 0; round < rounds; round++) {
      if (round % ROUNDS_A_FOLDER === 0) {
        if (folder !== '') removeFolder(folder);
        folder = newFolder('killed');
        known = new Known();
      }
      const lifeMs = random.int(150, 1_600);
      const told = await runUntilKilled(folder, random.int(1, 1_000_000_000), value, lifeMs, known);
      value += told.begun + 1;
      totals.acknowledged += told.acknowledged;
      const store = await openEmbeddedStore({ folder, clock: 'system', automaticPurge: false });
      try {
        const found = await check(store, known);
        totals.open += found.open;
        totals.happened += found.happened;
        totals.purged += found.purged;
        totals.held += found.held;
        say(
          `round ${round + 1}: killed after ${lifeMs} ms, ${told.acknowledged} acknowledged, ${found.open} open of which ${found.happened} happened, ${found.held} held, ${found.purged} purged since, nothing lost`,
        );
      } catch (error) {
        throw new Error(`seed ${seed}, round ${round + 1}: ${(error as Error).message}`, { cause: error });
      } finally {
        await store.close();
      }
    }
    return totals;
  } finally {
    if (folder !== '') removeFolder(folder);
  }
}

/** Reads the process's output until it is dead, including the last of it. */
function runUntilKilled(
  folder: string,
  seed: number,
  firstValue: number,
  lifeMs: number,
  known: Known,
): Promise<{ readonly acknowledged: number; readonly begun: number }> {
  return new Promise((resolve, reject) => {
    const script = fileURLToPath(new URL('./kill-child.ts', import.meta.url));
    const child = spawn(process.execPath, [script, folder, String(seed), String(firstValue)], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const counts = { acknowledged: 0, begun: 0 };
    const faults: string[] = [];
    child.stderr.on('data', (bytes: Buffer) => faults.push(bytes.toString()));
    const lines = createInterface({ input: child.stdout });
    lines.on('line', (line) => {
      const [what, item = '', rest = ''] = split(line);
      if (what === 'ready') setTimeout(() => child.kill('SIGKILL'), lifeMs);
      else if (what === 'f') faults.push(line);
      else if (what === 'b') {
        counts.begun += 1;
        known.begun(item, JSON.parse(rest) as Intent);
      } else if (what === 'a') {
        counts.acknowledged += 1;
        known.acknowledged(item, Number(rest));
      } else known.refused(item);
    });
    let ended: NodeJS.Signals | null | undefined;
    let read = false;
    const done = () => {
      if (ended === undefined || !read) return;
      if (ended === 'SIGKILL' && faults.length === 0) resolve(counts);
      else reject(new Error(`the store's process ended by itself or had faults: ${faults.join('\n')}`));
    };
    child.on('exit', (_, signal) => {
      ended = signal;
      done();
    });
    lines.on('close', () => {
      read = true;
      done();
    });
  });
}

function split(line: string): string[] {
  const first = line.indexOf(' ');
  if (first < 0) return [line];
  const second = line.indexOf(' ', first + 1);
  return second < 0
    ? [line.slice(0, first), line.slice(first + 1)]
    : [line.slice(0, first), line.slice(first + 1, second), line.slice(second + 1)];
}

/** The expected document after an operation. */
function after(before: Standing | undefined, intent: Intent, ts: number): Standing | undefined {
  if (intent.action === 'delete' || intent.action === 'erase') return undefined;
  return { v: intent.v, ts, ttl: intent.action === 'patch' ? before?.ttl : intent.ttl };
}

function unlessMissing(error: unknown): undefined {
  if (error instanceof Refusal && error.code === 'item-not-found') return;
  throw error;
}

async function check(store: Store, known: Known) {
  const container = store.container('db', 'c');
  const counts = { open: 0, happened: 0, purged: 0, held: 0 };
  const broken = (await store.fsck()).problems.filter((problem) => !MAY_BE_LEFT.has(problem.code));
  if (broken.length > 0) throw new Error(`fsck after the kill: ${JSON.stringify(broken.slice(0, 3))}`);
  const { version } = container.timeline.at(-1)!;
  if (version < known.policyVersion) throw new Error(`policy ${known.policyVersion} is lost: the last is ${version}`);
  if (container.retention.erasures.length > 0) throw new Error('an erasure was not carried out at the start');
  for (const [partition, entry] of known.together) {
    const partitionKey = JSON.stringify([partition]);
    const values = new Set<number | undefined>();
    for (const id of TOGETHER) {
      const shown = await store.readItem(container, id, partitionKey).catch(unlessMissing);
      values.add(shown && (JSON.parse(shown.json) as { v: number }).v);
    }
    const [value] = values;
    if (values.size > 1 || (value !== entry.standing && value !== entry.open)) {
      throw new Error(
        `${partition} is there in part, or lost: ${[...values].join(' ')}, known was ${JSON.stringify(entry)}`,
      );
    }
    Object.assign(entry, { standing: value, open: undefined });
  }
  for (const [item, entry] of known.items) {
    const [, writer] = /^w(\d+)/.exec(item) ?? [];
    const partition = writer === undefined ? item.slice(0, item.indexOf('-')) : `p${Number(writer) % 8}`;
    const partitionKey = JSON.stringify([partition]);
    const askedMs = store.nowMs();
    const shown = await store.readItem(container, item, partitionKey).catch(unlessMissing);
    const nowMs = store.nowMs();
    const { standing, open } = entry;
    if (open !== undefined) counts.open += 1;
    const history = await store.history(container, item, partitionKey);
    if (shown !== undefined) {
      const document = JSON.parse(shown.json) as { v: number; ttl?: number };
      const byOpen = open !== undefined && open.v === document.v;
      if (!byOpen && document.v !== standing?.v) {
        throw new Error(
          `${item} reads ${document.v}; acknowledged was ${JSON.stringify(standing)}, open ${JSON.stringify(open)}`,
        );
      }
      if (byOpen) counts.happened += 1;
      // The item's deadline may pass while it is read.
      if (document.ttl !== undefined && (shown.ts + document.ttl) * 1000 <= askedMs)
        throw new Error(`${item} is shown after its deadline`);
      entry.standing = { v: document.v, ts: shown.ts, ttl: document.ttl };
    } else {
      // The item is gone, by its deadline or by the unanswered operation. The history must tell which.
      const expired = standing?.ttl !== undefined && (standing.ts + standing.ttl) * 1000 <= nowMs;
      const last = history.findLast((fact) => fact.type !== 'ItemPurged');
      const written = last?.type === 'ItemUpserted' ? last : undefined;
      const openExpired =
        open?.ttl !== undefined && written !== undefined && written.occurredAtMs + open.ttl * 1000 <= nowMs + 1_000;
      const openDeleted =
        (open?.action === 'delete' && last?.type === 'ItemDeleted') ||
        (open?.action === 'erase' && history.at(-1)?.type === 'ItemPurged') ||
        (known.leaving.has(partition) && ['ItemDeleted', 'PartitionKeyDeleted'].includes(last?.type ?? ''));
      const openEnded = open?.ttl !== undefined && last?.type === 'ItemExpired' && last.data['ttl'] === open.ttl;
      if (openDeleted) counts.happened += 1;
      if (standing !== undefined && !expired && !openDeleted && !openExpired && !openEnded) {
        throw new Error(
          `${item} is lost: acknowledged was ${JSON.stringify(standing)}, open ${JSON.stringify(open)}, last on record ${JSON.stringify(last)}`,
        );
      }
      entry.standing = undefined;
    }
    entry.open = undefined;
    for (const fact of history) {
      const twin = history.find(
        (other) => other !== fact && other.eventId !== undefined && other.eventId === fact.eventId,
      );
      if (twin !== undefined) throw new Error(`${item} has a fact twice: ${JSON.stringify(fact)}`);
    }
  }
  known.leaving.clear();
  const { purged } = await store.runPurge();
  counts.purged = purged;
  for (const [item, { v, state }] of known.holds) {
    if (state !== 'held') continue;
    // The first life has ended or is about to. In both cases its content is there.
    const read = { reason: 'checked', life: 0 };
    const { json } = await store.heldContent(CALLER, container, item, '["h"]', read).catch((error: unknown) => {
      if (error instanceof Refusal && error.code === 'item-not-found') return store.readItem(container, item, '["h"]');
      throw error;
    });
    if ((JSON.parse(json) as { v: number }).v !== v) throw new Error(`${item} is held, and reads ${json}`);
    counts.held += 1;
  }
  const report = await store.fsck();
  if (!report.ok) throw new Error(`fsck after the purge: ${JSON.stringify(report.problems.slice(0, 3))}`);
  return counts;
}

/** Problems that a kill between two steps of a purge may leave, and that the next run removes. */
const MAY_BE_LEFT = new Set(['writes-left-after-purge']);
