import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { Prover } from '@epitaph/projections/proof/prover.ts';
import { BACKUPS_STREAM } from '@epitaph/projections/purge/vault-copies.ts';
import { SqliteProofStore } from '@epitaph/storage/sqlite/sqlite-proof-store.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';

/** More than the leaves of one tile. */
const FACTS = 300;

let folder: string;
let faults: unknown[];
beforeEach(() => {
  folder = newFolder('proof-tree');
  faults = [];
});
afterEach(() => removeFolder(folder));

const idOf = (name: string): string =>
  createHash('sha256')
    .update(name)
    .digest('hex')
    .replace(/^(.{8})(.{4})(.{4})(.{4})(.{12}).*$/, '$1-$2-$3-$4-$5');

/**
 * A log with facts of these names, which determine their ids. `restored <position>` is a restore that kept the log up to that position, and
 * `written` is a write of an item, which is not a fact.
 */
async function logOf(...names: readonly string[]): Promise<MemoryEventLog> {
  const log = new MemoryEventLog();
  const revisions = new Map<string, number>();
  for (const name of names) {
    const [kind, logPosition] = name.split(' ');
    const stream = kind === 'restored' ? BACKUPS_STREAM : kind === 'written' ? 'item-Co1.hash.0' : 'purge-control';
    const backup = { logBackupId: 'l', vaultBackupId: 'v', ledgerHead: '0:', livesEnded: 0 };
    const revision = revisions.get(stream);
    const event = {
      id: idOf(name),
      type: kind === 'restored' ? 'StoreRestored' : kind === 'written' ? 'ItemUpserted' : 'PurgePaused',
      version: 1,
      data: kind === 'restored' ? { ...backup, logPosition: Number(logPosition) } : { name },
      occurredAtMs: 0,
      actor: 'test',
      correlationId: '00000000-0000-4000-8000-000000000000',
      causationId: '00000000-0000-4000-8000-000000000000',
    };
    await log.append([{ stream, expectedRevision: revision ?? 'no-stream', events: [event] }]);
    revisions.set(stream, (revision ?? -1) + 1);
  }
  return log;
}

/** The root of the tree after a node with this file has read the log. */
async function rootIn(file: string, log: MemoryEventLog): Promise<string> {
  const store = new SqliteProofStore(join(folder, file));
  const prover = new Prover(log, store, (error) => faults.push(error));
  await prover.prepare();
  prover.start();
  await prover.reached(log.head());
  const root = Buffer.from(prover.tree.root()).toString('hex');
  const last = prover.prove(log.readAll(log.head() - 1, 1), prover.tree.size)[0]!;
  expect(last.leaf).toBe(prover.tree.size - 1);
  await prover.stop();
  store.close();
  return root;
}

const facts = (name: string, count = FACTS) => Array.from({ length: count }, (_, number) => `${name}${number}`);

describe('the tree of a node whose log was restored while the node was down', () => {
  const copied = facts('a');
  const lost = facts('lost');
  for (const [written, count] of [
    ['less than was lost', 2],
    ['as much as was lost', FACTS],
    ['more than was lost', FACTS * 2],
  ] as const) {
    test(`is built again if ${written} was written since`, async () => {
      const before = await logOf(...copied, ...lost);
      await rootIn('old', before);
      const now = await logOf(...copied, ...facts('between', 3), `restored ${FACTS}`, ...facts('new', count));
      const root = await rootIn('old', now);
      expect(root).toBe(await rootIn('fresh', now));
      expect(faults).toMatchObject([{ message: expect.stringContaining('The tree is built again') as string }]);
    });
  }

  test('is built again if the log is shorter by now and nothing tells why', async () => {
    await rootIn('old', await logOf(...copied));
    const now = await logOf(...copied.slice(0, 20));
    expect(await rootIn('old', now)).toBe(await rootIn('fresh', now));
    expect(faults).toHaveLength(1);
  });

  test('is built again because of the record of the restore, even if that of another restore can’t be read', async () => {
    await rootIn('old', await logOf(...copied, ...lost));
    const now = await logOf(...copied, 'restored ?', `restored ${FACTS}`, ...facts('new', FACTS * 2));
    expect(await rootIn('old', now)).toBe(await rootIn('fresh', now));
    expect(faults).toHaveLength(1);
  });

  test('is built again if the log was restored to before the tree’s first fact', async () => {
    await rootIn('old', await logOf(...lost));
    const now = await logOf('restored 0', ...facts('new', FACTS * 2));
    expect(await rootIn('old', now)).toBe(await rootIn('fresh', now));
    expect(faults).toHaveLength(1);
  });

  test('continues if it has nothing of what was lost, and if it has read the restore', async () => {
    // More than a page of the log comes before the restore.
    const now = await logOf(...copied, 'written', ...facts('between', 1_001), `restored ${FACTS}`, ...facts('new'));
    const fresh = await rootIn('fresh', now);
    for (const had of [FACTS - 20, FACTS]) {
      await rootIn(`old ${had}`, await logOf(...copied.slice(0, had)));
      for (const again of [1, 2]) expect(await rootIn(`old ${had}`, now), `start ${again}`).toBe(fresh);
    }
    expect(faults).toEqual([]);
  });
});
