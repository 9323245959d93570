import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { ProofTree } from '@epitaph/projections/proof/proof-tree.ts';
import { SqliteProofStore } from '@epitaph/storage/sqlite/sqlite-proof-store.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';

/** A tree of more leaves than a tile has, in a file of which tiles are lost since. */
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

it('a tree that has lost its last leaves, though not what is above those before them, is known to be no whole one', () => {
  expect(treeWithout('level = 0 AND number = 1').tree.isWhole).toBe(false);
  expect(treeWithout('level = 1').tree.isWhole).toBe(false);
  expect(treeWithout('false').tree.isWhole).toBe(true);
});

it('a tree that has lost a full tile says so to whoever needs it, and what to do', () => {
  const { tree } = treeWithout('level = 0 AND number = 0');
  expect(tree.isWhole).toBe(true);
  expect(() => tree.leaf(3)).toThrow(
    /the proof tree is damaged \(tile 0 of level 0 is lost\).* delete the file, .* it is made again/,
  );
  expect(tree.leaf(299)).toEqual(new Uint8Array(32).fill(299));
});
