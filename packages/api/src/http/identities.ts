import type * as JoseModule from 'jose';
import type { ExportedJWKSCache, FetchImplementation, JSONWebKeySet, JWTVerifyGetKey } from 'jose';
import { systemClocks } from '@epitaph/core/clock.ts';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import { wait } from '../wait.ts';
import { decodedToken } from './keys.ts';

/**
 * What an identity may do. `reader` and `contributor` are Cosmos DB's built-in data roles: items and the definitions of what
 * they are in, never the making of databases and containers. `administrator` may do what the primary key does, `auditor` what
 * the auditor key does.
 */
export const identityRoles = ['reader', 'contributor', 'auditor', 'administrator'] as const;
export type IdentityRole = (typeof identityRoles)[number];

/** True for a role in the data plane, which may be for a part of the account. */
export const isDataRole = (role: IdentityRole): boolean => role === 'reader' || role === 'contributor';

/** What an assignment is for: the account, a database, or a container, by their names. */
export interface AssignedScope {
  readonly database?: string | undefined;
  readonly container?: string | undefined;
}

/** To a principal, or to all in a group. */
export interface Assignment {
  readonly principal?: string | undefined;
  readonly group?: string | undefined;
  readonly role: IdentityRole;
  readonly scope: AssignedScope;
}

/** Who issues tokens that are taken, and who of those that it names may do what. */
export interface Issuer {
  /** What actors on record begin with. */
  readonly name: string;
  /** Its `iss`. */
  readonly issuer: string;
  /** One of these must be the token's `aud`. */
  readonly audiences: readonly string[];
  /** The claim that names the principal. */
  readonly claim: string;
  /** The claim that lists the groups that the principal is in. */
  readonly groups: string;
  /** Its public keys, or where they are. */
  readonly keys: URL | JSONWebKeySet;
  readonly assignments: readonly Assignment[];
}

/** Whom a token names. */
export interface Principal {
  readonly id: string;
  /** What events carry: the issuer's name and the principal's id. */
  readonly actor: string;
  /** Its own and those of its groups; none where it may do nothing. */
  readonly assignments: readonly Assignment[];
}

export type IdentityVerdict =
  | { readonly ok: true; readonly principal: Principal }
  /** `unavailable`: at the moment it can't be told. Why, as a sentence for whoever sent it. */
  | { readonly ok: false; readonly reason: 'invalid' | 'unavailable'; readonly why: string };

/** Longer ones than identity providers make. */
const MAX_TOKEN_CHARACTERS = 16_384;
/** What an actor on record may be made of. */
export const PRINCIPAL_ID = /^[\x21-\x7e]{1,128}$/;
/** How far the clocks of issuer and server may be apart. */
const CLOCK_TOLERANCE_SECONDS = 60;
/** After so long a token is looked at again: its issuer may have withdrawn the key. */
const REMEMBERED_MS = 5 * 60 * 1000;
const REMEMBERED_TOKENS = 4_096;
const FETCH_TIMEOUT_MS = 5_000;
/**
 * For how long an issuer's keys are gone by that can't be had again: an hour, as in the libraries of Entra ID.
 *
 * @source https://learn.microsoft.com/dotnet/api/microsoft.identitymodel.tokens.baseconfigurationmanager.lastknowngoodlifetime
 */
const LAST_KEYS_MS = 60 * 60 * 1000;
/** Of an issuer that fails, tokens that nobody has signed would else have the keys asked for, each once. */
const ASKED_EVERY_MS = 100;
/** More than issuers have: anybody can have them asked for, and they are held in memory. */
const MAX_KEYS_BYTES = 1024 * 1024;
const TOLD_EVERY_MS = 60_000;

/** Signatures by public keys alone: a secret that both sides had would be one more to lose. */
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
 * Checks the identity tokens (signed JWTs) of Entra ID or any other OpenID Connect provider: by whom they are issued, for
 * whom, until when, and by the issuer's published keys.
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
  /** By their address: those that were had last, and when. */
  readonly #lastKeys = new Map<string, ExportedJWKSCache>();

  private constructor(jose: Jose, nowMs: () => number, onFault: (message: string) => void) {
    this.#jose = jose;
    this.#nowMs = nowMs;
    this.#onFault = onFault;
  }

  /** @param onFault told now and then while an issuer's keys can't be fetched */
  static async of(
    issuers: readonly Issuer[],
    {
      nowMs = systemClocks.wallMs,
      onFault = () => {},
    }: { nowMs?: () => number; onFault?: (message: string) => void } = {},
  ): Promise<Identities> {
    // Of use to few: others' starts don't load it.
    const identities = new Identities(await import('jose'), nowMs, onFault);
    identities.use(issuers);
    return identities;
  }

  /**
   * From now on these issuers and assignments count, for every token that was let in before, too.
   *
   * @throws what says why a set of keys can't be used; then what was in use stays
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
      // Says only whose keys are to be asked for.
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
      if (typeof id !== 'string' || !PRINCIPAL_ID.test(id)) return invalid(`its "${issuer.claim}" names nobody`);
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
      // A key that was had may be one to verify nothing by: cut off, or too short.
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

/** Whether a token is good can't be said. */
class KeysUnavailable extends Error {}

/** What fetches an issuer's keys, for all who wait for them at a time. */
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
      if (bytes > MAX_KEYS_BYTES) throw new Error(`more than ${MAX_KEYS_BYTES} bytes came`);
      chunks.push(chunk);
    }
    return new Response(bytes === 0 ? null : Buffer.concat(chunks), { status: response.status });
  };
}

const KEYS_AWAY =
  "Whether the identity token is valid can't be said: the keys of its issuer can't be had, or can't be used.";

const invalid = (why: string): IdentityVerdict => ({
  ok: false,
  reason: 'invalid',
  why: `The identity token is not valid: ${why}.`,
});

/** The identity token that an authorization header of the data plane holds; undefined for one of another type. */
export function identityTokenIn(authorization: string | undefined): string | undefined {
  const token = decodedToken(authorization, 'aad', 2 * MAX_TOKEN_CHARACTERS);
  return token === undefined ? undefined : /^type=aad&ver=[\d.]+&sig=(.+)$/i.exec(token)?.[1];
}

/** The identity token that is a bearer; undefined for a key, which is never of three parts. */
export function identityTokenOfBearer(header: string | undefined): string | undefined {
  const [, token] = /^bearer +([\w-]+\.[\w-]+\.[\w-]+) *$/i.exec(header?.slice(0, MAX_TOKEN_CHARACTERS) ?? '') ?? [];
  return token;
}
