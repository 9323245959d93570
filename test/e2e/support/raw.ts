import { createHmac } from 'node:crypto';
import { request } from 'node:http';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';

export interface RawCall {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
  readonly key?: string;
  /** The date that is signed and sent. */
  readonly dateMs?: number;
  /** What is signed, if the target does not determine it. */
  readonly signed?: { readonly type: string; readonly link: string };
  /** Sent instead of the signature. With null, the header is left out. */
  readonly authorization?: string | null;
}

export interface RawReply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
  /** Undefined if the body is not a JSON object. */
  readonly json: Readonly<Record<string, unknown>> | undefined;
}

/** The authorization header that clients send. */
export function signature(verb: string, type: string, link: string, date: string, key: string): string {
  const text = `${verb.toLowerCase()}\n${type.toLowerCase()}\n${link}\n${date.toLowerCase()}\n\n`;
  const sig = createHmac('sha256', Buffer.from(key, 'base64')).update(text).digest('base64');
  return encodeURIComponent(`type=master&ver=1.0&sig=${sig}`);
}

/** Sends a signed request. The target is sent exactly as given. */
export function raw(endpoint: string, method: string, target: string, call: RawCall = {}): Promise<RawReply> {
  const date = new Date(call.dateMs ?? Date.now()).toUTCString();
  const { type, link } = call.signed ?? signedParts(target);
  const authorization =
    call.authorization === undefined
      ? signature(method, type, link, date, call.key ?? EMULATOR_KEY)
      : call.authorization;
  const { hostname, port } = new URL(endpoint);
  const headers: Record<string, string | number> = {
    'x-ms-date': date,
    'x-ms-version': '2020-07-15',
    ...(call.body === undefined
      ? {}
      : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(call.body) }),
    ...(authorization === null ? {} : { authorization }),
    ...call.headers,
  };
  return new Promise((resolve, reject) => {
    const outgoing = request({ hostname, port, method, path: target, headers }, (incoming) => {
      const chunks: Buffer[] = [];
      incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
      incoming.on('error', reject);
      incoming.on('end', () => {
        const text = Buffer.concat(chunks).toString();
        resolve({ status: incoming.statusCode ?? 0, headers: incoming.headers, text, json: objectOf(text) });
      });
    });
    outgoing.on('error', reject);
    outgoing.end(call.body);
  });
}

function objectOf(text: string): RawReply['json'] {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : undefined;
  } catch {
    return undefined;
  }
}

function signedParts(target: string): { readonly type: string; readonly link: string } {
  const segments = target
    .split('/')
    .filter((segment) => segment !== '')
    .map(decodeOrLeave);
  if (segments.length === 0) return { type: '', link: '' };
  return segments.length % 2 === 1
    ? { type: segments.at(-1)!, link: segments.slice(0, -1).join('/') }
    : { type: segments.at(-2)!, link: segments.join('/') };
}

function decodeOrLeave(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** The partition key header of a request. */
export const keyHeader = (...components: readonly unknown[]): Readonly<Record<string, string>> => ({
  'x-ms-documentdb-partitionkey': JSON.stringify(components).replaceAll(
    /[\u007F-\uFFFF]/g,
    (character) => String.raw`\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  ),
});
