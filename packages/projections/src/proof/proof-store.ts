/** Number of hashes in a full tile, which covers eight levels of the tree. Source: C2SP, "tlog-tiles". */
export const TILE_HASHES = 256;
export const TILE_LEVELS = 8;

/** Up to 256 hashes of one level, concatenated. Level 0 has the hashes of leaves, level 1 those of full tiles of level 0, … */
export interface Tile {
  readonly level: number;
  readonly number: number;
  readonly hashes: Uint8Array;
  /** Position in the log of the first leaf under it. */
  readonly firstPosition: number;
}

/**
 * The store of the tree of permanent facts, in tiles, in a file of its own. The same log gives the same tree
 * everywhere, so it can be thrown away and built again.
 */
export interface ProofStore {
  /** The number of leaves, and the position of the log up to which they go. */
  state(): { readonly size: number; readonly position: number };
  /** Writes whole tiles and the new state of the tree, all or nothing. */
  write(tiles: readonly Tile[], state: { readonly size: number; readonly position: number }): void;
  tile(level: number, number: number): Tile | undefined;
  /** The tile of leaves that would contain the leaf at a position of the log. */
  tileAt(position: number): Tile | undefined;
  /** Deletes the tree. It is built again from the log. */
  clear(): void;
  close(): void;
}
