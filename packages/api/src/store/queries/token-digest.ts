import { hash } from 'node:crypto';

/**
 * Characters from an alphabet of 64: enough that no two keys of a container, or orders that a client asks for, are the
 * same.
 */
const CHARACTERS = 8;

/**
 * Takes the place of a text that does not fit into a continuation token. Tokens outlive versions, so this must not
 * change.
 */
export const tokenDigest = (text: string): string => hash('sha256', text, 'base64url').slice(0, CHARACTERS);
