import type * as JoseModule from 'jose';
import type { ExportedJWKSCache, FetchImplementation, JSONWebKeySet, JWTVerifyGetKey } from 'jose';
import { systemClocks } from '@epitaph/core/clock.ts';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import { wait } from '../wait.ts';
import { decodedToken } from './keys.ts';

/**
 * What an identity may do. `reader` and `contributor` are Cosmos DB's built-in data roles. They cover items and the
 * definitions of their containers and databases, but never creating databases and containers. `administrator` may do
 * what the primary key does, `auditor` what the auditor key does.
 */
export const identityRoles = ['reader', 'contributor', 'auditor', 'administrator'] as const;
export type IdentityRole = (typeof identityRoles)[number];

/** Whether a role is for the data plane. Such a role may cover a part of the account only. */
export const isDataRole = (role: IdentityRole): boolean => role === 'reader' || role === 'contributor';

/** What an assignment covers: the account, a database, or a container, by name. */
export interface AssignedScope {
  readonly database?: string | undefined;
  readonly container?: string | undefined;
}

/** A role for a principal, or for everyone in a group. */
export interface Assignment {
  readonly principal?: string | undefined;
  readonly group?: string | undefined;
  readonly role: IdentityRole;
  readonly scope: AssignedScope;
}

/** An issuer of tokens that are accepted, and what the principals in its tokens may do. */
export interface Issuer {
  /** The beginning of its principals' actors in events. */
  readonly name: string;
  /** Its `iss`. */
  readonly issuer: string;
  /** One of these must be the token's `aud`. */
  readonly audiences: readonly string[];
  /** The name of the claim with the principal. */
  readonly claim: string;
  /** The name of the claim with the principal's groups. */
  readonly groups: string;
  /** Its public keys, or their URL. */
  readonly keys: URL | JSONWebKeySet;
  readonly assignments: readonly Assignment[];
}

/** The principal that a token names. */
export interface Principal {
  readonly id: string;
  /** The actor in events: the issuer's name and the principal's id. */
  readonly actor: string;
  /** The principal's own assignments and those of its groups; none if it may do nothing. */
  readonly assignments: readonly Assignment[];
}

export type IdentityVerdict =
  | { readonly ok: true; readonly principal: Principal }
  /** `unavailable`: it can't be checked at the moment. `why` is a sentence for the sender. */
  | { readonly ok: false; readonly reason: 'invalid' | 'unavailable'; readonly why: string };

/** More than identity providers' tokens have. */
const MAX_TOKEN_CHARACTERS = 16_384;
/** The ids that may be part of an actor in events. */
export const PRINCIPAL_ID = /^[\x21-\x7e]{1,128}$/;
/** How far the clocks of issuer and server may differ. */
const CLOCK_TOLERANCE_SECONDS = 60;
/** After this time a token is checked again: its issuer may have withdrawn the key. */
const REMEMBERED_MS = 5 * 60 * 1000;
const REMEMBERED_TOKENS = 4_096;
const FETCH_TIMEOUT_MS = 5_000;
/**
 * How long an issuer's last keys are used while they can't be fetched again: an hour, as in the libraries of Entra ID.
 *
 * @source https://learn.microsoft.com/dotnet/api/microsoft.identitymodel.tokens.baseconfigurationmanager.lastknowngoodlifetime
 */
const LAST_KEYS_MS = 60 * 60 * 1000;
/**
 * While an issuer fails, its keys are fetched at most this often. Otherwise each token with an unknown signature would
 * fetch them.
 */
const ASKED_EVERY_MS = 100;
/** More than issuers have. Anyone can cause them to be fetched, and they are held in memory. */
const MAX_KEYS_BYTES = 1024 * 1024;
const TOLD_EVERY_MS = 60_000;

/** Only signatures by public keys: a secret shared by both sides would be one more that can be lost. */
const ALGORITHMS = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'Ed25519',
  'EdDSA',
];

interface Trusted extends Issuer {
  readonly keyOf: JWTVerifyGetKey;
}

interface Remembered {
  readonly principal: Principal;
  readonly untilMs: number;
}

type Jose = Pick<
  typeof JoseModule,
  'jwtVerify' | 'decodeJwt' | 'createRemoteJWKSet' | 'createLocalJWKSet' | 'customFetch' | 'jwksCache' | 'errors'
>;

/**
 * Checks the identity tokens (signed JWTs) of Entra ID or any other OpenID Connect provider: issuer, audience, time,
 * and the signature by one of the issuer's published keys.
 *
 * @source RFC 7519, RFC 7517; Cosmos DB's clients send them as `type=aad&ver=1.0&sig=<token>`
 */
export class Identities {
  readonly #jose: Jose;
  readonly #nowMs: () => number;
  readonly #onFault: (message: string) => void;
  #issuers: ReadonlyMap<string, Trusted> = new Map();
  #remembered = new GenerationCache<string, Remembered>(REMEMBERED_TOKENS);
  #toldAtMs = Number.NEGATIVE_INFINITY;
  /** By the URL of the keys: the last ones fetched, and when. */
  readonly #lastKeys = new Map<string, ExportedJWKSCache>();

  private constructor(jose: Jose, nowMs: () => number, onFault: (message: string) => void) {
    this.#jose = jose;
    this.#nowMs = nowMs;
    this.#onFault = onFault;
  }

  /** @param onFault called now and then while an issuer's keys can't be fetched */
  static async of(
    issuers: readonly Issuer[],
    {
      nowMs = systemClocks.wallMs,
      onFault = () => {},
    }: { nowMs?: () => number; onFault?: (message: string) => void } = {},
  ): Promise<Identities> {
    // Loaded only here, because few servers need it.
    const identities = new Identities(await import('jose'), nowMs, onFault);
    identities.use(issuers);
    return identities;
  }

  /**
   * From now on uses these issuers and assignments, also for every token that was let in before.
   *
   * @throws an error that says why a set of keys can't be used; then the former ones stay in use
   */
  use(issuers: readonly Issuer[]): void {
    this.#issuers = new Map(issuers.map((issuer) => [issuer.issuer, { ...issuer, keyOf: this.#keysOf(issuer) }]));
    this.#remembered = new GenerationCache(REMEMBERED_TOKENS);
  }

  async verify(token: string): Promise<IdentityVerdict> {
    const nowMs = this.#nowMs();
    const known = this.#remembered.get(token);
    if (known !== undefined && nowMs < known.untilMs) return { ok: true, principal: known.principal };
    const { decodeJwt, jwtVerify, errors } = this.#jose;
    const remembered = this.#remembered;
    let issuer: Trusted | undefined;
    try {
      if (token.length > MAX_TOKEN_CHARACTERS) return invalid('it is too long');
      // This only selects whose keys are needed; nothing of the token is trusted yet.
      issuer = this.#issuers.get(decodeJwt(token).iss ?? '');
      if (issuer === undefined) return invalid('its issuer ("iss") is not one that this store knows');
      const { payload } = await jwtVerify(token, issuer.keyOf, {
        issuer: issuer.issuer,
        audience: [...issuer.audiences],
        algorithms: ALGORITHMS,
        requiredClaims: ['exp', issuer.claim],
        clockTolerance: CLOCK_TOLERANCE_SECONDS,
        currentDate: new Date(nowMs),
      });
      const id = payload[issuer.claim];
      if (typeof id !== 'string' || !PRINCIPAL_ID.test(id))
        return invalid(`its claim "${issuer.claim}" names no principal`);
      const groups = payload[issuer.groups];
      const assignments = issuer.assignments.filter(({ principal, group }) =>
        group === undefined ? principal === id : Array.isArray(groups) && groups.includes(group),
      );
      const principal: Principal = { id, actor: `${issuer.name}:${id}`, assignments };
      remembered.set(token, { principal, untilMs: Math.min(payload.exp! * 1000, nowMs + REMEMBERED_MS) });
      return { ok: true, principal };
    } catch (error) {
      if (error instanceof errors.JOSEError) return invalid(error.message);
      const { message } = error as Error;
      // A key that was fetched may be unusable: cut off, or too short.
      this.#tell(error instanceof KeysUnavailable ? message : `a key of ${issuer?.name} can't be used: ${message}`);
      return { ok: false, reason: 'unavailable', why: KEYS_AWAY };
    }
  }

  #keysOf({ name, keys }: Issuer): JWTVerifyGetKey {
    const { createLocalJWKSet, createRemoteJWKSet, customFetch, jwksCache, errors } = this.#jose;
    if (!(keys instanceof URL)) return createLocalJWKSet(keys);
    const fetched: Partial<ExportedJWKSCache> = {};
    const options = { timeoutDuration: FETCH_TIMEOUT_MS, [customFetch]: keysFetch(), [jwksCache]: fetched };
    const find = createRemoteJWKSet(keys, options);
    return async (header, token) => {
      try {
        const key = await find(header, token);
        this.#lastKeys.set(keys.href, fetched as ExportedJWKSCache);
        return key;
      } catch (error) {
        const isOfToken = [errors.JWKSNoMatchingKey, errors.JWKSMultipleMatchingKeys, errors.JOSENotSupported];
        if (isOfToken.some((kind) => error instanceof kind)) throw error;
        const last = this.#lastKeys.get(keys.href);
        const isRecent = last !== undefined && this.#nowMs() - last.uat < LAST_KEYS_MS;
        const known = isRecent ? await createLocalJWKSet(last.jwks)(header, token).catch(() => undefined) : undefined;
        const why = `the keys of ${name} can't be fetched from ${keys.href}: ${(error as Error).message}`;
        if (known === undefined) throw new KeysUnavailable(why);
        this.#tell(why);
        return known;
      }
    };
  }

  #tell(fault: string): void {
    const nowMs = this.#nowMs();
    if (nowMs - this.#toldAtMs < TOLD_EVERY_MS) return;
    this.#toldAtMs = nowMs;
    this.#onFault(fault);
  }
}

/** Thrown when a token can't be checked. */
class KeysUnavailable extends Error {}

/** Fetches an issuer's keys, once for all requests that wait for them at the same time. */
function keysFetch(): FetchImplementation {
  let askedAtMs = Number.NEGATIVE_INFINITY;
  return async (url, options) => {
    const pauseMs = askedAtMs + ASKED_EVERY_MS - systemClocks.monotonicMs();
    if (pauseMs > 0) await wait(pauseMs, options.signal);
    askedAtMs = systemClocks.monotonicMs();
    const response = await fetch(url, options);
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of response.body ?? []) {
      bytes += chunk.length;
      if (bytes > MAX_KEYS_BYTES) throw new Error(`the response has more than ${MAX_KEYS_BYTES} bytes`);
      chunks.push(chunk);
    }
    return new Response(bytes === 0 ? null : Buffer.concat(chunks), { status: response.status });
  };
}

const KEYS_AWAY = "The identity token can't be checked: the keys of its issuer can't be fetched, or can't be used.";

const invalid = (why: string): IdentityVerdict => ({
  ok: false,
  reason: 'invalid',
  why: `The identity token is not valid: ${why}.`,
});

/** The identity token in an authorization header of the data plane; undefined for a header of another type. */
export function identityTokenIn(authorization: string | undefined): string | undefined {
  const token = decodedToken(authorization, 'aad', 2 * MAX_TOKEN_CHARACTERS);
  return token === undefined ? undefined : /^type=aad&ver=[\d.]+&sig=(.+)$/i.exec(token)?.[1];
}

/** The identity token of a bearer header; undefined for a key, which never has three parts. */
export function identityTokenOfBearer(header: string | undefined): string | undefined {
  const [, token] = /^bearer +([\w-]+\.[\w-]+\.[\w-]+) *$/i.exec(header?.slice(0, MAX_TOKEN_CHARACTERS) ?? '') ?? [];
  return token;
}
