import type { ItemName } from '../item/pseudonym.ts';
import type { MaybePromise } from '../maybe-promise.ts';
import type { LifeKey } from './key-vault.ts';

/** A sealed body did not open: the key is another one, or the bytes or their place were changed. */
export class SealBroken extends Error {
  override readonly name = 'SealBroken';
}

/**
 * Seals and opens the body of one write with the key of its life. The seal binds the body to its stream and
 * revision: moved to another place, it does not open.
 */
export interface BodySealer {
  seal(key: LifeKey, stream: string, revision: number, plain: Uint8Array | string): Uint8Array;
  /**
   * @throws {SealBroken} when the body does not belong to that key, stream and revision.
   */
  open(key: LifeKey, stream: string, revision: number, sealed: Uint8Array): Uint8Array;
  /** SHA-256 of a sealed body, base64url. Says which bytes were there without saying what was in them. */
  digest(sealed: Uint8Array): string;
  /** Begins a SHA-256 of a text that comes in pieces. */
  beginDigest(): GrowingDigest;
}

/** A SHA-256 of all that was added to it. */
export interface GrowingDigest {
  add(text: string): void;
  /** As base64url. Nothing can be added after. */
  end(): string;
}

/** Keyed hashes that name streams and items without saying whose they are. */
export interface ItemNaming {
  /**
   * `item-<container rid>.<keyed hash of partition key and id>`: all lives of an item, without the life's number. By
   * the item's pseudonym the same as by its name.
   */
  itemStreamPrefix(containerRid: string, partitionKey: string, id: string): MaybePromise<string>;
  /**
   * `unique-<container rid>.<keyed hash of partition key and value>`.
   *
   * @param value the unique key's paths and what a document has there, as one text; the same text for the same value
   */
  uniqueKeyStream(containerRid: string, partitionKey: string, value: string): MaybePromise<string>;
  /** What stands for an item where its container keeps ids and partition keys out of events. */
  pseudonym(containerRid: string, name: ItemName): MaybePromise<ItemName>;
  /** What stands for a partition key there. */
  partitionPseudonym(containerRid: string, partitionKey: string): MaybePromise<string>;
  /** What the streams of all items of a partition key begin with. */
  partitionStreamPrefix(containerRid: string, partitionKey: string): MaybePromise<string>;
}
