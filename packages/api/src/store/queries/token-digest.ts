import { hash } from 'node:crypto';

/** Of 64 symbols: enough that no two keys of a container, or orders that somebody asks for, have the same. */
const CHARACTERS = 8;

/** What stands in a continuation token for a text that does not fit into it. Tokens outlive versions: it stays as it is. */
export const tokenDigest = (text: string): string => hash('sha256', text, 'base64url').slice(0, CHARACTERS);
