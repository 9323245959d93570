import type { ExpiringAtOnce } from '@epitaph/core/container/commands.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import {
  HISTOGRAM_SECONDS,
  type PreviewSpans,
  previewSpans,
  type ProposedPolicy,
  type TimeSpan,
} from '@epitaph/core/history/preview.ts';
import { holdIdOf, recordedKind } from '@epitaph/core/retention/hold-names.ts';
import { type PolicyTimeline, policyToDecideBy } from '@epitaph/core/ttl/policy-timeline.ts';
import type { ContainerNumber } from '@epitaph/projections/read-model-store.ts';
import { erasureDelayMs } from '@epitaph/projections/purge/due-book.ts';
import type { CatalogApi, TtlPreview } from '../api/catalog-api.ts';
import type { StoreParts } from '../parts.ts';
import { countHeld } from './held-items.ts';

/** How many of the items that would expire at once are shown. */
const SAMPLE_ITEMS = 10;
/** How many holds a preview names. Of the others it gives the number. */
const NAMED_HOLDS = 100;

/** What a TTL policy would do, before it is applied. This only counts ranges of an index and reads no documents. */
export class Previews {
  readonly #parts: StoreParts;

  constructor(parts: StoreParts) {
    this.#parts = parts;
  }

  /** @throws Refusal container-not-found; bad-request for a time in the past, at which no change can take effect */
  readonly preview: CatalogApi['previewTtl'] = async (container, proposal) => {
    const { within, nowMs } = await this.#parts.moment(container);
    const { state, number } = within;
    const { defaultTtl, effectiveFromMs: wantedFromMs = nowMs } = proposal;
    assertNotPast(wantedFromMs, nowMs);
    // The same time as the change itself would use.
    const effectiveFromMs = Math.max(wantedFromMs, nowMs + (this.#parts.ports.nodes?.policyDelayMs ?? 0));
    const spans = previewSpans(policiesOf(state), { defaultTtl, effectiveFromMs }, nowMs);
    const { vault } = this.#parts.ports;
    const floorSeconds = (await vault.floors()).get(state.rid)?.retention ?? 0;
    const holds = await vault.holds(state.rid);
    const erasedFromMs = effectiveFromMs + erasureDelayMs(state, true);
    // A floor that has passed by then keeps nothing.
    const writtenAfter = Math.floor(erasedFromMs / 1000) - floorSeconds;
    const floored = spans.atOnce.map((span) => ({ ...span, writtenAfter }));
    const atOnce = await this.#count(number, spans.atOnce);
    const later = await Promise.all(spans.later.map((bar) => this.#count(number, bar)));
    const never = await this.#count(number, spans.never);
    const odd = await this.#parts.readModel.countOddTtls(number, spans.before);
    const own = spans.never.filter(({ by }) => by === 'own');
    const { expiring, oldestTs } = atOnce;
    const items = [atOnce, never, ...later].reduce((sum, counted) => sum + counted.expiring, odd.never);
    return {
      from: policyToDecideBy(state.timeline, effectiveFromMs).defaultTtl,
      to: defaultTtl,
      effectiveFromMs,
      items,
      atOnce: { items: expiring, oldestTs, sample: await this.#sample(number, spans) },
      erasedFromMs,
      later: HISTOGRAM_SECONDS.map((seconds, index) => ({
        withinSeconds: Number.isFinite(seconds) ? seconds : null,
        items: later[index]!.expiring,
      })),
      never: never.expiring + odd.never,
      kept: {
        floorSeconds,
        byFloor: floorSeconds === 0 ? 0 : (await this.#count(number, floored)).expiring,
        byHolds: await countHeld(
          this.#parts,
          { rid: state.rid, container: number, spans: spans.atOnce, marks: spans.before, items: expiring },
          holds.map(({ scope }) => scope),
        ),
        holds: holds
          .slice(0, NAMED_HOLDS)
          .map(({ holdId, scope }) => ({ holdId: holdIdOf(state.rid, holdId), scope: recordedKind(scope) })),
        ...(holds.length > NAMED_HOLDS ? { moreHolds: holds.length - NAMED_HOLDS } : {}),
      },
      inertTtls: defaultTtl === null ? (await this.#count(number, own)).expiring + odd.never : 0,
      unreadableTtls: odd.unreadable,
      brake: state.brake ?? null,
    };
  };

  /**
   * What a change would make expire at once, by the projected state. For a caller that is about to make the change:
   * nothing here waits for the change itself.
   */
  async expiringAtOnce(
    container: ContainerNumber,
    state: ContainerState,
    proposal: ProposedPolicy,
  ): Promise<ExpiringAtOnce> {
    const spans = previewSpans(policiesOf(state), proposal);
    const { expiring } = await this.#count(container, spans.atOnce);
    return { items: expiring, of: await this.#parts.readModel.countVisible(container, spans.before) };
  }

  async #count(
    container: ContainerNumber,
    spans: readonly TimeSpan[],
  ): Promise<{ readonly expiring: number; readonly oldestTs: number | null }> {
    const counted = await this.#parts.readModel.countByTimes(container, spans);
    const oldest = counted.flatMap(({ oldestTs }) => (oldestTs === null ? [] : [oldestTs]));
    return {
      expiring: counted.reduce((sum, { items }) => sum + items, 0),
      oldestTs: oldest.length === 0 ? null : Math.min(...oldest),
    };
  }

  async #sample(container: ContainerNumber, { atOnce }: PreviewSpans): Promise<TtlPreview['atOnce']['sample']> {
    const rows = [];
    for (const span of atOnce) rows.push(...(await this.#parts.readModel.itemsByTimes(container, span, SAMPLE_ITEMS)));
    return rows
      .toSorted((left, right) => left.ts - right.ts)
      .slice(0, SAMPLE_ITEMS)
      .map(({ id, partitionKey, ts, ttl }) => ({ id, partitionKey, ts, ttl }));
  }
}

/**
 * In a container that has lost events, unrecorded expiries do not count: the lost events may include a change of its
 * TTL.
 */
const policiesOf = ({ timeline, lacksEvents }: ContainerState): PolicyTimeline =>
  lacksEvents === true ? [] : timeline;

/** @throws Refusal bad-request for a change of policy that would begin before it is made */
export function assertNotPast(effectiveFromMs: number, nowMs: number): void {
  if (effectiveFromMs >= nowMs) return;
  throw new Refusal('bad-request', "A TTL change can't take effect in the past.");
}
