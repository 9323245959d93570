import { createSecretKey, type KeyObject } from 'node:crypto';
import { gcmOpen, gcmSeal } from '../crypto/aes-gcm.ts';
import { RandomPool } from '../crypto/random-pool.ts';

/**
 * How life keys lie in the vault: in a tree whose nodes each hold the keys of their children, sealed with a key of
 * the node's own. A leaf's children are life keys. Destroying one gives every node from its leaf up to the root a new
 * key, so that of all the old versions that PostgreSQL leaves lying about none opens any more: what must really be
 * erased is the root's former key alone. See docs/adr/0009-keys-in-postgresql.md.
 *
 * The idea is that of Reardon, Ritzdorf, Basin and Capkun, "Secure Data Deletion from Persistent Media" (CCS 2013).
 */
export const FANOUT = 32;
/** Levels of nodes: 0 are the leaves. 32^7 life keys in all, 34 billion. */
export const TOP_LEVEL = 6;
export const HIGHEST_KEY_ID = FANOUT ** (TOP_LEVEL + 1) - 1;

const KEY_BYTES = 32;
/** Says whose a life key is, as `ownerOf` has it. */
const OWNER_BYTES = 8;

export interface NodePlace {
  readonly level: number;
  /** Among the nodes of its level: the number of its first key id, divided by how many it covers. */
  readonly number: number;
}

/** The node of a level on the way from a key to the root. */
export function nodeOf(keyId: number, level: number): NodePlace {
  return { level, number: Math.floor(keyId / FANOUT ** (level + 1)) };
}

export function parentOf({ level, number }: NodePlace): NodePlace {
  return { level: level + 1, number: Math.floor(number / FANOUT) };
}

/** Which child of its parent a node is, or which key of its leaf. */
export function slotOf(number: number): number {
  return number % FANOUT;
}

export function placeName({ level, number }: NodePlace): string {
  return `${level}/${number}`;
}

const random = new RandomPool();

export function freshKey(): Buffer {
  return random.take(KEY_BYTES);
}

/** What a node holds, in plain: in memory only. */
export class NodeContent {
  readonly #bytes: Buffer;
  readonly #slotBytes: number;

  private constructor(bytes: Buffer, slotBytes: number) {
    this.#bytes = bytes;
    this.#slotBytes = slotBytes;
  }

  static empty(place: NodePlace): NodeContent {
    const slotBytes = slotBytesOf(place);
    return new NodeContent(Buffer.alloc(FANOUT * slotBytes), slotBytes);
  }

  /** @returns undefined when the key is another one, or the node does not belong there */
  static open(nodeKey: KeyObject, place: NodePlace, sealed: Uint8Array): NodeContent | undefined {
    const bytes = gcmOpen(nodeKey, associated(place), sealed);
    const slotBytes = slotBytesOf(place);
    return bytes?.length === FANOUT * slotBytes ? new NodeContent(bytes, slotBytes) : undefined;
  }

  seal(nodeKey: KeyObject, place: NodePlace): Buffer {
    return gcmSeal(nodeKey, associated(place), this.#bytes);
  }

  /** The key in a slot; undefined for none: never given, or destroyed. */
  key(slot: number): Buffer | undefined {
    const from = slot * this.#slotBytes;
    const key = this.#bytes.subarray(from, from + KEY_BYTES);
    return key.every((byte) => byte === 0) ? undefined : Buffer.from(key);
  }

  /** Of a leaf: whose key it is or was; all zeros when the slot was never given. */
  owner(slot: number): Buffer {
    const from = slot * this.#slotBytes + KEY_BYTES;
    return this.#bytes.subarray(from, from + OWNER_BYTES);
  }

  /** Of a leaf: whether there is or was a key in the slot. */
  wasGiven(slot: number): boolean {
    return this.owner(slot).some((byte) => byte !== 0);
  }

  put(slot: number, key: Uint8Array, owner?: Uint8Array): void {
    this.#bytes.set(key, slot * this.#slotBytes);
    if (owner !== undefined) this.#bytes.set(owner, slot * this.#slotBytes + KEY_BYTES);
  }

  /** Takes a key out for good; whose it was stays. */
  destroy(slot: number): void {
    const from = slot * this.#slotBytes;
    this.#bytes.fill(0, from, from + KEY_BYTES);
  }

  /** Overwrites what this holds in memory. */
  wipe(): void {
    this.#bytes.fill(0);
  }
}

/** A node key as the cipher takes it; the bytes are overwritten. */
export function asKey(bytes: Buffer): KeyObject {
  const key = createSecretKey(bytes);
  bytes.fill(0);
  return key;
}

function slotBytesOf({ level }: NodePlace): number {
  return level === 0 ? KEY_BYTES + OWNER_BYTES : KEY_BYTES;
}

function associated(place: NodePlace): Buffer {
  return Buffer.from(`node ${placeName(place)}`, 'latin1');
}
