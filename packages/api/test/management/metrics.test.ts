import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { metricsText } from '@epitaph/api/metrics/metrics.ts';
import { Histogram } from '@epitaph/api/metrics/measurements.ts';
import { MetricsText } from '@epitaph/api/metrics/text-format.ts';
import { SqliteReadModelStore } from '@epitaph/storage/sqlite/sqlite-read-model-store.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { inject } from '../cosmos/support/inject.ts';
import { item, openWorld, ORDERS, WRITER, type World } from './world.ts';

const DOCS = path.resolve(import.meta.dirname, '../../../../docs');

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world.close());

interface Scrape {
  readonly text: string;
  /** The value of the one sample that has these labels, possibly among others. */
  value(name: string, labels?: Readonly<Record<string, string>>): number;
}

/** Parses the text as strictly as a scraper: every line is a comment of a family or a sample of the last family. */
function parse(text: string): Scrape {
  const samples: { readonly name: string; readonly labels: string; readonly value: number }[] = [];
  let family = '';
  expect(text.endsWith('\n')).toBe(true);
  for (const line of text.slice(0, -1).split('\n')) {
    const type = /^# TYPE ([a-z0-9_]+) (?:gauge|counter|histogram)$/.exec(line);
    if (type !== null) family = type[1]!;
    if (line.startsWith('# ')) continue;
    const [, name, labels = '', value] =
      /^([a-z0-9_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (\S+)$/.exec(line) ?? [];
    expect(name?.replace(/_(?:bucket|sum|count)$/, '') === family || name === family ? '' : line).toBe('');
    samples.push({ name: name!, labels: `,${labels},`, value: value === '+Inf' ? Infinity : Number(value) });
  }
  return {
    text,
    value: (name, labels = {}) => {
      const found = samples.filter(
        (sample) =>
          sample.name === name &&
          Object.entries(labels).every(([label, is]) => sample.labels.includes(`,${label}="${is}",`)),
      );
      expect([name, labels, found.length]).toEqual([name, labels, 1]);
      expect(Number.isNaN(found[0]!.value)).toBe(false);
      return found[0]!.value;
    },
  };
}

const scrape = async (): Promise<Scrape> => parse((await world.ask('GET', '/metrics')).body);

describe('metrics', () => {
  test('read little of each container, once, and give other work turns meanwhile', async () => {
    const containers = 30;
    const { definition } = world.store.container('shop', 'orders');
    for (let number = 1; number < containers; number++) {
      await world.store.createContainer(WRITER, 'shop', `many${number}`, definition, 3600);
    }
    const counted = vi.spyOn(SqliteReadModelStore.prototype, 'countEnded');
    const looked = vi.spyOn(SqliteReadModelStore.prototype, 'overdueStatistics').mockImplementation(() => {
      for (const untilMs = performance.now() + 1; performance.now() < untilMs;);
      return { count: 0, oldestTs: null, oldestDue: null };
    });
    try {
      let met: number | undefined;
      setImmediate(() => (met = looked.mock.calls.length));
      await metricsText(world.store);
      expect(new Set(looked.mock.calls.map(([number]) => number)).size).toBe(looked.mock.calls.length);
      expect(looked.mock.calls.length).toBeGreaterThanOrEqual(containers);
      expect(counted.mock.calls.length).toBe(2 * looked.mock.calls.length);
      expect(met).toBeLessThan(looked.mock.calls.length);
    } finally {
      vi.restoreAllMocks();
    }
  });

  test('are text in Prometheus’s format, for every key', async () => {
    const response = await world.ask('GET', '/metrics');
    expect(response.headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8');
    expect((await scrape()).value('epitaph_build_info')).toBe(1);
    expect((await world.ask('GET', '/metrics', { key: null })).statusCode).toBe(401);
  });

  test.each(['projections', 'purgeBacklogs', 'purgeStatus'] as const)(
    'are served without what can’t be read (here by %s) while the disk or a server is not available',
    async (read) => {
      const fault = vi.spyOn(world.store, read).mockRejectedValue(new StorageUnavailable('the disk is full'));
      const during = await scrape();
      expect(during.value('epitaph_storage_available')).toBe(0);
      expect(during.value('epitaph_append_faults_total')).toBe(0);
      expect(during.value('epitaph_purge_faults_total')).toBe(0);
      expect(during.text.includes('epitaph_purge_state{')).toBe(read === 'projections');
      expect(during.text.includes('epitaph_purge_overdue_items{')).toBe(read !== 'purgeBacklogs');
      expect(during.text.includes('epitaph_head_position')).toBe(read !== 'projections');
      fault.mockRejectedValue(new TypeError('a defect'));
      expect((await world.ask('GET', '/metrics')).statusCode).toBe(500);
      fault.mockRestore();
      expect((await scrape()).value('epitaph_storage_available')).toBe(1);
    },
  );

  test('tell how far the purge is behind in each container, and why content is kept', async () => {
    for (let n = 0; n < 5; n += 1) await world.write(`n${n}`);
    await world.store.advanceClock(90_000);
    const container = { database: 'shop', container: 'orders' };
    const before = await scrape();
    expect(before.value('epitaph_purge_overdue_items', container)).toBe(5);
    expect(before.value('epitaph_purge_oldest_overdue_seconds', container)).toBe(30);
    expect(before.value('epitaph_purge_time_to_drain_seconds')).toBe(Infinity);
    await world.ask('POST', '/purge/run');
    const after = await scrape();
    expect(after.value('epitaph_purge_overdue_items', container)).toBe(0);
    expect(after.value('epitaph_purged_lives_total')).toBe(5);
    expect(after.value('epitaph_purge_step_duration_seconds_count', { step: 'erase' })).toBe(1);

    await world.write('kept', { ttl: -1 });
    await world.ask('PUT', `${ORDERS}/ttl`, { body: { defaultTtl: 1000 } });
    await world.write('graced');
    await world.store.advanceClock(100_000);
    await world.ask('PUT', `${ORDERS}/ttl`, { body: { defaultTtl: 5 } });
    await world.ask('POST', '/purge/run');
    expect((await scrape()).value('epitaph_purge_held_back_lives', { ...container, reason: 'grace' })).toBe(1);
    expect((await world.get('/purge'))['inGrace']).toBe(1);
  });

  test('tell since when the longest overdue item has expired, whatever policies came after, and no earlier than its policy’s start', async () => {
    const container = { database: 'shop', container: 'orders' };
    const oldest = async () => (await scrape()).value('epitaph_purge_oldest_overdue_seconds', container);
    const ttl = (defaultTtl: number | null) =>
      world.store.changeTtl(WRITER, 'shop', 'orders', { defaultTtl, confirmed: false });
    await world.write('by default');
    await world.store.advanceClock(61_000);
    await world.write('of a longer ttl', { ttl: 100 });
    for (const [at, longer] of [600, -1, null].entries()) {
      await ttl(longer);
      await world.store.advanceClock(10_000);
      expect(await oldest()).toBeCloseTo(1 + 10 * (at + 1), 1);
    }
    await world.ask('POST', '/purge/run');
    expect(await oldest()).toBe(0);
    for (const id of ['first', 'second']) await world.write(id);
    await world.store.advanceClock(1_000_000);
    await ttl(60);
    await world.store.advanceClock(5_000);
    expect(await oldest()).toBeCloseTo(5, 1);
  });

  test('tell what a hold keeps apart from what a floor keeps', async () => {
    const container = { database: 'shop', container: 'orders' };
    const reason = 'a dispute';
    await world.write('a');
    await world.ask('PUT', `${ORDERS}/retention-floor`, { body: { seconds: 3_600, reason } });
    await world.store.advanceClock(90_000);
    await world.ask('POST', '/purge/run');
    expect((await scrape()).value('epitaph_purge_held_back_lives', { ...container, reason: 'floor' })).toBe(1);
    await world.ask('PUT', `${ORDERS}/holds/h`, { body: { container: true, reason } });
    await world.ask('POST', '/purge/run');
    const after = await scrape();
    expect(after.value('epitaph_purge_held_back_lives', { ...container, reason: 'hold' })).toBe(1);
    expect(after.value('epitaph_purge_held_back_lives', { ...container, reason: 'floor' })).toBe(0);
    expect(after.value('epitaph_purge_awaiting_erasure_lives', container)).toBe(0);
  });

  test('count operations, appends, projections, requests and cache hits', async () => {
    await world.write('a');
    await world.store.readItem(world.store.container('shop', 'orders'), 'a', '["ann"]');
    await world.ask('GET', `${ORDERS}/explain${item('a')}`);
    await world.ask('GET', '/dbs/shop/colls/nothing/history');
    await world.ask('GET', '/nothing');
    await inject(world.app, { method: 'GET', url: '/dbs' });
    const { value } = await scrape();
    expect(value('epitaph_operation_duration_seconds_count', { operation: 'upsert' })).toBe(1);
    expect(value('epitaph_operation_duration_seconds_count', { operation: 'read' })).toBe(1);
    expect(value('epitaph_operation_duration_seconds_bucket', { operation: 'read', le: '+Inf' })).toBe(1);
    expect(value('epitaph_append_duration_seconds_count')).toBe(3);
    expect(value('epitaph_projected_events_total')).toBe(3);
    expect(value('epitaph_projection_lag_events', { projection: 'items' })).toBe(0);
    expect(value('epitaph_document_cache_hits_total')).toBe(1);
    const history = 'GET /dbs/:database/colls/:container/history';
    expect(value('epitaph_requests_total', { plane: 'management', status: '4xx', operation: history })).toBe(1);
    expect(value('epitaph_requests_total', { plane: 'management', operation: 'none' })).toBe(1);
    expect(value('epitaph_requests_total', { plane: 'data', status: '4xx', operation: 'none' })).toBe(1);
  });

  test('name no item, no key and no content of a document', async () => {
    await world.write('a-telling-id', { customer: 'ann', secret: 'a-telling-content' });
    await world.ask('GET', `${ORDERS}/explain${item('a-telling-id')}`);
    await world.ask('GET', '/a-telling-target');
    await inject(world.app, { method: 'GET', url: '/dbs/shop/colls/orders/docs/a-telling-id' });
    const { text } = await scrape();
    expect(text).toContain('container="orders"');
    expect(text).not.toMatch(/telling|ann"/);
  });

  test('stay bounded: beyond fifty containers the rest are counted together', async () => {
    const definition = world.store.container('shop', 'orders').definition;
    for (let n = 0; n < 54; n += 1) await world.store.createContainer(WRITER, 'shop', `c${n}`, definition, 1);
    await world.write('a');
    await world.store.advanceClock(90_000);
    const { text, value } = await scrape();
    expect(text.match(/^epitaph_purge_overdue_items\{/gm)).toHaveLength(51);
    expect(value('epitaph_purge_overdue_items', { container: 'orders' })).toBe(1);
    expect(value('epitaph_purge_overdue_items', { container: '(other)' })).toBe(0);
  });

  test('include all that the alert rules and the guide name', async () => {
    const text = await metricsText(world.store);
    const families = Array.from(text.matchAll(/^# TYPE ([a-z0-9_]+) /gm), ([, name]) => name!);
    const known = new Set(families.flatMap((name) => [name, `${name}_bucket`]));
    for (const page of ['alerts.yaml', 'monitoring.md']) {
      const named =
        readFileSync(path.join(DOCS, page), 'utf8').match(/\b(?:epitaph|nodejs|process)_[a-z0-9_]+\b/g) ?? [];
      expect(named.length).toBeGreaterThan(10);
      expect([page, named.filter((name) => !known.has(name))]).toEqual([page, []]);
    }
  });
});

describe('the text format', () => {
  test('escapes special characters in names', () => {
    const text = new MetricsText();
    text.gauge('x', 'Help.', [{ labels: { a: 'q"b\\n\nend' }, value: 1.5 }]);
    expect(text.toString()).toBe('# HELP x Help.\n# TYPE x gauge\nx{a="q\\"b\\\\n\\nend"} 1.5\n');
  });

  test('counts durations into cumulative buckets', () => {
    const histogram = new Histogram();
    for (const ms of [0.5, 0.6, 3, 60_000]) histogram.observe(ms);
    const counts = histogram.cumulative();
    expect([counts[0], counts[1], counts[3], counts.at(-2), counts.at(-1)]).toEqual([1, 2, 3, 3, 4]);
    expect(histogram.sumSeconds).toBeCloseTo(60.0041);
  });
});
