import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { metricsText } from '@epitaph/api/metrics/metrics.ts';
import { openWorld } from './world.ts';

const RULES = path.resolve(import.meta.dirname, '../../../../docs/alerts.yaml');

/** Prometheus' own tool, from Debian's package `prometheus`. The rules are checked only if it is installed. */
const promtool = (...args: readonly string[]) => spawnSync('promtool', args, { encoding: 'utf8' });
const isThere = promtool('--version').status === 0;

/** For each alert, series as a scraper stores them, minute by minute, for which it must be raised. */
const RAISED: Readonly<Record<string, readonly string[]>> = {
  EpitaphDown: ['up{job="epitaph"} 0x100'],
  EpitaphNotReady: ['epitaph_ready 0x100'],
  EpitaphStorageUnavailable: ['epitaph_storage_available 0x100'],
  EpitaphProjectionFailed: ['epitaph_projection_failed{projection="items"} 1x100'],
  EpitaphProjectionLag: ['epitaph_projection_lag_events{projection="items"} 2000x100'],
  EpitaphClockHeld: ['epitaph_purge_state{state="held-by-clock"} 1x100'],
  EpitaphClockStandsStill: ['epitaph_clock_stands_still_seconds 7200x100'],
  EpitaphPurgePaused: ['epitaph_purge_state{state="paused"} 1x2000'],
  EpitaphNothingPurges: ['epitaph_purge_by_this_node 0x100'],
  EpitaphPurgeFails: ['epitaph_purge_faults_total 0+30x100'],
  EpitaphScavengeFailed: ['epitaph_scavenge_state{state="failed"} 1x200'],
  EpitaphErasureLate: ['epitaph_purge_oldest_overdue_seconds{database="shop",container="orders",rid="r"} 4000x100'],
  EpitaphPurgeDoesNotDrain: [
    'epitaph_purge_overdue_items{database="shop",container="orders",rid="r"} 5x100',
    'epitaph_purge_time_to_drain_seconds 90000x100',
  ],
  EpitaphPurgeStarved: [
    'epitaph_purge_waiting_for_request_units_items{database="shop",container="orders",rid="r"} 5x1000',
  ],
  EpitaphAppendsFail: ['epitaph_append_faults_total 0+3x100'],
  EpitaphSlowAppends: [
    'epitaph_append_duration_seconds_bucket{le="0.5"} 0+1x100',
    'epitaph_append_duration_seconds_bucket{le="1"} 0+60x100',
    'epitaph_append_duration_seconds_bucket{le="+Inf"} 0+60x100',
  ],
  EpitaphErrors: [
    'epitaph_requests_total{plane="data",status="5xx",operation="read"} 0+10x100',
    'epitaph_requests_total{plane="data",status="2xx",operation="read"} 0+100x100',
  ],
  EpitaphThrottled: ['epitaph_throttled_operations_total{database="shop",container="orders",rid="r"} 0+120x100'],
};

test('every alert is listed here, so that none is left untested', () => {
  const named = Array.from(readFileSync(RULES, 'utf8').matchAll(/^ +- alert: (\w+)$/gm), ([, name]) => name);
  expect(named.toSorted()).toEqual(Object.keys(RAISED).toSorted());
});

describe.skipIf(!isThere)('by promtool (of the package prometheus; skipped where it is not installed)', () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'epitaph-alerts-'));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  test('the rules are valid, and their metrics exist', async () => {
    expect(promtool('check', 'rules', RULES)).toMatchObject({ status: 0, stderr: '' });
    const world = await openWorld();
    try {
      await world.write('a');
      const input = await metricsText(world.store);
      const checked = spawnSync('promtool', ['check', 'metrics'], { encoding: 'utf8', input });
      expect([checked.status, checked.stderr]).toEqual([0, '']);
    } finally {
      await world.close();
    }
  });

  test.each(Object.entries(RAISED))('%s is raised, and no other is', (alert, series) => {
    const file = path.join(folder, `${alert}.json`);
    const scraped = series.map((line) => {
      const [, name, labels = '', values] = /^(\w+)(?:\{(.*)\})? (.*)$/.exec(line)!;
      const job = labels.includes('job=') ? '' : 'job="epitaph",';
      return { series: `${name}{${job}instance="a:8081"${labels === '' ? '' : `,${labels}`}}`, values };
    });
    const at = alert === 'EpitaphPurgePaused' ? '1500m' : alert === 'EpitaphPurgeStarved' ? '400m' : '90m';
    const count = (name: string, is: number) => ({
      expr: `count(ALERTS{alertname="${name}",alertstate="firing"}) or vector(0)`,
      eval_time: at,
      exp_samples: [{ labels: '{}', value: is }],
    });
    const tests = {
      rule_files: [RULES],
      evaluation_interval: '1m',
      tests: [
        {
          interval: '1m',
          input_series: scraped,
          promql_expr_test: Object.keys(RAISED).map((name) => count(name, name === alert ? 1 : 0)),
        },
      ],
    };
    writeFileSync(file, JSON.stringify(tests));
    const { status, stdout, stderr } = promtool('test', 'rules', file);
    expect([stdout + stderr, status]).toEqual([expect.stringContaining('SUCCESS'), 0]);
  });
});
