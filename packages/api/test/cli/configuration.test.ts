import { chmodSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { BadConfiguration, readConfiguration, unknownVariables } from '@epitaph/api/config/configuration.ts';
import { parseInstant } from '@epitaph/api/config/instant.ts';
import { readIdentities } from '@epitaph/api/config/identities-file.ts';
import { keysInForce } from '@epitaph/api/config/keys-file.ts';
import { isLoopbackHost, isLoopbackHostHeader } from '@epitaph/api/config/loopback.ts';
import { EMULATOR_KEY, KeyRing } from '@epitaph/api/http/keys.ts';
import { cleanUp, temporaryFolder } from './process.ts';

afterEach(cleanUp);

function file(text: string): string {
  const name = path.join(temporaryFolder(), 'epitaph.json');
  writeFileSync(name, text);
  return name;
}

describe('the configuration', () => {
  test('has a default for everything', () => {
    expect(readConfiguration({ flags: {}, environment: {} })).toEqual({
      host: '127.0.0.1',
      port: 8081,
      roles: 'project,purge',
      'policy-delay': 4,
      drain: 0,
      data: path.resolve(import.meta.dirname, '../../../../data'),
      clock: 'system',
      'max-downtime': 7_776_000,
      'policy-grace': 86_400,
      scripts: 'on',
      'ready-lag': 10_000,
      consistency: 'Session',
      'max-staleness-prefix': 100,
      'max-staleness-seconds': 5,
      'log-level': 'warn',
    });
  });

  test('prefers flags to variables, and variables to the file', () => {
    const config = file('{"port": 1, "host": "1.1.1.1", "data": "file", "policy-grace": 7}');
    const {
      port,
      host,
      data,
      'policy-grace': grace,
    } = readConfiguration({
      flags: { port: '3', config },
      environment: { EPITAPH_PORT: '2', EPITAPH_HOST: '2.2.2.2', EPITAPH_DATA: '' },
    });
    expect({ port, host, data, grace }).toEqual({ port: 3, host: '2.2.2.2', data: 'file', grace: 7 });
    const environment = { EPITAPH_CONFIG: config };
    expect(readConfiguration({ flags: {}, environment }).port).toBe(1);
  });

  test('ignores the port of a Kubernetes service, and knows which variables are not its options', () => {
    const environment = {
      EPITAPH_PORT: 'tcp://10.96.0.12:8081',
      EPITAPH_PORT_8081_TCP_ADDR: '10.96.0.12',
      EPITAPH_SERVICE_HOST: '10.96.0.12',
      EPITAPH_DATA: 'data',
      EPITAPH_ENDPOINT: 'http://localhost',
      EPITAPH_PURGE_LEGDER: 'ledger',
      PATH: '/bin',
    };
    expect(readConfiguration({ flags: {}, environment }).port).toBe(8081);
    expect(unknownVariables(environment)).toEqual(['EPITAPH_PURGE_LEGDER']);
  });

  test.each([
    [{ port: 'http' }, {}, '--port: must be a whole number from 0 to 65535.'],
    [{ data: '' }, {}, '--data: must not be empty.'],
    [{ port: '65536' }, {}, '--port: must be a whole number from 0 to 65535.'],
    [{ port: '-1' }, {}, '--port: must be a whole number from 0 to 65535.'],
    [{}, { EPITAPH_PORT: '1.5' }, 'EPITAPH_PORT: must be a whole number from 0 to 65535.'],
    [{}, { EPITAPH_CLOCK: 'sundial' }, 'EPITAPH_CLOCK: must be one of system, manual.'],
    [{ now: 'today', clock: 'manual' }, {}, '--now: must be a time like 2026-11-21T10:00:00Z.'],
    [{ now: '2026', clock: 'manual' }, {}, '--now: must be a time like 2026-11-21T10:00:00Z.'],
    [{ now: '2026-11-21' }, {}, '--now: only works with --clock manual.'],
    [{ roles: 'none' }, {}, '--roles: needs --postgres: the only node of a data folder does everything.'],
    [
      { 'policy-delay': '9' },
      {},
      '--policy-delay: needs --postgres: on a single node a TTL change takes effect at once.',
    ],
    [
      {},
      { EPITAPH_VAULT_COPIES_KEPT: '5' },
      'EPITAPH_VAULT_COPIES_KEPT: needs --postgres: copies of keys in a data folder are made by epitaph backup, which records them.',
    ],
    [
      { 'event-store': 'esdb://x', postgres: 'postgresql://x', 'master-key': 'x' },
      { EPITAPH_BACKUP_FOLDER: '/backups' },
      'EPITAPH_BACKUP_FOLDER: is for keys in the data folder; those in PostgreSQL are backed up with its own tools.',
    ],
    [{ traces: 'collector' }, {}, '--traces: must be the URL of a collector, or off.'],
    [{ traces: 'localhost:4318' }, {}, '--traces: must be the URL of a collector, or off.'],
    [
      { throughput: '450' },
      {},
      "--throughput: The offer should have valid throughput values between 400 and 1000000 inclusive in increments of 100: the throughput can't be 450.",
    ],
    [
      { 'cors-origins': 'https://app.example.com/' },
      {},
      '--cors-origins: must be origins like https://app.example.com, or *.',
    ],
    [{ 'cors-origins': 'a.example,*' }, {}, '--cors-origins: must be origins like https://app.example.com, or *.'],
    [{ key: 'c2VjcmV0' }, {}, '--key: must be base64 of at least 32 bytes.'],
    [
      {},
      { EPITAPH_KEY: `${Buffer.alloc(64, 7).toString('base64')}\n` },
      "EPITAPH_KEY: contains a space, a line end or another character that a key can't have.",
    ],
  ] as const)('refuses %j with %j in one line', (flags, environment, message) => {
    expect(() => readConfiguration({ flags, environment })).toThrow(new BadConfiguration(message));
  });

  test.each([
    'http://127.0.0.1:4318/v1/traces',
    'http://localhost:4318/v1/traces',
    'http://[::1]:4318/v1/traces',
    'http://collector:4318/v1/traces',
    'https://collector.example/v1/traces',
    'off',
  ])('sends traces to %s', (traces) => {
    expect(readConfiguration({ flags: { traces }, environment: {} }).traces).toBe(traces);
  });

  test.each([
    ['{"port": "80a"}', /^"port" in \S+epitaph\.json: must be a whole number/],
    ['{"prot": 80}', /^"prot" in \S+epitaph\.json is not an option; the options are host, port/],
    ['{"toString": 80}', /^"toString" in \S+epitaph\.json is not an option; the options are host, port/],
    ['{"host": 5}', /^"host" in \S+epitaph\.json: must be a string\.$/],
    ['[]', /must contain one JSON object/],
    ['{', /is not JSON/],
  ])('refuses a file of %s and names the file', (text, message) => {
    const config = file(text);
    expect(() => readConfiguration({ flags: { config }, environment: {} })).toThrow(message);
  });

  test('reads a file that begins with a byte order mark', () => {
    const config = file('\uFEFF{"port": 1}');
    expect(readConfiguration({ flags: { config }, environment: {} }).port).toBe(1);
  });

  test('names a missing file, and never prints a key', () => {
    expect(() => readConfiguration({ flags: { config: '/nowhere/x.json' }, environment: {} })).toThrow(
      /\/nowhere\/x\.json can't be read/,
    );
    const attempt = () => readConfiguration({ flags: {}, environment: { EPITAPH_KEY: 'hush' } });
    expect(attempt).toThrow(BadConfiguration);
    expect(attempt).not.toThrow(/hush/);
    const config = file('{"port": 1, "key": hush}');
    const reading = () => readConfiguration({ flags: { config }, environment: {} });
    expect(reading).toThrow(/is not JSON: Unexpected token 'h'$/);
  });
});

describe('--throughput', () => {
  const throughputOf = (throughput: string) => readConfiguration({ flags: { throughput }, environment: {} }).throughput;

  test('is an amount, autoscale up to one, or serverless', () => {
    expect(throughputOf('400')).toEqual({ kind: 'manual', requestUnitsPerSecond: 400 });
    expect(throughputOf('autoscale:4000')).toEqual({ kind: 'autoscale', maxRequestUnitsPerSecond: 4_000 });
    expect(throughputOf('serverless')).toEqual({ kind: 'none' });
    expect(readConfiguration({ flags: {}, environment: {} }).throughput).toBe(undefined);
    const config = file('{"throughput": 1000}');
    expect(readConfiguration({ flags: { config }, environment: {} }).throughput).toEqual({
      kind: 'manual',
      requestUnitsPerSecond: 1_000,
    });
  });

  test.each(['0', '399', '450', 'autoscale:400', 'autoscale:', '1000001', '4e2', 'Serverless', 'none'])(
    'refuses %s and tells what is allowed',
    (text) => {
      expect(() => throughputOf(text)).toThrow(/^--throughput: (must be a number|The offer should have valid)/);
    },
  );
});

describe('an instant', () => {
  test.each([
    ['1970-01-01T00:00:00Z', 0],
    ['0', 0],
    ['2026-11-21T10:00:00.123Z', 1_795_255_200_123],
    ['2026-11-21T10:00:00+02:00', 1_795_248_000_000],
    ['2026-11-21T10:00Z', 1_795_255_200_000],
    ['2026-11-21', 1_795_219_200_000],
    ['1795255200123', 1_795_255_200_123],
    ['9999-12-31T23:59:59.999Z', 253_402_300_799_999],
    ['2028-02-29', 1_835_395_200_000],
  ])('%s is %i', (text, atMs) => {
    expect(parseInstant(text)).toBe(atMs);
  });

  test.each([
    '',
    'now',
    '-1',
    '1e3',
    '2026-11-21T10:00:00',
    '2026-11-21 10:00:00Z',
    '2026-02-30',
    '2027-02-29',
    '2026-13-01',
    '2026-11-21T24:61:00Z',
    '253402300800000',
    '1969-12-31',
    '+12026-01-01',
    '2026-11-21T10:00:00+25:00',
  ])('%j is not an instant', (text) => {
    expect(parseInstant(text)).toBeUndefined();
  });
});

describe('keys', () => {
  test('are created once, readable by their owner only, and accepted by the key ring', () => {
    const folder = temporaryFolder();
    const first = keysInForce({ folder, given: undefined, loopback: false });
    expect(first.primary).toBe('file');
    expect(statSync(first.file).mode & 0o777).toBe(0o600);
    expect(new Set(Object.values(first.texts)).size).toBe(4);
    expect(new KeyRing(first.texts).verifyBearer(`Bearer ${first.texts.auditor}`)).toMatchObject({ role: 'audit' });
    expect(keysInForce({ folder, given: undefined, loopback: false })).toEqual(first);
  });

  test('default to the emulator’s as primary on loopback; a given one is used everywhere', () => {
    const folder = temporaryFolder();
    const given = Buffer.alloc(64, 5).toString('base64');
    expect(keysInForce({ folder, given: undefined, loopback: true })).toMatchObject({
      primary: 'emulator',
      texts: { primary: EMULATOR_KEY },
    });
    for (const loopback of [true, false]) {
      expect(keysInForce({ folder, given, loopback })).toMatchObject({ primary: 'given', texts: { primary: given } });
    }
  });

  test('never default to the emulator’s beyond loopback', () => {
    const folder = temporaryFolder();
    expect(() => keysInForce({ folder, given: EMULATOR_KEY, loopback: false })).toThrow(/loopback only/);
    const { file: name, texts } = keysInForce({ folder, given: undefined, loopback: true });
    writeFileSync(name, JSON.stringify({ ...texts, primary: texts.auditor, secondary: EMULATOR_KEY }));
    expect(() => keysInForce({ folder, given: undefined, loopback: false })).toThrow(/loopback only/);
  });

  test('are refused if the file is damaged or open to others', () => {
    const folder = temporaryFolder();
    const { file: name } = keysInForce({ folder, given: undefined, loopback: true });
    const text = readFileSync(name, 'utf8');
    writeFileSync(name, text.slice(0, 100));
    expect(() => keysInForce({ folder, given: undefined, loopback: true })).toThrow(/is damaged/);
    writeFileSync(name, text);
    chmodSync(name, 0o644);
    expect(() => keysInForce({ folder, given: undefined, loopback: true })).toThrow(/chmod 600/);
  });
});

describe('the identities file', () => {
  const good = {
    name: 'entra',
    issuer: 'https://login.example/v2.0',
    audiences: ['api://epitaph'],
    keys: 'https://login.example/keys',
    assignments: [
      { principal: '1f0e', role: 'reader' },
      { principal: '2a9c', role: 'contributor', scope: '/dbs/shop' },
      { group: '7b20', role: 'contributor', scope: '/dbs/my shop/colls/orders 2026' },
    ],
  };
  const read = (...issuers: readonly object[]) => readIdentities(file(JSON.stringify({ issuers })));
  const assigned = (assignment: object) => ({ ...good, assignments: [assignment] });

  test('names the issuers whose tokens are accepted, and the roles', () => {
    expect(read(good)).toEqual([
      {
        ...good,
        claim: 'oid',
        groups: 'groups',
        keys: new URL(good.keys),
        assignments: [
          { principal: '1f0e', role: 'reader', scope: {} },
          { principal: '2a9c', role: 'contributor', scope: { database: 'shop' } },
          { group: '7b20', role: 'contributor', scope: { database: 'my shop', container: 'orders 2026' } },
        ],
      },
    ]);
  });

  test('can have the issuer’s keys in a file beside it', () => {
    const name = file('{"issuers": []}');
    writeFileSync(path.join(path.dirname(name), 'keys.jwks'), '{"keys": []}');
    writeFileSync(name, JSON.stringify({ issuers: [{ ...good, keys: 'keys.jwks' }] }));
    expect(readIdentities(name)[0]!.keys).toEqual({ keys: [] });
  });

  test.each<[readonly object[], RegExp]>([
    [[], /issuers: must name at least one/],
    [[{ ...good, audiences: [] }], /issuers\.0\.audiences: must list the accepted audiences of tokens/],
    [[{ ...good, issuer: undefined }], /issuers\.0\.issuer: must be the "iss"/],
    [[{ ...good, name: 'system' }], /issuers\.0\.name: is reserved for other actors of the store/],
    [[{ ...good, name: 'key' }], /issuers\.0\.name: is reserved for other actors of the store/],
    [[{ ...good, name: 'Entra: 1' }], /issuers\.0\.name: must be a short name/],
    [[{ ...good, audience: 'x' }], /issuers\.0: .*audience/],
    [[{ ...good, keys: 'http://login.example/keys' }], /keys must be fetched over https/],
    [[{ ...good, keys: 'nothing.jwks' }], /file of an issuer's keys .*nothing\.jwks can't be read/],
    [[good, { ...good, name: 'other' }], /issuer "https:\/\/login\.example\/v2\.0" appears twice/],
    [[good, { ...good, issuer: 'https://other.example' }], /name "entra" appears twice/],
    [
      [assigned({ principal: '1', role: 'owner' })],
      /assignments\.0\.role: must be one of reader, contributor, auditor/,
    ],
    [[assigned({ principal: 'a b', role: 'reader' })], /assignments\.0\.principal: must be the id of a principal/],
    [[assigned({ role: 'reader' })], /assignments\.0: must name a principal or a group/],
    [[assigned({ principal: '1', group: '2', role: 'reader' })], /assignments\.0: must name a principal or a group/],
    [[assigned({ group: '', role: 'reader' })], /assignments\.0\.group: must be the id of a group, as in tokens/],
    [[assigned({ principal: '1', role: 'reader', scope: 'shop' })], /assignments\.0\.scope: must be \//],
    [[assigned({ principal: '1', role: 'reader', scope: '/dbs/' })], /assignments\.0\.scope: must be \//],
    [
      [assigned({ principal: '1', role: 'auditor', scope: '/dbs/shop' })],
      /assignments\.0\.scope: must be \/ for this role/,
    ],
    [[assigned({ principal: '1', role: 'administrator', scope: '/dbs/a/colls/b' })], /scope: must be \/ for this role/],
  ])('is refused in one line: %j', (issuers, message) => {
    expect(() => read(...issuers)).toThrow(BadConfiguration);
    expect(() => read(...issuers)).toThrow(message);
    expect(() => read(...issuers)).not.toThrow(/\n/);
  });

  test.each([
    { kty: 'EC', d: 'AAAA' },
    { kty: 'oct', k: 'AAAA' },
  ])('can’t have a secret key beside it: %j', (key) => {
    const name = file(JSON.stringify({ issuers: [{ ...good, keys: 'keys.jwks' }] }));
    writeFileSync(path.join(path.dirname(name), 'keys.jwks'), JSON.stringify({ keys: [{ kty: 'EC' }, key] }));
    expect(() => readIdentities(name)).toThrow(/keys\.jwks contains a private key/);
  });

  test('is refused if others on the machine can change it', () => {
    const name = file(JSON.stringify({ issuers: [good] }));
    chmodSync(name, 0o620);
    expect(() => readIdentities(name)).toThrow(/chmod go-w/);
    // Whoever can write the keys can sign tokens as anybody.
    const own = file(JSON.stringify({ issuers: [{ ...good, keys: 'keys.jwks' }] }));
    const keys = path.join(path.dirname(own), 'keys.jwks');
    writeFileSync(keys, '{"keys": []}');
    chmodSync(keys, 0o602);
    expect(() => readIdentities(own)).toThrow(/file of an issuer's keys .*keys\.jwks can be changed by others/);
  });
});

describe('loopback', () => {
  test.each(['127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1', 'localhost'])('%s is', async (host) => {
    expect(await isLoopbackHost(host)).toBe(true);
  });
  test.each(['0.0.0.0', '::', '10.0.0.1', '128.0.0.1', '::ffff:10.0.0.1', 'nothing.invalid'])(
    '%s is not',
    async (host) => {
      expect(await isLoopbackHost(host)).toBe(false);
    },
  );
  test('is recognized in a Host header', () => {
    for (const header of ['127.0.0.1:8081', 'localhost', 'LOCALHOST:1', 'db.localhost:80', '[::1]:8081', undefined]) {
      expect([header, isLoopbackHostHeader(header)]).toEqual([header, true]);
    }
    for (const header of ['evil.example', 'localhost.evil.example:8081', '127.0.0.1.evil.example', '10.0.0.1', '']) {
      expect([header, isLoopbackHostHeader(header)]).toEqual([header, false]);
    }
  });
});
