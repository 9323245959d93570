import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  CompactTree,
  consistencyProof,
  type HashSource,
  inclusionProof,
  leafHash,
  nodeHash,
  rootOfProof,
  rootsOfConsistency,
  type Sha256,
  treeHash,
} from '@epitaph/core/proof/merkle-tree.ts';

const seed = Number(process.env['EPITAPH_SEED'] ?? 20_261_121);
const sha256: Sha256 = (...parts) => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest();
};
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

/** Inputs and hashes of Certificate Transparency's reference tests. */
const LEAVES = ['', '00', '10', '2021', '3031', '40414243', '5051525354555657', '606162636465666768696a6b6c6d6e6f'].map(
  (text) => Buffer.from(text, 'hex'),
);
const ROOTS = [
  'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
  '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
  'fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125',
  'aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77',
  'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
  '4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4',
  '76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef',
  'ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c',
  '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328',
];

function sourceOf(leaves: readonly Uint8Array[]): HashSource {
  const hash = (level: number, index: number): Uint8Array =>
    level === 0
      ? leafHash(sha256, leaves[index]!)
      : nodeHash(sha256, hash(level - 1, 2 * index), hash(level - 1, 2 * index + 1));
  return { hash };
}

describe('a Merkle tree of RFC 6962', () => {
  it('has the hashes of the reference tests', () => {
    ROOTS.forEach((root, size) => expect(hex(treeHash(sha256, sourceOf(LEAVES), size))).toBe(root));
  });

  it('has the same root if only the hashes that it needs are kept', () => {
    const tree = new CompactTree(sha256);
    for (let size = 0; size <= LEAVES.length; size++) {
      expect([tree.size, hex(tree.root())]).toEqual([size, ROOTS[size]]);
      if (size < LEAVES.length) tree.append(leafHash(sha256, LEAVES[size]!));
    }
  });

  it('proves every leaf of every size, and no other leaf, place or tree', () => {
    for (let size = 1; size <= LEAVES.length; size++) {
      for (let leaf = 0; leaf < size; leaf++) {
        const path = inclusionProof(sha256, sourceOf(LEAVES), leaf, size);
        const root = (hash: Uint8Array, at = leaf, of = size, by = path) => rootOfProof(sha256, hash, at, of, by);
        const own = leafHash(sha256, LEAVES[leaf]!);
        expect(hex(root(own)!)).toBe(ROOTS[size]);
        expect(root(leafHash(sha256, Buffer.from('ff', 'hex')))).not.toEqual(root(own));
        expect(root(own, leaf, size, [...path, own])).toBe(undefined);
        if (path.length > 0) expect(root(own, leaf, size, path.slice(1))).toBe(undefined);
        expect(root(own, size, size)).toBe(undefined);
      }
    }
  });

  it('proves that a tree begins with a smaller one, and not with another', () => {
    const bytes = fc.uint8Array({ maxLength: 4 });
    fc.assert(
      fc.property(fc.array(bytes, { minLength: 1, maxLength: 40 }), fc.nat(), fc.nat(), (leaves, first, index) => {
        const from = 1 + (first % leaves.length);
        const source = sourceOf(leaves);
        const fromRoot = treeHash(sha256, source, from);
        const path = consistencyProof(sha256, source, from, leaves.length);
        const roots = rootsOfConsistency(sha256, from, leaves.length, fromRoot, path)!;
        expect(hex(roots.from)).toBe(hex(fromRoot));
        expect(hex(roots.to)).toBe(hex(treeHash(sha256, source, leaves.length)));
        // If a leaf of the smaller tree is changed, the proof leads to another smaller or another larger root.
        const changed = leaves.map((leaf, at) => (at === index % from ? Uint8Array.of(...leaf, 1) : leaf));
        const other = treeHash(sha256, sourceOf(changed), from);
        const wrong = rootsOfConsistency(sha256, from, leaves.length, other, path)!;
        expect([hex(wrong.from), hex(wrong.to)]).not.toEqual([hex(other), hex(roots.to)]);
        const whole = (by: readonly Uint8Array[]) => rootsOfConsistency(sha256, from, leaves.length, fromRoot, by);
        expect(whole([...path, fromRoot])).toBe(undefined);
        if (path.length > 0) expect([whole(path.slice(1)), whole([])]).toEqual([undefined, undefined]);
      }),
      { seed, numRuns: 300 },
    );
  });

  it('proves nothing about a leaf or a beginning that it does not have', () => {
    const source = sourceOf(LEAVES);
    for (const leaf of [-1, 8]) {
      expect(() => inclusionProof(sha256, source, leaf, 8)).toThrow('a proof is of a leaf in the tree');
      expect(rootOfProof(sha256, LEAVES[0]!, leaf, 8, [])).toBe(undefined);
    }
    for (const from of [0, 9]) {
      expect(() => consistencyProof(sha256, source, from, 8)).toThrow(
        'a tree is consistent with one that is no smaller',
      );
      expect(rootsOfConsistency(sha256, from, 8, LEAVES[0]!, [])).toBe(undefined);
    }
  });
});
