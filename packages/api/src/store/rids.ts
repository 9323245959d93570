import { hash } from 'node:crypto';
import { decodeRid, encodeRid } from '../cosmos/rids.ts';

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
