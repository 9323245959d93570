import { createSecretKey, type KeyObject } from 'node:crypto';
import { gcmOpen, gcmSeal } from '../crypto/aes-gcm.ts';
import { RandomPool } from '../crypto/random-pool.ts';

/**
 * Life keys are stored in the vault as a tree. Each node contains the keys of its children, sealed with the node's own key; the
 * children of a leaf are life keys. When a life key is destroyed, every node from its leaf up to the root gets a new key. PostgreSQL
 * leaves old versions of rows in its files, but without the former root key none of them can be opened. So only the root's former
 * key must really be erased. See docs/adr/0009-keys-in-postgresql.md.
 *
 * The idea is that of Reardon, Ritzdorf, Basin and Capkun, "Secure Data Deletion from Persistent Media" (CCS 2013).
 */
export const FANOUT = 32;
/** The level of the top node; the leaves have level 0. There is room for 32^7 life keys, 34 billion. */
export const TOP_LEVEL = 6;
export const HIGHEST_KEY_ID = FANOUT ** (TOP_LEVEL + 1) - 1;

const KEY_BYTES = 32;
/** Length of the value from `ownerOf`, which says which life a key belongs to. */
const OWNER_BYTES = 8;

export interface NodePlace {
  readonly level: number;
  /** The node's number within its level: its first key id, divided by the number of key ids below it. */
  readonly number: number;
}

/** The node of a level on the path from a key to the root. */
export function nodeOf(keyId: number, level: number): NodePlace {
  return { level, number: Math.floor(keyId / FANOUT ** (level + 1)) };
}

export function parentOf({ level, number }: NodePlace): NodePlace {
  return { level: level + 1, number: Math.floor(number / FANOUT) };
}

/** The slot of a node in its parent, or of a key in its leaf. */
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

/** The decrypted content of a node, which exists in memory only. */
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

  /** @returns undefined if the key is wrong, or the node belongs to another place */
  static open(nodeKey: KeyObject, place: NodePlace, sealed: Uint8Array): NodeContent | undefined {
    const bytes = gcmOpen(nodeKey, associated(place), sealed);
    const slotBytes = slotBytesOf(place);
    return bytes?.length === FANOUT * slotBytes ? new NodeContent(bytes, slotBytes) : undefined;
  }

  seal(nodeKey: KeyObject, place: NodePlace): Buffer {
    return gcmSeal(nodeKey, associated(place), this.#bytes);
  }

  /** The key in a slot; undefined if none was given out, or it was destroyed. */
  key(slot: number): Buffer | undefined {
    const from = slot * this.#slotBytes;
    const key = this.#bytes.subarray(from, from + KEY_BYTES);
    return key.every((byte) => byte === 0) ? undefined : Buffer.from(key);
  }

  /** For a leaf: the owner of the slot's key, also after its destruction; all zeros if no key was given out. */
  owner(slot: number): Buffer {
    const from = slot * this.#slotBytes + KEY_BYTES;
    return this.#bytes.subarray(from, from + OWNER_BYTES);
  }

  /** For a leaf: whether the slot has or had a key. */
  wasGiven(slot: number): boolean {
    return this.owner(slot).some((byte) => byte !== 0);
  }

  put(slot: number, key: Uint8Array, owner?: Uint8Array): void {
    this.#bytes.set(key, slot * this.#slotBytes);
    if (owner !== undefined) this.#bytes.set(owner, slot * this.#slotBytes + KEY_BYTES);
  }

  /** Overwrites the key in a slot. Its owner remains. */
  destroy(slot: number): void {
    const from = slot * this.#slotBytes;
    this.#bytes.fill(0, from, from + KEY_BYTES);
  }

  /** Overwrites the content in memory. */
  wipe(): void {
    this.#bytes.fill(0);
  }
}

/** Makes a key object for the cipher, and overwrites the bytes. */
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
