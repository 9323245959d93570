import { Refusal } from '@epitaph/core/errors.ts';
import { explainItem } from '@epitaph/core/history/explain.ts';
import { type ReplayVerdict, replayLife } from '@epitaph/core/history/replay.ts';
import { type PolicyStart, withPolicy } from '@epitaph/core/ttl/policy-timeline.ts';
import type { HistoryApi, ReplayDifference } from '../api/history-api.ts';
import { livesOf } from '../items/life-scan.ts';
import type { StoreParts } from '../parts.ts';

/** How many differences the summary has. All of them are streamed. */
const SAMPLE_DIFFERENCES = 20;

/**
 * Answers that need every life of a container: what other policies would have done, and what was visible at an instant.
 */
export class Replays {
  readonly #parts: StoreParts;

  constructor(parts: StoreParts) {
    this.#parts = parts;
  }

  /** @throws Refusal bad-request for policies that are not in order of time */
  readonly replay: HistoryApi['replay'] = async (container, policies, { onRow, onProgress, signal } = {}) => {
    let instead: readonly PolicyStart[] = [];
    for (const { fromMs, defaultTtl } of policies) {
      if (fromMs < (instead.at(-1)?.fromMs ?? 0)) {
        throw new Refusal('bad-request', 'The policies of a timeline must be in order of time.');
      }
      instead = withPolicy(instead, { fromMs, defaultTtl, version: (instead.at(-1)?.version ?? 0) + 1 });
    }
    const { state, nowMs } = await this.#parts.told(container);
    const containerGoneAtMs = this.#parts.catalog.goneAtMs(state);
    const counts: Record<ReplayVerdict, number> = { same: 0, earlier: 0, later: 0, never: 0, also: 0 };
    const sample: ReplayDifference[] = [];
    for await (const { id, partitionKey, facts } of livesOf(this.#parts.ports.log, state, nowMs, onProgress, signal)) {
      const { timeline } = state;
      const replayed = replayLife({ facts, timeline, instead, containerGoneAtMs, nowMs });
      counts[replayed.verdict] += 1;
      if (replayed.verdict === 'same') continue;
      const difference = { id, partitionKey, life: facts.life, ...replayed };
      if (sample.length < SAMPLE_DIFFERENCES) sample.push(difference);
      await onRow?.(difference);
    }
    return { nowMs, lives: Object.values(counts).reduce((sum, count) => sum + count, 0), counts, sample };
  };

  /** Finds what was visible at an instant. @returns the number of items */
  readonly asOf: HistoryApi['asOf'] = async (container, atMs, { onRow, onProgress, signal } = {}) => {
    const { state, nowMs } = await this.#parts.told(container);
    const gone = this.#parts.catalog.gone(state);
    let items = 0;
    for await (const { id, partitionKey, facts } of livesOf(this.#parts.ports.log, state, nowMs, onProgress, signal)) {
      const told = explainItem({ id, partitionKey, container: state, gone, lives: [facts], atMs, holds: [] });
      if (told.state !== 'live') continue;
      items += 1;
      const { lastWrite } = told;
      const written = lastWrite === undefined ? {} : { writtenAtMs: lastWrite.atMs, ttl: lastWrite.ttl };
      await onRow?.({ id, partitionKey, life: facts.life, ...written });
    }
    return items;
  };
}
