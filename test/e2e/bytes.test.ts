import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { otherHostsRefused } from '@epitaph/api/cli/loopback-guard.ts';
import { EMULATOR_KEY, KeyRing } from '@epitaph/api/http/keys.ts';
import { buildServer } from '@epitaph/api/http/server.ts';
import { registerManagement } from '@epitaph/api/management/plugin.ts';
import { sendProblem } from '@epitaph/api/management/send-problem.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { whyWithout } from '../support/programs.ts';
import { selfSigned } from '../support/self-signed.ts';
import { signature } from './support/raw.ts';

/** An answer on a connection. There must be nothing between answers: a client would take it for the answer to its next request. */
interface Answered {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

/** @param heads the number of HEAD requests at the beginning. Their answers have no body, whatever length they state */
function answersIn(text: string, heads: number): Answered[] {
  const answers: Answered[] = [];
  for (let rest = text; rest !== '';) {
    const end = rest.indexOf('\r\n\r\n');
    const [first, ...lines] = rest.slice(0, end).split('\r\n');
    expect(first).toMatch(/^HTTP\/1\.1 \d{3} /);
    const status = Number(first!.slice(9, 12));
    const headers = new Map<string, string>();
    for (const line of lines) {
      const [, name, value] = /^([!-9;-~]+): ([\t -~]*)$/.exec(line) ?? [];
      expect(name, line).toBeDefined();
      expect(headers.has(name!.toLowerCase()), line).toBe(false);
      headers.set(name!.toLowerCase(), value!);
    }
    rest = rest.slice(end + 4);
    if (status === 100) continue;
    const hasBody = answers.length >= heads && status !== 204 && status !== 304;
    if (hasBody) expect(headers.get('content-length')).toMatch(/^\d+$/);
    else if (status < 400) expect(headers.has('content-length')).toBe(false);
    const length = hasBody ? Number(headers.get('content-length')) : 0;
    expect(rest.length).toBeGreaterThanOrEqual(length);
    answers.push({ status, headers, body: rest.slice(0, length) });
    rest = rest.slice(length);
  }
  return answers;
}

/** The messages for bytes that are not a request. */
const NO_REQUEST = /"The (?:request could not be read as HTTP|headers of the request are too large)\./;
const date = new Date().toUTCString();
const DOCS = '/dbs/shop/colls/orders/docs';
const HOST = 'host: localhost\r\n';

interface Sent {
  readonly headers?: string;
  readonly body?: string;
  readonly host?: string;
  readonly signed?: readonly [type: string, link: string];
}

/** A request, signed for its target. */
function ask(method: string, target: string, { headers = '', body, host = HOST, signed }: Sent = {}): string {
  const parts = target.split('/').filter((part) => part !== '');
  const [type, link] =
    signed ??
    (parts.length % 2 === 1 ? [parts.at(-1)!, parts.slice(0, -1).join('/')] : [parts.at(-2) ?? '', parts.join('/')]);
  const authorization = signature(method, type, link, date, EMULATOR_KEY);
  const length = body === undefined ? '' : `content-length: ${body.length}\r\n`;
  return `${method} ${target} HTTP/1.1\r\n${host}x-ms-date: ${date}\r\nauthorization: ${authorization}\r\n${headers}${length}\r\n${body ?? ''}`;
}

const ANN = 'x-ms-documentdb-partitionkey: ["ann"]\r\n';
const UPSERT = 'x-ms-documentdb-is-upsert: true\r\n';
const upsert = (id: string, headers = '') =>
  ask('POST', DOCS, { headers: UPSERT + headers, body: `{"id":"${id}","customer":"ann"}` });
const withLength = (length: string) =>
  `${ask('POST', DOCS, { headers: `${UPSERT}content-length: ${length}\r\n` })}hello`;
const withCoding = (coding: string, body: string) =>
  ask('POST', DOCS, { headers: `${UPSERT}transfer-encoding: ${coding}\r\n` }) + body;
const CHUNKED = '1c\r\n{"id":"ch","customer":"ann"}\r\n0\r\n\r\n';
/** A body that would be another request if it were not a body. */
const SMUGGLED = ask('DELETE', `${DOCS}/there`, { headers: ANN });
const unsigned = (method: string, target: string, rest = '') => `${method} ${target} HTTP/1.1\r\n${HOST}${rest}\r\n`;

/**
 * What is sent, and the status of the answer to each request in it. Another request follows, which is answered unless the connection ends
 * first.
 */
const cases: readonly (readonly [name: string, sent: string, statuses: readonly number[], ends?: 'ends'])[] = [
  ['a read', ask('GET', '/dbs'), [200]],
  ['a read with a body', ask('GET', '/dbs', { body: SMUGGLED }), [200]],
  [
    'a read with a body in chunks',
    `${ask('GET', '/dbs', { headers: 'transfer-encoding: chunked\r\n' })}${CHUNKED}`,
    [200],
  ],
  ['a deletion with a body', ask('DELETE', `${DOCS}/none`, { headers: ANN, body: SMUGGLED }), [404]],
  ['a method whose body has no meaning', ask('HEAD', '/dbs', { body: SMUGGLED }), [405]],
  ['a write', upsert('1'), [201]],
  [
    'a write of text that is not ASCII',
    ask('POST', DOCS, { headers: UPSERT, body: Buffer.from('{"id":"ü€😀","customer":"é"}').toString('latin1') }),
    [201],
  ],
  ['a write in chunks', withCoding('chunked', CHUNKED), [201]],
  ['an unauthorized body', unsigned('POST', DOCS, `content-length: ${SMUGGLED.length}\r\n`) + SMUGGLED, [401]],
  ['an unauthorized body in chunks', unsigned('POST', DOCS, 'transfer-encoding: chunked\r\n') + CHUNKED, [401]],
  [
    'a body that is too large between others',
    upsert('2') + ask('POST', DOCS, { body: 'x'.repeat(5_000_000) }) + upsert('2'),
    [201, 413, 200],
  ],
  ['an answer without a body', ask('GET', `${DOCS}/there`, { headers: `${ANN}if-none-match: *\r\n` }), [304]],
  ['another answer without a body', upsert('gone') + ask('DELETE', `${DOCS}/gone`, { headers: ANN }), [201, 204]],
  ['HEAD', ask('HEAD', '/') + ask('HEAD', `${DOCS}/there`, { headers: ANN }), [405, 405]],
  ['an expectation', upsert('3', 'expect: 100-continue\r\n'), [201]],
  [
    'an unauthorized expectation',
    unsigned('POST', DOCS, `expect: 100-continue\r\ncontent-length: 5\r\n`) + 'hello',
    [401],
  ],
  ['an unknown expectation', upsert('4', 'expect: tea\r\n'), [201]],

  // Two parsers could see different requests in one of these.
  [
    'a length and chunks',
    ask('POST', DOCS, { headers: 'content-length: 4\r\ntransfer-encoding: chunked\r\n' }) + CHUNKED,
    [400],
    'ends',
  ],
  [
    'chunks and a length',
    ask('POST', DOCS, { headers: 'transfer-encoding: chunked\r\ncontent-length: 4\r\n' }) + CHUNKED,
    [400],
    'ends',
  ],
  [
    'two lengths',
    ask('POST', DOCS, { headers: 'content-length: 4\r\ncontent-length: 5\r\n' }) + 'hello',
    [400],
    'ends',
  ],
  ...['+5', '-1', '0x5', '5, 5', '', '1e3', '5.0', '99999999999999999999999'].map(
    (length) => [`the length "${length}"`, withLength(length), [400], 'ends'] as const,
  ),
  ['a length beyond the limit', withLength('9007199254740993'), [413], 'ends'],
  ...['gzip', 'chunked, gzip', 'identity', 'xchunked', 'chunked\r\ntransfer-encoding: chunked'].map(
    (coding) => [`the coding "${coding}"`, withCoding(coding, CHUNKED), [400], 'ends'] as const,
  ),
  ['a chunk with an invalid length', withCoding('chunked', 'z\r\n{}\r\n0\r\n\r\n'), [400], 'ends'],
  ['a chunk that is longer than it says', withCoding('chunked', '1\r\n{}\r\n0\r\n\r\n'), [400], 'ends'],
  ['a blank before a colon', ask('POST', DOCS, { headers: 'content-length : 5\r\n' }) + 'hello', [400], 'ends'],
  ['a header on two lines', ask('GET', '/dbs', { headers: 'x-a: b\r\n c\r\n' }), [400], 'ends'],
  ['lines that end with LF alone', ask('GET', '/dbs').replaceAll('\r', ''), [400], 'ends'],
  ['a header with a zero', ask('GET', '/dbs', { headers: 'x-ms-version: a\0\r\n' }), [400], 'ends'],
  [
    'a header with bytes that are not text',
    ask('GET', '/dbs', { headers: 'x-ms-version: \u00E9\u00FF\r\nx-ms-activity-id: \u00FF\r\n' }),
    [200],
  ],
  ['headers without end', ask('GET', '/dbs', { headers: 'a: b\r\n'.repeat(6_000) }), [431], 'ends'],
  ['two keys', ask('GET', `${DOCS}/there`, { headers: `${ANN}x-ms-documentdb-partitionkey: ["bob"]\r\n` }), [400]],
  ['two dates', ask('GET', '/dbs', { headers: `x-ms-date: ${date}\r\n` }), [401]],

  ['a method in small letters', ask('get', '/dbs'), [400], 'ends'],
  ['an unknown method', ask('FOO', '/dbs'), [400], 'ends'],
  ...['PROPFIND', 'TRACE', 'QUERY', 'OPTIONS', 'PUT'].map((method) => [method, ask(method, '/dbs'), [405]] as const),
  ['CONNECT', 'CONNECT localhost:1 HTTP/1.1\r\nhost: localhost\r\n\r\n', [], 'ends'],
  ['an unknown version', ask('GET', '/dbs').replace('1.1', '1.2'), [400], 'ends'],
  [
    'more after the end of the connection',
    ask('GET', '/dbs', { headers: 'connection: close\r\n' }) + SMUGGLED,
    [200],
    'ends',
  ],

  // A proxy that guards one plane by the target must see the same plane as the router.
  ['a whole URL', ask('GET', '/dbs').replace('/dbs', 'http://other.example/dbs'), [200]],
  ...[
    'http://localhost/_epitaph/purge',
    '//_epitaph/purge',
    '/dbs/../_epitaph/purge',
    '/dbs/%2e%2e/_epitaph/purge',
    '/_EPITAPH/purge',
    '/%5fepitaph/purge',
    '/_epitaph%2fpurge',
    '/_epitaphs',
    '/_epitaph;/purge',
    '/_epitaph#/purge',
    '*',
  ].map((target) => [`${target} is of the data plane`, unsigned('GET', target), [401]] as const),
  ...[
    '/_epitaph',
    '/_epitaph?',
    '/_epitaph/../dbs',
    '/_epitaph/health/../purge',
    '/_epitaph/health/%2e%2e/purge',
    '/_epitaph//purge',
    '/_epitaph/%00',
    '/_epitaph/healthy',
  ].map((target) => [`${target} is of the management plane`, unsigned('GET', target), [401]] as const),
  ['a management target that is not a URI', unsigned('GET', '/_epitaph/%zz'), [400]],
  ['a target that is not a URI', unsigned('GET', '/dbs/%zz'), [400]],
  ['a target with a blank', unsigned('GET', '/dbs/a b'), [400], 'ends'],
  ['a target of 20,000 characters', unsigned('GET', `/${'a'.repeat(20_000)}`), [414]],

  // While the key is the one that everybody knows, only hosts that name this machine are answered.
  ...[
    'other.example',
    '',
    'localhost.other.example',
    'localhost:80@other.example',
    'localhost, other.example',
    '0x7f.1',
    '0.0.0.0',
    '[::]',
  ].flatMap(
    (host) =>
      [
        [`the host "${host}"`, ask('GET', '/', { host: `host: ${host}\r\n` }), [403]],
        [
          `the host "${host}" of the management plane`,
          `GET /_epitaph/health/live HTTP/1.1\r\nhost: ${host}\r\n\r\n`,
          [403],
        ],
      ] as const,
  ),
  ...['LOCALHOST:1', '127.1.2.3', '[::1]:80', 'shop.localhost'].map(
    (host) => [`the host "${host}"`, ask('GET', '/', { host: `host: ${host}\r\n` }), [200]] as const,
  ),
  ['two hosts, of which the first counts', ask('GET', '/', { host: `host: other.example\r\n${HOST}` }), [403]],
];

const openssl = whyWithout('openssl');

describe('each request in the bytes of a connection is answered in turn, and nothing else is', () => {
  const folder = newFolder('bytes');
  const apps: ReturnType<typeof buildServer>[] = [];
  const ports: Partial<Record<'plain' | 'TLS', number>> = {};
  let close: () => Promise<void> = async () => {};
  /** The number of requests in the metrics. */
  let counted: () => number;
  beforeAll(async () => {
    const store = await openEmbeddedStore({ folder, clock: 'system' });
    const keys = new KeyRing({ primary: EMULATOR_KEY });
    const signed = openssl === '' ? selfSigned() : undefined;
    const tls = signed && { cert: signed.certificate, key: signed.key };
    for (const kind of ['plain', ...(tls === undefined ? [] : (['TLS'] as const))] as const) {
      const app = buildServer({
        store,
        keys,
        guard: otherHostsRefused(),
        sendUnroutable: sendProblem,
        ...(kind === 'TLS' ? { tls } : {}),
        plugins: [(server) => registerManagement(server, { store, keys })],
      });
      apps.push(app);
      ports[kind] = Number(new URL(await app.listen({ host: '127.0.0.1', port: 0 })).port);
    }
    counted = () => store.measurements.requests().reduce((sum, { count }) => sum + count, 0);
    close = async () => {
      await Promise.all(apps.map((app) => app.close()));
      await store.close();
      signed?.remove();
      removeFolder(folder);
    };
    const container = '{"id":"orders","partitionKey":{"paths":["/customer"]}}';
    const made = await said(
      'plain',
      [
        ask('POST', '/dbs', { body: '{"id":"shop"}' }),
        ask('POST', '/dbs/shop/colls', { body: container }),
        upsert('there'),
      ].join(''),
    );
    expect(made.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 201', 'HTTP/1.1 201', 'HTTP/1.1 201', 'HTTP/1.1 200']);
  });
  afterAll(() => close());

  /** Everything that is answered. One more request follows what is sent, and after its answer the connection ends. */
  function said(kind: 'plain' | 'TLS', sent: string): Promise<string> {
    const bytes = Buffer.from(`${sent}${unsigned('GET', '/_epitaph/health/live', 'connection: close\r\n')}`, 'latin1');
    return new Promise((resolve) => {
      const to = { port: ports[kind]!, host: '127.0.0.1' };
      const socket = kind === 'TLS' ? connectTls({ ...to, rejectUnauthorized: false }) : connect(to);
      let text = '';
      socket.setEncoding('latin1').on('data', (chunk: string) => (text += chunk));
      socket.on('error', () => undefined).on('close', () => resolve(text));
      socket.write(bytes);
    });
  }

  describe.each(['plain', ...(openssl === '' ? ['TLS'] : [])] as ('plain' | 'TLS')[])('%s', (kind) => {
    test.each(cases.map(([name, sent, statuses, ends]) => ({ name, sent, statuses, ends })))('$name', async (one) => {
      const { sent, statuses, ends } = one;
      const isHead = sent.startsWith('HEAD');
      const before = counted();
      const answers = answersIn(await said(kind, sent), isHead ? statuses.length : 0);
      // Bytes that Node.js' parser can't read are not counted as a request.
      expect(counted() - before).toBe(answers.filter(({ body }) => !NO_REQUEST.test(body)).length);
      expect(answers.map(({ status }) => status)).toEqual(
        (ends === undefined ? [...statuses, 200] : statuses).map((status) =>
          status === 201 ? expect.toBeOneOf([200, 201]) : status,
        ),
      );
      for (const { status, headers, body } of answers) {
        expect(Date.parse(headers.get('date')!)).toBeLessThanOrEqual(Date.now());
        if (headers.get('content-type')?.startsWith('application/problem+json') === true) continue;
        if (body === '{"status":"live"}') continue;
        expect(headers.get('cache-control')).toBe('no-store, no-cache');
        expect(headers.get('x-ms-activity-id')).toMatch(/^[\da-f-]{36}$/);
        expect(Number(headers.get('x-ms-request-charge'))).not.toBeNaN();
        expect(headers.get('content-type')).toBe('application/json');
        if (status < 400 || isHead) continue;
        expect(JSON.parse(body)).toMatchObject({ code: expect.any(String), message: expect.any(String) });
        expect(body).not.toMatch(/node_modules|\.ts:|at file:/);
      }
      // No body was taken for a request: the item is still there.
      expect(await said(kind, ask('GET', `${DOCS}/there`, { headers: ANN }))).toMatch(/^HTTP\/1\.1 200 /);
    });
  });
});
