import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import type { Issuer } from '@epitaph/api/http/identities.ts';
import { NOW_MS } from './client.ts';

export const AUDIENCE = 'api://epitaph';

/** An issuer of identity tokens, like an identity provider: it signs tokens, and publishes the keys to verify them. */
export class TestIssuer {
  readonly #server: Server;
  #key: SigningKey;
  #keys: object[] = [];
  /** How often its keys were fetched. */
  asked = 0;
  /** The answer instead of its keys, if it is at fault. */
  fault: { readonly status: number; readonly text: string } | undefined;

  private constructor(server: Server, key: SigningKey) {
    this.#server = server;
    this.#key = key;
  }

  static async start(): Promise<TestIssuer> {
    const server = createServer((_request, response) => {
      issuer.asked += 1;
      const { status, text } = issuer.fault ?? { status: 200, text: JSON.stringify({ keys: issuer.#keys }) };
      response.writeHead(status, { 'content-type': 'application/json' }).end(text);
    });
    const issuer = new TestIssuer(server, await newKey());
    await issuer.rotate();
    await once(server.listen(0, '127.0.0.1'), 'listening');
    return issuer;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/`;
  }

  get jwks(): string {
    return JSON.stringify({ keys: this.#keys });
  }

  /** From now on signs with another key, and publishes only that one. */
  async rotate(): Promise<void> {
    const { privateKey, publicKey } = await generateKeyPair('RS256');
    this.#key = privateKey;
    this.#keys = [{ ...(await exportJWK(publicKey)), kid: crypto.randomUUID(), alg: 'RS256', use: 'sig' }];
  }

  token(principal: string, claims: Readonly<Record<string, unknown>> = {}, { atMs = NOW_MS } = {}): Promise<string> {
    const nowSeconds = Math.floor(atMs / 1000);
    const payload = {
      iss: this.url,
      aud: AUDIENCE,
      oid: principal,
      iat: nowSeconds,
      exp: nowSeconds + 3600,
      ...claims,
    };
    const { kid } = this.#keys[0] as { kid: string };
    return new SignJWT(payload).setProtectedHeader({ alg: 'RS256', kid }).sign(this.#key);
  }

  as(assignments: Issuer['assignments'], more: Partial<Issuer> = {}): Issuer {
    const claims = { audiences: [AUDIENCE], claim: 'oid', groups: 'groups' };
    return { name: 'entra', issuer: this.url, ...claims, keys: new URL(this.url), assignments, ...more };
  }

  async stop(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

const newKey = async () => (await generateKeyPair('RS256')).privateKey;
type SigningKey = Awaited<ReturnType<typeof newKey>>;

/** The authorization header that clients of Cosmos DB make of an identity token. */
export const identityHeader = (token: string): string => encodeURIComponent(`type=aad&ver=1.0&sig=${token}`);
