import { createHash, type Hash } from 'node:crypto';
import type { PartDigest } from '@epitaph/projections/read-model-store.ts';

type Part = 'catalog' | number;

/** Computes digests of the parts of read models. The pieces of different parts may be added in any order. */
export class PartDigests {
  readonly #parts = new Map<Part, { items: number; readonly hash: Hash }>();

  /** @param part the number of a container; null for the catalog */
  add(part: number | null, items: number, ...pieces: readonly (string | Uint8Array)[]): void {
    const key = part ?? 'catalog';
    const known = this.#parts.get(key) ?? { items: 0, hash: createHash('sha256') };
    this.#parts.set(key, known);
    known.items += items;
    for (const piece of pieces) known.hash.update(piece);
  }

  /** Returns the digests. Nothing can be added afterwards. */
  done(): ReadonlyMap<Part, PartDigest> {
    return new Map(
      [...this.#parts].map(([key, { items, hash }]) => [key, { items, digest: hash.digest('base64url') }] as const),
    );
  }
}
