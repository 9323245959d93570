import { createHmac, createSecretKey, timingSafeEqual, type KeyObject } from 'node:crypto';
import { z } from 'zod';
import { allowsWrites } from '@epitaph/core/user/events.ts';
import type { TokenSigner, TokenVerdict } from '../api/users-api.ts';
import type { StoreParts } from '../parts.ts';
import { permissionRid } from '../rids.ts';

/** The signed payload: the user, the permission, the permission's etag, and when the token ends, in Unix seconds. */
const payloadSchema = z.tuple([z.string(), z.int(), z.string(), z.int()]);

interface SignedToken {
  readonly signature: Buffer;
  readonly payload: string;
  readonly facts: z.infer<typeof payloadSchema>;
}

const TOKEN = /^type=resource&ver=1&sig=([A-Za-z0-9+/]{43}=);([A-Za-z0-9_-]{1,400});$/;

/**
 * Resource tokens. A token names its permission and the etag that this had, so the store keeps nothing about tokens.
 * The signature shows that the store made it. It ends with its time, or when the permission is replaced or deleted, or
 * its user, database or container is deleted. The secret belongs to the database and is kept in the vault.
 */
export class ResourceTokens {
  readonly #parts: StoreParts;
  readonly #secrets = new Map<string, Promise<KeyObject>>();

  constructor(parts: StoreParts) {
    this.#parts = parts;
    parts.ports.vault.onConnectionLost?.(() => this.#secrets.clear());
  }

  async signer(databaseRid: string): Promise<TokenSigner> {
    const secret = await this.#secret(databaseRid);
    const nowSeconds = Math.floor(this.#parts.ports.clock.now() / 1000);
    return (user, permission, lifetimeSeconds) => {
      const facts = [user.rid, permission.birth, permission.etag.slice(1, -1), nowSeconds + lifetimeSeconds];
      const payload = Buffer.from(JSON.stringify(facts)).toString('base64url');
      return `type=resource&ver=1&sig=${signatureOf(secret, payload).toString('base64')};${payload};`;
    };
  }

  /** Checks a token. Signatures are compared in constant time. */
  async verify(token: string): Promise<TokenVerdict> {
    const [, signature, payload] = TOKEN.exec(token) ?? [];
    const facts = payload === undefined ? undefined : readPayload(payload);
    if (signature === undefined || payload === undefined || facts === undefined) return refused('malformed');
    const signed = { signature: Buffer.from(signature, 'base64'), payload, facts };
    // A token that another node has revoked must not be valid here, and one that it has issued since must be.
    await this.#parts.confirmCatalog();
    const verdict = await this.#check(signed);
    if (verdict.ok || verdict.reason !== 'revoked' || this.#parts.ports.nodes === undefined) return verdict;
    await this.#parts.confirmCatalog(0);
    return this.#check(signed);
  }

  async #check({ signature, payload, facts }: SignedToken): Promise<TokenVerdict> {
    const [userRid, birth, etag, expiresAt] = facts;
    const { catalog, ports } = this.#parts;
    const user = catalog.entry('user', userRid)?.state;
    const database = user === undefined ? undefined : catalog.databaseByRid(user.databaseRid);
    const permission = user?.permissions.find((each) => each.birth === birth);
    // It is unknown, or not known any more, whose secret to check the token with. Rids come from names, which a
    // stranger may guess, but etags can't be guessed. So a caller that was never shown a permission can't make the
    // vault create a secret, nor learn from the time of the answer which users exist.
    if (user === undefined || database?.status !== 'live' || permission?.etag !== `"${etag}"`)
      return refused('revoked');
    const expected = signatureOf(await this.#secret(user.databaseRid), payload);
    if (!timingSafeEqual(expected, signature)) return refused('wrong-signature');
    if (ports.clock.now() >= expiresAt * 1000) return refused('expired');
    const container = catalog.containerByRid(permission.target.containerRid)?.state;
    if (container === undefined || catalog.goneAtMs(container) !== null) return refused('revoked');
    return {
      ok: true,
      grant: {
        actor: `token:${permissionRid(userRid, birth)}`,
        databaseRid: user.databaseRid,
        target: permission.target,
        writes: allowsWrites(permission),
      },
    };
  }

  /** The database's secret. The vault is asked for it once. */
  #secret(databaseRid: string): Promise<KeyObject> {
    let secret = this.#secrets.get(databaseRid);
    if (secret === undefined) {
      secret = this.#parts.ports.vault.containerSecret(databaseRid).then((bytes) => createSecretKey(bytes));
      // After a failure the vault is asked again.
      secret.catch(() => this.#secrets.delete(databaseRid));
      if (this.#secrets.size >= 1_000) this.#secrets.clear();
      this.#secrets.set(databaseRid, secret);
    }
    return secret;
  }
}

const refused = (reason: Extract<TokenVerdict, { ok: false }>['reason']): TokenVerdict => ({ ok: false, reason });

const signatureOf = (secret: KeyObject, payload: string): Buffer =>
  createHmac('sha256', secret).update(`resource\n1\n${payload}`).digest();

function readPayload(payload: string): z.infer<typeof payloadSchema> | undefined {
  try {
    return payloadSchema.safeParse(JSON.parse(Buffer.from(payload, 'base64url').toString())).data;
  } catch {
    return undefined;
  }
}
