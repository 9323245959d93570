/** Hashes in a full tile: eight levels of the tree. Source: C2SP, "tlog-tiles". */
export const TILE_HASHES = 256;
export const TILE_LEVELS = 8;

/** Up to 256 hashes of one level, one after the other. Level 0 has the leaves', level 1 those of full tiles, … */
export interface Tile {
  readonly level: number;
  readonly number: number;
  readonly hashes: Uint8Array;
  /** Position in the log of the first leaf below it. */
  readonly firstPosition: number;
}

/**
 * Where a node keeps the tree of permanent facts, in tiles, in a file of its own: the same log makes the same tree
 * everywhere, so what is in it can be thrown away and made again.
 */
export interface ProofStore {
  /** How many leaves there are, and up to which position of the log they go. */
  state(): { readonly size: number; readonly position: number };
  /** Writes tiles, whole, and where the tree then stands; all or nothing. */
  write(tiles: readonly Tile[], state: { readonly size: number; readonly position: number }): void;
  tile(level: number, number: number): Tile | undefined;
  /** The tile of leaves in which that of a position of the log is, if it is in the tree. */
  tileAt(position: number): Tile | undefined;
  /** Forgets all of it; the log makes it again. */
  clear(): void;
  close(): void;
}
