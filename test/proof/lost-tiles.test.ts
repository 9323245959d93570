import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { newEvent } from '@epitaph/core/handle-command.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { base64 } from '@epitaph/core/proof/checkpoint.ts';
import { CompactTree } from '@epitaph/core/proof/merkle-tree.ts';
import { factHash, ProofTree, sha256 } from '@epitaph/projections/proof/proof-tree.ts';
import { Prover } from '@epitaph/projections/proof/prover.ts';
import { SqliteProofStore } from '@epitaph/storage/sqlite/sqlite-proof-store.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';

/** A tree of more leaves than a tile has, in a file whose tiles have been lost. */
function treeWithout(tiles: string): { readonly store: SqliteProofStore; readonly tree: ProofTree } {
  const folder = newFolder('lost-tiles');
  const file = join(folder, 'proof.db');
  const leaves = Array.from({ length: 300 }, (_, index) => ({
    hash: new Uint8Array(32).fill(index),
    position: index + 1,
  }));
  const before = new SqliteProofStore(file);
  ProofTree.open(before).append(leaves, 300);
  before.close();
  const database = new DatabaseSync(file);
  database.exec(`DELETE FROM tiles WHERE ${tiles}`);
  database.close();
  const store = new SqliteProofStore(file);
  onTestFinished(() => {
    store.close();
    removeFolder(folder);
  });
  return { store, tree: ProofTree.open(store) };
}

it('a tree that has lost its last leaves, but not the hashes above those before them, is known to be incomplete', () => {
  expect(treeWithout('level = 0 AND number = 1').tree.isWhole).toBe(false);
  expect(treeWithout('level = 1').tree.isWhole).toBe(false);
  expect(treeWithout('false').tree.isWhole).toBe(true);
});

it('a tree whose last leaf has filled a tile is complete, and continues', () => {
  const { store } = treeWithout('false');
  store.clear();
  expect([store.tile(0, 0), store.tileAt(300)]).toEqual([undefined, undefined]);
  const compact = new CompactTree(sha256);
  for (const count of [256, 256, 1]) {
    const tree = ProofTree.open(store);
    const leaves = Array.from({ length: count }, (_, index) => ({
      hash: sha256(Buffer.from(`${tree.size + index}`)),
      position: tree.size + index + 1,
    }));
    for (const { hash } of leaves) compact.append(hash);
    tree.append(leaves, tree.size + count);
    const again = ProofTree.open(store);
    expect([again.isWhole, again.size]).toEqual([true, compact.size]);
    expect(base64(again.root())).toBe(base64(compact.root()));
  }
});

it('an incomplete tree is built again from the log, and that is reported', async () => {
  const { store } = treeWithout('level = 1');
  const log = new MemoryEventLog();
  onTestFinished(() => log.close());
  const context = { nowMs: 0, actor: 'test', correlationId: crypto.randomUUID(), newId: () => crypto.randomUUID() };
  const events = Array.from({ length: 301 }, () => newEvent(context, { type: 'PurgePaused', data: {} }, 1));
  await log.append([{ stream: 'purge-control', expectedRevision: 'no-stream', events }]);
  const told: unknown[] = [];
  const prover = new Prover(log, store, (error) => told.push(error));
  await prover.prepare();
  expect(told).toMatchObject([{ message: expect.stringContaining('has lost leaves') }]);
  prover.start();
  await prover.reached(301);
  const tree = new CompactTree(sha256);
  for (const event of log.readStream('purge-control')) tree.append(factHash(event));
  expect(prover.tree.root()).toEqual(tree.root());
  await prover.stop();
});

it('a tree in a file of an earlier format is begun again', () => {
  const { store, tree } = treeWithout('false; PRAGMA user_version = 0');
  expect([tree.size, store.tile(0, 0)]).toEqual([0, undefined]);
});

it('a tree that has lost a full tile reports that to its readers, with advice', () => {
  const { tree } = treeWithout('level = 0 AND number = 0');
  expect(tree.isWhole).toBe(true);
  expect(() => tree.leaf(3)).toThrow(
    /the proof tree is damaged \(tile 0 of level 0 is lost\).* delete the file, .* it is made again/,
  );
  expect(tree.leaf(299)).toEqual(new Uint8Array(32).fill(299));
});

it('a write that fails changes nothing, and the next one continues', () => {
  const { store, tree } = treeWithout('false');
  const { hashes } = store.tile(0, 1)!;
  const tile = { level: 0, number: 1, firstPosition: 257, hashes };
  const state = store.state();
  const half = [
    { ...tile, hashes: new Uint8Array(0) },
    { ...tile, hashes: null as never },
  ];
  expect(() => store.write(half, { size: 1, position: 1 })).toThrow('NOT NULL');
  expect([store.state(), store.tile(0, 1)]).toEqual([state, expect.objectContaining({ hashes })]);
  store.write([tile], state);
  expect(ProofTree.open(store).root()).toEqual(tree.root());
  // A tile that can't be read for another reason is not reported as damaged.
  store.close();
  expect(() => store.state()).toThrow(/^statement has been finalized$/);
});
