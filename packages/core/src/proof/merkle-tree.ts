import { invariant } from '../invariant.ts';

/** SHA-256 of the concatenated parts: 32 bytes. A parameter, because core has no cryptography of its own. */
export type Sha256 = (...parts: readonly Uint8Array[]) => Uint8Array;

const LEAF = Uint8Array.of(0);
const NODE = Uint8Array.of(1);

/** Hash of a leaf. Source: RFC 6962, section 2.1. */
export const leafHash = (sha256: Sha256, leaf: Uint8Array): Uint8Array => sha256(LEAF, leaf);
/** Hash of an inner node. Source: RFC 6962, section 2.1. */
export const nodeHash = (sha256: Sha256, left: Uint8Array, right: Uint8Array): Uint8Array => sha256(NODE, left, right);

/** Leaf hashes `[from, to)` of a tree, or hashes of complete subtrees of it; see {@link rangeHash}. */
export interface HashSource {
  /** Hash of the complete subtree of 2^level leaves that begins at leaf `index << level`. Level 0 is the leaves themselves. */
  hash(level: number, index: number): Uint8Array;
}

/** The hash of a tree with `size` leaves. An empty tree has the hash of no bytes. Source: RFC 6962, section 2.1. */
export function treeHash(sha256: Sha256, source: HashSource, size: number): Uint8Array {
  return size === 0 ? sha256() : rangeHash(sha256, source, 0, size);
}

/** The hash over leaves `[from, to)`, where `from` begins a complete subtree that is at least as large as the range. */
function rangeHash(sha256: Sha256, source: HashSource, from: number, to: number): Uint8Array {
  const count = to - from;
  const level = Math.floor(Math.log2(count));
  if (2 ** level === count) return source.hash(level, from / count);
  const middle = from + 2 ** level;
  return nodeHash(sha256, rangeHash(sha256, source, from, middle), rangeHash(sha256, source, middle, to));
}

/**
 * The audit path of a leaf, from the leaf upwards: the hashes from which, with the leaf's own, the tree's hash is
 * computed. Source: RFC 6962, section 2.1.1.
 */
export function inclusionProof(sha256: Sha256, source: HashSource, leaf: number, size: number): Uint8Array[] {
  invariant(leaf >= 0 && leaf < size, 'a proof is of a leaf in the tree');
  const path: Uint8Array[] = [];
  const descend = (from: number, to: number): void => {
    if (to - from === 1) return;
    const middle = from + largestPowerBelow(to - from);
    if (leaf < middle) {
      descend(from, middle);
      path.push(rangeHash(sha256, source, middle, to));
    } else {
      descend(middle, to);
      path.push(rangeHash(sha256, source, from, middle));
    }
  };
  descend(0, size);
  return path;
}

/** The root hash of a tree of `size` leaves that follows from an audit path. Undefined for a path of the wrong length. */
export function rootOfProof(
  sha256: Sha256,
  hash: Uint8Array,
  leaf: number,
  size: number,
  path: readonly Uint8Array[],
): Uint8Array | undefined {
  if (!(Number.isInteger(leaf) && leaf >= 0 && leaf < size)) return undefined;
  let next = 0;
  const climb = (from: number, to: number): Uint8Array | undefined => {
    if (to - from === 1) return hash;
    const middle = from + largestPowerBelow(to - from);
    const inner = leaf < middle ? climb(from, middle) : climb(middle, to);
    const sibling = path[next++];
    if (inner === undefined || sibling === undefined) return undefined;
    return leaf < middle ? nodeHash(sha256, inner, sibling) : nodeHash(sha256, sibling, inner);
  };
  const root = climb(0, size);
  return next === path.length ? root : undefined;
}

function largestPowerBelow(count: number): number {
  return 2 ** (Math.ceil(Math.log2(count)) - 1);
}

/**
 * The proof that a smaller tree is the beginning of a larger one: the hashes from which both roots follow. Source: RFC
 * 6962, section 2.1.2.
 */
export function consistencyProof(sha256: Sha256, source: HashSource, from: number, to: number): Uint8Array[] {
  invariant(from > 0 && from <= to, 'a tree is consistent with one that is no smaller');
  const path: Uint8Array[] = [];
  const descend = (start: number, end: number, whole: boolean): void => {
    if (from === end) {
      if (!whole) path.push(rangeHash(sha256, source, start, end));
      return;
    }
    const middle = start + largestPowerBelow(end - start);
    if (from <= middle) {
      descend(start, middle, whole);
      path.push(rangeHash(sha256, source, middle, end));
    } else {
      descend(middle, end, false);
      path.push(rangeHash(sha256, source, start, middle));
    }
  };
  descend(0, to, true);
  return path;
}

/** The roots of both trees that follow from a consistency proof. Undefined for a proof of the wrong length. */
export function rootsOfConsistency(
  sha256: Sha256,
  from: number,
  to: number,
  fromRoot: Uint8Array,
  path: readonly Uint8Array[],
): { readonly from: Uint8Array; readonly to: Uint8Array } | undefined {
  if (!(from > 0 && from <= to)) return undefined;
  let next = 0;
  const climb = (start: number, end: number, whole: boolean): { from: Uint8Array; to: Uint8Array } | undefined => {
    if (from === end) {
      if (whole) return { from: fromRoot, to: fromRoot };
      const hash = path[next++];
      return hash === undefined ? undefined : { from: hash, to: hash };
    }
    const middle = start + largestPowerBelow(end - start);
    const inner = from <= middle ? climb(start, middle, whole) : climb(middle, end, false);
    const sibling = path[next++];
    if (inner === undefined || sibling === undefined) return undefined;
    return from <= middle
      ? { from: inner.from, to: nodeHash(sha256, inner.to, sibling) }
      : { from: nodeHash(sha256, sibling, inner.from), to: nodeHash(sha256, sibling, inner.to) };
  };
  const roots = climb(0, to, true);
  return next === path.length ? roots : undefined;
}

/** A tree that only grows. It keeps only what the root needs: the hashes of its largest complete subtrees. */
export class CompactTree {
  readonly #sha256: Sha256;
  /** By level. Undefined if the size does not contain this power of two. */
  readonly #subtrees: (Uint8Array | undefined)[] = [];
  #size = 0;

  constructor(sha256: Sha256) {
    this.#sha256 = sha256;
  }

  get size(): number {
    return this.#size;
  }

  append(hash: Uint8Array): void {
    let carried = hash;
    let level = 0;
    for (let left = this.#subtrees[level]; left !== undefined; left = this.#subtrees[level]) {
      carried = nodeHash(this.#sha256, left, carried);
      this.#subtrees[level] = undefined;
      level += 1;
    }
    this.#subtrees[level] = carried;
    this.#size += 1;
  }

  root(): Uint8Array {
    let root: Uint8Array | undefined;
    for (const subtree of this.#subtrees) {
      if (subtree !== undefined) root = root === undefined ? subtree : nodeHash(this.#sha256, subtree, root);
    }
    return root ?? this.#sha256();
  }
}
