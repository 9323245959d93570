import { createHash, timingSafeEqual } from 'node:crypto';
import { systemClocks } from '@epitaph/core/clock.ts';
import { Hmac } from './hmac.ts';
import { parseHttpDate } from './http-date.ts';

/** The key that Microsoft publishes for its local emulator. It is no secret: the store accepts it on loopback only. */
export const EMULATOR_KEY = 'C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==';

/**
 * How far a signed request's date may differ from the server's, in either direction. Source: Cosmos DB, "Access
 * control".
 */
export const DATE_WINDOW_MS = 15 * 60 * 1000;

/** The keys of a store, as base64 text. A kind that is left out does not exist. */
export interface KeyTexts {
  readonly primary: string;
  readonly secondary?: string | undefined;
  readonly readOnly?: string | undefined;
  readonly auditor?: string | undefined;
}

/** What a key allows its holder: `write` everything, `read` all reads, `audit` the history without any content. */
export type KeyRole = 'write' | 'read' | 'audit';

export interface Holder {
  readonly role: KeyRole;
  /** The actor in events: `key:primary`, `key:secondary`, `key:read-only`, `key:auditor`. */
  readonly actor: string;
}

/** What a signature covers; source: Cosmos DB, "Access control", and the clients themselves. */
export interface SignedRequest {
  readonly authorization: string | undefined;
  readonly verb: string;
  readonly resourceType: string;
  /** The decoded link of the resource, or of its parent for a create, list or query, with its case kept. */
  readonly resourceLink: string;
  /** Other forms of the link that clients sign for the same request. They are tried only after the first. */
  readonly otherLinks?: () => readonly string[];
  /** `x-ms-date`. If a client can't set it, `date` is used. */
  readonly msDate: string | undefined;
  readonly date: string | undefined;
}

export type SignatureVerdict =
  | { readonly ok: true; readonly holder: Holder }
  | { readonly ok: false; readonly reason: 'missing' | 'malformed' | 'unsupported' | 'no-date' }
  | { readonly ok: false; readonly reason: 'date-outside-window'; readonly dateMs: number; readonly nowMs: number }
  | { readonly ok: false; readonly reason: 'wrong-signature'; readonly payload: string };

interface Key {
  readonly holder: Holder;
  readonly hmac: Hmac;
  /** Digest of the key's text. Bearer keys are compared by digests, which have one length whatever was sent. */
  readonly digest: Buffer;
}

/** All keys of a store, ready to check requests. Never returns a key. */
export class KeyRing {
  readonly #keys: readonly Key[];
  readonly #nowMs: () => number;
  readonly #storeMs: () => number;
  #lastDate: { readonly text: string; readonly ms: number | undefined } = { text: '', ms: undefined };

  /**
   * @param storeMs the store's own time, which goes on steadily when the system's clock has jumped: dates may be near
   *   either
   * @throws RangeError for a key that is not base64 of at least 32 bytes
   */
  constructor(texts: KeyTexts, nowMs: () => number = systemClocks.wallMs, storeMs = nowMs) {
    this.#nowMs = nowMs;
    this.#storeMs = storeMs;
    const kinds = [
      ['key:primary', 'write', texts.primary],
      ['key:secondary', 'write', texts.secondary],
      ['key:read-only', 'read', texts.readOnly],
      ['key:auditor', 'audit', texts.auditor],
    ] as const;
    this.#keys = kinds.flatMap(([actor, role, text]) => (text === undefined ? [] : [readKey(actor, role, text)]));
  }

  /**
   * Checks `type=master&ver=1.0&sig=…` as the data plane's clients send it. The date is checked first. Then the
   * signature is compared with each key's in constant time.
   */
  verifyMasterSignature(request: SignedRequest): SignatureVerdict {
    if (request.authorization === undefined || request.authorization === '') return { ok: false, reason: 'missing' };
    const token = readMasterToken(request.authorization);
    if (typeof token === 'string') return { ok: false, reason: token };
    const date = request.msDate ?? request.date;
    const dateMs = date === undefined ? undefined : this.#parseDate(date);
    if (date === undefined || dateMs === undefined) return { ok: false, reason: 'no-date' };
    const isNear = (nowMs: number) => Math.abs(nowMs - dateMs) <= DATE_WINDOW_MS;
    const nowMs = this.#nowMs();
    if (!isNear(nowMs) && !isNear(this.#storeMs())) return { ok: false, reason: 'date-outside-window', dateMs, nowMs };
    const tail = request.msDate === undefined ? `\n\n${date.toLowerCase()}\n` : `\n${date.toLowerCase()}\n\n`;
    const head = `${request.verb.toLowerCase()}\n${request.resourceType.toLowerCase()}\n`;
    const first = `${head}${request.resourceLink}${tail}`;
    const holder =
      this.#signerOf(first, token.signature) ??
      request
        .otherLinks?.()
        .reduce<Holder | undefined>(
          (found, link) => found ?? this.#signerOf(`${head}${link}${tail}`, token.signature),
          undefined,
        );
    if (holder !== undefined) return { ok: true, holder };
    return { ok: false, reason: 'wrong-signature', payload: first };
  }

  /** The holder of the key that signed a text, if there is one. Signatures are compared in constant time. */
  #signerOf(text: string, signature: Buffer): Holder | undefined {
    const signer = this.#keys.find(({ hmac }) => timingSafeEqual(hmac.sign(text), signature));
    return signer?.holder;
  }

  /** Remembers the last date, because under load thousands of requests have the same second. */
  #parseDate(text: string): number | undefined {
    if (text !== this.#lastDate.text) this.#lastDate = { text, ms: parseHttpDate(text) };
    return this.#lastDate.ms;
  }

  /** Checks `Bearer <key>` as the management plane's clients send it. */
  verifyBearer(header: string | undefined): Holder | undefined {
    if (header === undefined || header.slice(0, 7).toLowerCase() !== 'bearer ') return undefined;
    const given = digestOf(header.slice(7).trim());
    let found: Holder | undefined;
    for (const { digest, holder } of this.#keys) {
      if (timingSafeEqual(digest, given)) found ??= holder;
    }
    return found;
  }
}

/** The resource token in an authorization header; undefined for a header of another type. */
export const resourceTokenIn = (authorization: string | undefined): string | undefined =>
  decodedToken(authorization, 'resource', 4096);

/**
 * An authorization header of one type, decoded. Undefined for another type, or if it is too long or can't be decoded.
 */
export function decodedToken(
  authorization: string | undefined,
  type: 'resource' | 'aad',
  maxCharacters: number,
): string | undefined {
  if (authorization === undefined || authorization.length > maxCharacters) return undefined;
  if (!TYPES[type].test(authorization)) return undefined;
  try {
    return decodeURIComponent(authorization);
  } catch {
    return undefined;
  }
}

const TYPES = { resource: /^type(?:=|%3d)resource/i, aad: /^type(?:=|%3d)aad/i };

function readKey(actor: string, role: KeyRole, text: string): Key {
  const bytes = Buffer.from(text, 'base64');
  if (bytes.length < 32 || bytes.toString('base64') !== text) {
    throw new RangeError(`${actor} is not base64 text of at least 32 bytes`);
  }
  return { holder: { actor, role }, hmac: new Hmac(bytes), digest: digestOf(text) };
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

function readMasterToken(authorization: string): { readonly signature: Buffer } | 'malformed' | 'unsupported' {
  if (authorization.length > 4096) return 'malformed';
  let text: string;
  try {
    text = decodeURIComponent(authorization);
  } catch {
    return 'malformed';
  }
  const start = 'type=master&ver=1.0&sig=';
  if (!text.startsWith(start)) {
    return text.startsWith('type=aad&') || text.startsWith('type=sas&') ? 'unsupported' : 'malformed';
  }
  // 32 bytes are 44 characters. Without this check, whatever followed them would be ignored.
  if (text.length !== start.length + 44) return 'malformed';
  const signature = Buffer.from(text.slice(start.length), 'base64');
  return signature.length === 32 ? { signature } : 'malformed';
}
