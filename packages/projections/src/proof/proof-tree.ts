import { hash } from 'node:crypto';
import {
  consistencyProof,
  type HashSource,
  inclusionProof,
  leafHash,
  nodeHash,
  type Sha256,
  treeHash,
} from '@epitaph/core/proof/merkle-tree.ts';
import { canonicalJson } from '@epitaph/core/canonical-json.ts';
import { sameBytes } from '@epitaph/core/proof/certificate.ts';
import { factLeaf } from '@epitaph/core/proof/leaf.ts';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { type ProofStore, type Tile, TILE_HASHES, TILE_LEVELS } from './proof-store.ts';

const HASH_BYTES = 32;
/** How many hashes of complete subtrees are cached. Proofs of neighbouring leaves have most of theirs in common. */
const KEPT_HASHES = 16_384;

export const sha256: Sha256 = (...parts) =>
  hash('sha256', parts.length === 1 ? parts[0]! : Buffer.concat(parts), 'buffer');

/** The hash of a recorded fact as a leaf. */
export function factHash(event: RecordedEvent): Uint8Array {
  return leafHash(sha256, Buffer.from(canonicalJson(factLeaf(event))));
}

/** The hash of a leaf, or of a full tile, with the position in the log of that leaf or of the first one under the tile. */
export interface Leaf {
  readonly hash: Uint8Array;
  readonly position: number;
}

/** The tree of the permanent facts of a log. It grows at its end, and proves what is in it. */
export class ProofTree {
  readonly #store: ProofStore;
  readonly #hashes = new GenerationCache<string, Uint8Array>(KEPT_HASHES);
  #size: number;
  #position: number;
  /** The last tile of each level, which may not be full. */
  #last: readonly Tile[];
  /** False if leaves at its end are lost. Leaves that were appended now would take their place, and be signed. */
  readonly isWhole: boolean;

  private constructor(store: ProofStore, size: number, position: number, last: readonly Tile[], isWhole: boolean) {
    this.isWhole = isWhole;
    this.#store = store;
    this.#size = size;
    this.#position = position;
    this.#last = last;
  }

  static open(store: ProofStore): ProofTree {
    const { size, position } = store.state();
    const last: Tile[] = [];
    let isWhole = true;
    for (let level = 0, hashes = size; hashes > 0; level += 1, hashes = Math.floor(hashes / TILE_HASHES)) {
      const number = Math.floor(hashes / TILE_HASHES);
      const filled = hashes % TILE_HASHES;
      const tile = (filled === 0 ? undefined : store.tile(level, number)) ?? emptyTile(level, number);
      isWhole &&= tile.hashes.length === filled * HASH_BYTES;
      last.push(tile);
    }
    return new ProofTree(store, size, position, last, isWhole);
  }

  get size(): number {
    return this.#size;
  }

  /** Position of the log up to which every permanent fact is in the tree. */
  get position(): number {
    return this.#position;
  }

  /** Appends the leaves of facts, in the order of the log, which was read up to `position`. */
  append(facts: readonly Leaf[], position: number): void {
    const changed: Tile[] = [];
    const last = [...this.#last];
    let added = facts;
    for (let level = 0; added.length > 0; level++) {
      const above: Leaf[] = [];
      let tile = last[level] ?? emptyTile(level, 0);
      for (let next = 0; next < added.length;) {
        const some = added.slice(next, next + TILE_HASHES - tile.hashes.length / HASH_BYTES);
        next += some.length;
        const { number } = tile;
        const firstPosition = tile.hashes.length === 0 ? some[0]!.position : tile.firstPosition;
        const hashes = Buffer.concat([tile.hashes, ...some.map(({ hash }) => hash)]);
        tile = { level, number, firstPosition, hashes };
        changed.push(tile);
        if (hashes.length < TILE_HASHES * HASH_BYTES) break;
        above.push({ hash: subtreeHash(hashes, 0, TILE_HASHES), position: firstPosition });
        tile = emptyTile(level, number + 1);
      }
      last[level] = tile;
      added = above;
    }
    const size = this.#size + facts.length;
    this.#store.write(changed, { size, position });
    this.#last = last;
    this.#size = size;
    this.#position = position;
  }

  /** The root of the tree when it had `size` leaves. */
  root(size = this.#size): Uint8Array {
    return treeHash(sha256, this.#source(), size);
  }

  /** The hash of a leaf in the tree. */
  leaf(number: number): Uint8Array {
    return this.#source().hash(0, number);
  }

  inclusion(leaf: number, size: number): Uint8Array[] {
    return inclusionProof(sha256, this.#source(), leaf, size);
  }

  consistency(from: number, to: number): Uint8Array[] {
    return consistencyProof(sha256, this.#source(), from, to);
  }

  /** The number of the first leaf of the tile that a position of the log belongs to, and that leaf's position. */
  tileAt(position: number): { readonly firstLeaf: number; readonly firstPosition: number } | undefined {
    const tile = this.#store.tileAt(position);
    return tile && { firstLeaf: tile.number * TILE_HASHES, firstPosition: tile.firstPosition };
  }

  /**
   * The number of a fact's leaf, found by its hash. Undefined if no leaf has this hash. The number can't be found by
   * counting facts in the log: after a fact that the log has lost, or an additional one, these have other numbers than
   * the leaves.
   */
  leafOf(position: number, hash: Uint8Array): number | undefined {
    const tile = this.#store.tileAt(position);
    if (tile === undefined) return undefined;
    for (let at = 0; at < tile.hashes.length; at += HASH_BYTES) {
      if (sameBytes(tile.hashes.subarray(at, at + HASH_BYTES), hash))
        return tile.number * TILE_HASHES + at / HASH_BYTES;
    }
    return undefined;
  }

  /** Hashes of complete subtrees, which never change; each tile is read once. */
  #source(): HashSource {
    const tiles = new Map<string, Tile>();
    const read = (level: number, number: number): Tile => {
      const name = `${level}/${number}`;
      const tile = tiles.get(name) ?? this.#store.tile(level, number);
      invariant(tile !== undefined, `the tree has tile ${name}`);
      tiles.set(name, tile);
      return tile;
    };
    return {
      hash: (level, index) => {
        const name = `${level}/${index}`;
        const known = this.#hashes.get(name);
        if (known !== undefined) return known;
        const count = 2 ** (level % TILE_LEVELS);
        const first = index * count;
        const tile = read(Math.floor(level / TILE_LEVELS), Math.floor(first / TILE_HASHES));
        // A copy, because a view of the tile would keep the whole tile in memory.
        const hashOfAll = Uint8Array.from(subtreeHash(tile.hashes, first % TILE_HASHES, count));
        this.#hashes.set(name, hashOfAll);
        return hashOfAll;
      },
    };
  }
}

function emptyTile(level: number, number: number): Tile {
  return { level, number, hashes: new Uint8Array(), firstPosition: 0 };
}

/** The hash over `count` hashes of a tile, a power of two, beginning at `from`. */
function subtreeHash(hashes: Uint8Array, from: number, count: number): Uint8Array {
  if (count === 1) return hashes.subarray(from * HASH_BYTES, (from + 1) * HASH_BYTES);
  const half = count / 2;
  return nodeHash(sha256, subtreeHash(hashes, from, half), subtreeHash(hashes, from + half, half));
}
