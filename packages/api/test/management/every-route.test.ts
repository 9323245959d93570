import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { RouteDescription } from '@epitaph/api/management/routing.ts';
import { AUDITOR_KEY, item, openWorld, ORDERS, SECONDARY_KEY, type World } from './world.ts';

let world: World;
let routes: readonly RouteDescription[];
beforeAll(async () => {
  world = await openWorld();
  await world.app.ready();
  routes = world.routes;
  await world.ask('PUT', `${ORDERS}/policy-grace`, { body: { seconds: 0 } });
});
afterAll(() => world.close());

const nameOf = ({ method, url }: RouteDescription): string => `${method} ${url}`;

interface Fact {
  readonly type: string;
  readonly actor: string;
}
const facts = async (): Promise<Fact[]> =>
  (await world.ask('GET', '/proof/facts', { key: AUDITOR_KEY })).body
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Fact);

const OF = '/dbs/:database/colls/:container';

/**
 * A call of every route that changes something, in an order in which each can succeed, and the fact that says who made it. A route that is
 * missing here makes the test fail.
 */
const CHANGES: Readonly<Record<string, { readonly at?: string; readonly body?: object; readonly records: string }>> = {
  [`PUT ${OF}/ttl/brake`]: { body: { maxItems: 1_000 }, records: 'TtlBrakeChanged' },
  [`PUT ${OF}/ttl`]: {
    body: { defaultTtl: 120, effectiveFrom: '2026-11-22T00:00:00Z' },
    records: 'ContainerTtlChanged',
  },
  [`DELETE ${OF}/ttl/scheduled`]: { records: 'ContainerTtlWithdrawn' },
  [`PUT ${OF}/policy-grace`]: { body: { seconds: 60 }, records: 'PolicyGraceChanged' },
  [`PUT ${OF}/recovery-window`]: { body: { seconds: 3_600, reason: 'why' }, records: 'RecoveryWindowChanged' },
  [`PUT ${OF}/holds/:hold`]: { body: { container: true, reason: 'a case' }, records: 'HoldPlaced' },
  [`GET ${OF}/held-content`]: { at: item('ended', { reason: 'a case' }), records: 'HeldContentRead' },
  [`DELETE ${OF}/holds/:hold`]: { body: { reason: 'over' }, records: 'HoldReleased' },
  [`POST ${OF}/recover`]: {
    body: { id: 'ended', partitionKey: ['ann'], reason: 'a mistake' },
    records: 'RecoveryRequested',
  },
  [`POST ${OF}/erase`]: {
    body: { id: 'erased', partitionKey: ['ann'], reason: 'article 17', requestedBy: 'ann' },
    records: 'ErasureRequested',
  },
  [`PUT ${OF}/retention-floor`]: { body: { seconds: 5, reason: 'law' }, records: 'RetentionFloorChanged' },
  'POST /purge/run': { records: 'PurgeRunRequested' },
  'POST /purge/pause': { records: 'PurgePaused' },
  'POST /purge/resume': { records: 'PurgeResumed' },
  'POST /projections/:name/rebuild': { records: 'RebuildRequested' },
  'DELETE /projections/:name/rebuild': { records: 'RebuildCancelRequested' },
  'POST /backups': { body: { folder: 'today' }, records: 'BackupStarted' },
  'POST /clock/advance': { body: { milliseconds: 1 }, records: 'ClockAdvanced' },
};

/** Routes that are not GET and change nothing visible. */
const READS = [`POST ${OF}/ttl/preview`, `POST ${OF}/ttl/replay`, 'POST /proof/verify', 'POST /fsck'];
/** Changes that are impossible on this store, and are tested elsewhere: with an event store, and with a clock that has jumped. */
const ELSEWHERE = ['POST /purge/scavenge', 'POST /clock/confirm'];

const targetOf = (name: string, more = ''): string =>
  name
    .slice(name.indexOf(' ') + 1)
    .replace(OF, ORDERS)
    .replace(':name', 'items')
    .replace(':hold', 'case-1')
    .replace(':run', 'none') + more;

describe('every route that changes something', () => {
  test('is known to this test', () => {
    const changing = routes.filter(({ method, url }) => method !== 'GET' || url.endsWith('/held-content')).map(nameOf);
    expect(changing.toSorted()).toEqual([...Object.keys(CHANGES), ...READS, ...ELSEWHERE].toSorted());
  });

  test('has recorded who called it', async () => {
    for (const id of ['ended', 'erased']) await world.write(id, { ttl: 1 });
    await world.store.advanceClock(2_000);
    for (const [name, { at, body, records }] of Object.entries(CHANGES)) {
      const before = (await facts()).length;
      const response = await world.ask(name.split(' ')[0] as 'PUT', targetOf(name, at), { body, key: SECONDARY_KEY });
      expect([name, response.statusCode, response.body]).toEqual([
        name,
        expect.toSatisfy(isSuccess),
        expect.anything(),
      ]);
      const recorded = (await facts()).slice(before).filter(({ actor }) => actor === 'key:secondary');
      expect([name, recorded.map(({ type }) => type)]).toEqual([name, expect.arrayContaining([records])]);
    }
  });

  test('is shown to an auditor, if it concerns the store as a whole', async () => {
    const { events } = (await world.ask('GET', '/history', { key: AUDITOR_KEY })).json<{ events: Fact[] }>();
    const ofStore = Object.entries(CHANGES).filter(([name]) => !name.includes(OF));
    for (const [, { records }] of ofStore) {
      expect(events).toContainEqual(expect.objectContaining({ type: records, actor: 'key:secondary' }));
    }
  });
});

const isSuccess = (status: number): boolean => status >= 200 && status < 300;

/** Codes and statuses of docs/errors.md. */
const documented = new Map(
  Array.from(
    readFileSync(path.resolve(import.meta.dirname, '../../../../docs/errors.md'), 'utf8').matchAll(
      /^\| `([a-z-]+)` \|.*\| (\d{3}) \|$/gm,
    ),
    ([, code, status]) => [code!, Number(status)],
  ),
);

/** Nested arrays, too deep to be written as JSON again. */
const NESTED = '['.repeat(30_000) + ']'.repeat(30_000);

describe('every refusal of every route', () => {
  /** Requests that no route accepts, or that name something that does not exist. */
  const REFUSED: readonly [
    what: string,
    change: (target: string) => string,
    key: string | null | undefined,
    body: unknown,
  ][] = [
    ['no key', (target) => target, null, undefined],
    ['a key that is none', (target) => target, 'bm9uZQ==', undefined],
    ['a query that it does not know', (target) => `${target}?nonsense=1`, undefined, undefined],
    ['a body that it does not know', (target) => target, undefined, { nonsense: 1 }],
    ['a body that is not JSON', (target) => target, undefined, '{'],
    [
      'a body that nests too deeply',
      (target) => target,
      undefined,
      `{"reason":"r","requestedBy":"ann","id":"a","partitionKey":${NESTED}}`,
    ],
    ['a container that is not there', (target) => target.replace('/orders', '/nothing'), undefined, undefined],
    ['a database that is not there', (target) => target.replace('/shop', '/nothing'), undefined, undefined],
    ['a rid that never was', (target) => `${target}?rid=none`, undefined, undefined],
    ['a path that is too long', (target) => target.replace('/orders', `/${'x'.repeat(5_000)}`), undefined, undefined],
    ['a path that is no URI', (target) => target.replace('/orders', '/%zz'), undefined, undefined],
  ];

  test.each(REFUSED)('of %s is a problem with a documented code', async (what, change, key, body) => {
    let refused = 0;
    for (const route of routes) {
      // Streams that stop at their first event are not followed here. Changes of time and backups are called above.
      if (route.method === 'GET' && body !== undefined) continue;
      const name = nameOf(route);
      const response = await world.ask(route.method, change(targetOf(name)), {
        ...(key === undefined ? {} : { key }),
        body,
      });
      if (isSuccess(response.statusCode)) continue;
      refused += 1;
      expect([name, what, String(response.headers['content-type']).split(';')[0]]).toEqual([
        name,
        what,
        'application/problem+json',
      ]);
      const { code, status, type, detail } = response.json<Record<string, string>>();
      expect([name, what, documented.get(code!)]).toEqual([name, what, response.statusCode]);
      expect([status, type]).toEqual([response.statusCode, `urn:epitaph:problem:${code}`]);
      expect(code).not.toBe('internal');
      expect(detail).not.toBe('');
    }
    expect(refused).toBeGreaterThan(10);
  });

  test('is one of those in the OpenAPI description', () => {
    expect(documented.size).toBeGreaterThan(30);
  });
});

describe('every long operation', () => {
  /** Operations that may read the whole log or container, and how each reports its progress. */
  const FOLLOWED = [
    `GET ${OF}/as-of`,
    'GET /projections/:name/rebuild',
    'POST /backups',
    'POST /fsck',
    'POST /proof/verify',
    'POST /purge/run',
    `POST ${OF}/recover`,
    `POST ${OF}/ttl/replay`,
  ];
  /** Operations that send rows as they find them, so that readers see the progress. */
  const STREAMED = [
    'GET /proof/facts',
    'GET /purge/runs/:run/certificates',
    `GET ${OF}/as-of`,
    `GET ${OF}/certificates`,
    `GET ${OF}/disappearances`,
    `POST ${OF}/ttl/replay`,
  ];

  test('reports its progress as server-sent events, or is streamed', () => {
    expect(
      routes
        .filter(({ answers }) => answers.events !== undefined)
        .map(nameOf)
        .toSorted(),
    ).toEqual(FOLLOWED.toSorted());
    expect(
      routes
        .filter(({ answers }) => answers.lines !== undefined)
        .map(nameOf)
        .toSorted(),
    ).toEqual(STREAMED.toSorted());
  });
});
