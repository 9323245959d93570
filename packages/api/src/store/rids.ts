import { hash } from 'node:crypto';
import type { ScriptKind } from '@epitaph/core/script/events.ts';

/**
 * Resource ids are base64 with `-` for `/`, so that they can be in a path: 4 bytes for a database, 8 for a container,
 * 16 for an item.
 */
const RID = /^(?:[A-Za-z0-9+-]{6}==|[A-Za-z0-9+-]{11}=|[A-Za-z0-9+-]{22}==)$/;

/** The resource id of some bytes. */
function encodeRid(bytes: Buffer): string {
  return bytes.toString('base64').replaceAll('/', '-');
}

/** The bytes of a resource id. */
function decodeRid(rid: string): Buffer {
  return Buffer.from(rid.replaceAll('-', '/'), 'base64');
}

/** Whether a text has the shape of a resource id of any kind. */
export function isRid(text: string): boolean {
  return (text.length === 8 || text.length === 12 || text.length === 24) && RID.test(text);
}

/** Bytes of the containers' rids, decoded once, because every item's rid begins with them. */
const containerBytes = new Map<string, Buffer>();

/**
 * An item's resource id: its container's, followed by the log position at which its life began, which is unique. The
 * lowest byte of the position comes first: for the .NET clients, a 16-byte id is an item's if the high half of its last
 * byte is 0.
 */
export function itemRid(containerRid: string, birth: number): string {
  let prefix = containerBytes.get(containerRid);
  if (prefix === undefined) {
    prefix = Buffer.alloc(8);
    prefix.write(containerRid.replaceAll('-', '/'), 'base64');
    // Containers come and go, and the cache must not grow with all that ever existed.
    if (containerBytes.size >= 10_000) containerBytes.clear();
    containerBytes.set(containerRid, prefix);
  }
  const bytes = Buffer.allocUnsafe(16);
  prefix.copy(bytes);
  bytes.writeUInt32LE(birth % 0x1_0000_0000, 8);
  bytes.writeUInt32LE(Math.floor(birth / 0x1_0000_0000), 12);
  return encodeRid(bytes);
}

/** The birth in an item's resource id, or undefined when it is not one of this container. */
export function birthOfItemRid(containerRid: string, rid: string): number | undefined {
  if (rid.length !== 24 || !isRid(rid)) return undefined;
  const bytes = decodeRid(rid);
  const birth = bytes.readUInt32LE(12) * 0x1_0000_0000 + bytes.readUInt32LE(8);
  return Number.isSafeInteger(birth) && itemRid(containerRid, birth) === rid ? birth : undefined;
}

/**
 * The rid of one row of a document that gives several: the item's rid followed by the row's number, like an
 * attachment's.
 */
export function rowRid(containerRid: string, birth: number, inside: number): string {
  const bytes = Buffer.alloc(20);
  decodeRid(itemRid(containerRid, birth)).copy(bytes);
  bytes.writeUInt32LE(inside, 16);
  return encodeRid(bytes);
}

/** The birth in an item's rid, or the birth and the number in a row's; undefined when it is not of this container. */
export function placeOfRid(containerRid: string, rid: string): { birth: number; inside?: number } | undefined {
  const bytes = decodeRid(rid);
  const birth = birthOfItemRid(containerRid, encodeRid(bytes.subarray(0, 16)));
  if (birth === undefined) return undefined;
  if (bytes.length === 16) return { birth };
  if (bytes.length !== 20) return undefined;
  return { birth, inside: bytes.readUInt32LE(16) };
}

/**
 * Rids for new databases and containers. Each is a hash of the name and of a number that counts the incarnations of
 * that name. So two creators of one name meet in one stream, and exactly one of them wins.
 */
export function databaseRid(name: string, incarnation: number): string {
  return encodeRid(hash('sha256', `database\n${incarnation}\n${name}`, 'buffer').subarray(0, 4));
}

export function containerRid(ofDatabase: string, name: string, incarnation: number): string {
  const own = hash('sha256', `container\n${ofDatabase}\n${incarnation}\n${name}`, 'buffer').subarray(0, 4);
  // Cosmos DB tells containers from users by the highest bit of the fifth byte.
  own[0] = own[0]! | 0x80;
  return encodeRid(Buffer.concat([decodeRid(ofDatabase), own]));
}

export function userRid(ofDatabase: string, name: string, incarnation: number): string {
  return belowDatabase(ofDatabase, `user\n${ofDatabase}\n${incarnation}\n${name}`);
}

export function clientEncryptionKeyRid(ofDatabase: string, name: string, incarnation: number): string {
  return belowDatabase(ofDatabase, `client encryption key\n${ofDatabase}\n${incarnation}\n${name}`);
}

function belowDatabase(ofDatabase: string, text: string): string {
  const own = hash('sha256', text, 'buffer').subarray(0, 4);
  own[0] = own[0]! & 0x7f;
  return encodeRid(Buffer.concat([decodeRid(ofDatabase), own]));
}

/** The high half of the last byte of 16-byte ids, by kind. Source: `ResourceId` of the .NET client. */
const SCRIPT_BYTES = { 'stored-procedure': 0x80, trigger: 0x70, 'user-defined-function': 0x60 } as const;

export function scriptRid(ofContainer: string, kind: ScriptKind, name: string, incarnation: number): string {
  const own = hash('sha256', `${kind}\n${ofContainer}\n${incarnation}\n${name}`, 'buffer').subarray(0, 8);
  own[7] = (own[7]! & 0x0f) | SCRIPT_BYTES[kind];
  return encodeRid(Buffer.concat([decodeRid(ofContainer), own]));
}

/** A permission's rid: its user's, then its number within the user. */
export const permissionRid = (ofUser: string, birth: number): string => itemRid(ofUser, birth);
