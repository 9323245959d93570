import { hash } from 'node:crypto';
import { decodeRid, encodeRid, itemRid } from '../cosmos/rids.ts';

/**
 * Rids for new databases and containers. Each is a hash of the name and of a number that counts the incarnations
 * of that name, so that two creators of one name meet in one stream and exactly one of them wins.
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

/** A permission's rid: its user's, then its number within the user. */
export const permissionRid = (ofUser: string, birth: number): string => itemRid(ofUser, birth);
