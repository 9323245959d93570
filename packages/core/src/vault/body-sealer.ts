import type { ItemName } from '../item/pseudonym.ts';
import type { MaybePromise } from '../maybe-promise.ts';
import type { LifeKey } from './key-vault.ts';

/** A sealed body could not be opened: it is another key, or the bytes or their place were changed. */
export class SealBroken extends Error {
  override readonly name = 'SealBroken';
}

/**
 * Seals and opens the body of one write with the key of its life. The seal binds the body to its stream and revision,
 * so it can't be opened at another place.
 */
export interface BodySealer {
  seal(key: LifeKey, stream: string, revision: number, plain: Uint8Array | string): Uint8Array;
  /** @throws {SealBroken} when the body does not belong to that key, stream and revision */
  open(key: LifeKey, stream: string, revision: number, sealed: Uint8Array): Uint8Array;
  /** SHA-256 of a sealed body, base64url. Identifies the bytes without revealing what was in them. */
  digest(sealed: Uint8Array): string;
  /** Begins a SHA-256 of a text that is added in pieces. */
  beginDigest(): GrowingDigest;
}

/** A SHA-256 of everything that was added to it. */
export interface GrowingDigest {
  add(text: string): void;
  /** The digest as base64url. Nothing can be added after this. */
  end(): string;
}

/** Keyed hashes that name streams and items without revealing whose they are. */
export interface ItemNaming {
  /**
   * `item-<container rid>.<keyed hash of partition key and id>`: the name that all lives of an item share, without the
   * life's number. The item's pseudonym gives the same name as its id and partition key.
   */
  itemStreamPrefix(containerRid: string, partitionKey: string, id: string): MaybePromise<string>;
  /**
   * `unique-<container rid>.<keyed hash of partition key and value>`.
   *
   * @param value the unique key's paths and the document's values there, as one text; equal values must give the same
   *   text
   */
  uniqueKeyStream(containerRid: string, partitionKey: string, value: string): MaybePromise<string>;
  /** The pseudonym of an item in a container that keeps ids and partition keys out of events. */
  pseudonym(containerRid: string, name: ItemName): MaybePromise<ItemName>;
  /** The pseudonym of a partition key in such a container. */
  partitionPseudonym(containerRid: string, partitionKey: string): MaybePromise<string>;
  /** The common beginning of the names of the streams of all items of a partition key. */
  partitionStreamPrefix(containerRid: string, partitionKey: string): MaybePromise<string>;
}
