import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import { isItemWrite } from '@epitaph/core/item/events.ts';
import { containerPrefix } from '@epitaph/core/item/stream-name.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { isInScope } from '@epitaph/core/partition-key/scope.ts';
import { isExpired } from '@epitaph/core/ttl/watermarks.ts';
import { turn } from '@epitaph/core/turn.ts';
import { unlessDamaged } from '@epitaph/core/upcast.ts';
import type { ChangeFeedRequest } from '../api/change-feed-api.ts';
import type { Moment } from '../parts.ts';

/** How many events are scanned at a time, and at most for one count. */
const SCAN_SIZE = 2_000;
const MAX_EXAMINED = 20_000;
/** The most changes of one feed that are counted exactly. */
const MAX_COUNTED = 5_000;
/** The size of the cache for all feeds together, in changes. */
const MAX_REMEMBERED = 100_000;
/** The size of a feed in the cache in addition to its changes. */
const FEED = 100;

/** A feed's changes between two positions of the log. */
interface Counted {
  readonly from: number;
  /** There is no change up to and including this position. */
  readonly quietUpTo: number;
  readonly upTo: number;
  /** The position of each change, by the key that occurs once in the feed: the item's stream, or the position of a version. */
  readonly changes: ReadonlyMap<string, number>;
}

type Feed = Pick<ChangeFeedRequest, 'mode' | 'scope' | 'notBeforeMs' | 'signal'>;

/**
 * Counts the changes of a feed after a position, for programs that monitor its readers (lag estimators). They ask again and
 * again from the same position, and a reader of single changes asks from one position after the other. So the counts are
 * cached, and each part of the log is scanned once.
 */
export class ChangesLeft {
  readonly #log: EventLog;
  readonly #counted = new GenerationCache<string, Counted>(MAX_REMEMBERED, ({ changes }) => FEED + changes.size);

  constructor(log: EventLog) {
    this.#log = log;
  }

  /** The position at which a scan for changes after `after` can begin. Earlier scans have found nothing up to it. */
  start(moment: Moment, feed: Feed, after: number): number {
    return this.#known(nameOf(moment, feed), after).quietUpTo;
  }

  /** Notes that a scan has found no change after `after`, up to and including `upTo`. */
  foundNothing(moment: Moment, feed: Feed, after: number, upTo: number): void {
    const name = nameOf(moment, feed);
    const known = this.#known(name, after);
    if (upTo <= known.quietUpTo) return;
    const changes = behind(known.changes, upTo);
    this.#counted.set(name, { from: known.from, quietUpTo: upTo, upTo: Math.max(upTo, known.upTo), changes });
  }

  /**
   * The number of changes after `after`, up to and including `upTo`. Beyond the limits of one count, it is estimated from the
   * number of events, which may be of other containers.
   */
  async count(moment: Moment, feed: Feed, after: number, upTo: number): Promise<number> {
    const name = nameOf(moment, feed);
    const known = this.#known(name, after);
    const changes = new Map(known.changes);
    let position = known.upTo;
    for (let examined = 0; position < upTo && examined < MAX_EXAMINED && changes.size < MAX_COUNTED;) {
      feed.signal?.throwIfAborted();
      const prefix = containerPrefix(moment.within.state.rid);
      const part = await this.#log.scan(position, SCAN_SIZE, prefix, { mayBeTruncated: true });
      if (part.position <= position) break;
      for (const event of part.events) {
        if (event.position <= upTo) note(changes, moment, feed, event);
      }
      position = Math.min(upTo, part.position);
      examined += SCAN_SIZE;
      await turn();
    }
    this.#counted.set(name, { ...known, upTo: Math.max(position, known.upTo), changes });
    return changes.size + Math.max(0, Math.ceil((upTo - position) / (this.#log.positionsPerEvent ?? 1)));
  }

  #known(name: string, after: number): Counted {
    const known = this.#counted.get(name);
    if (known === undefined || after < known.from || after > known.upTo) {
      return { from: after, quietUpTo: after, upTo: after, changes: new Map() };
    }
    if (after <= known.quietUpTo) return known;
    return { from: after, quietUpTo: after, upTo: known.upTo, changes: behind(known.changes, after) };
  }
}

const behind = (changes: ReadonlyMap<string, number>, after: number): ReadonlyMap<string, number> =>
  new Map([...changes].filter(([, position]) => position > after));

const nameOf = ({ within }: Moment, { mode, scope, notBeforeMs }: Feed): string =>
  JSON.stringify([within.number, mode, scope, notBeforeMs]);

function note(
  changes: Map<string, number>,
  { within, marks }: Moment,
  { mode, scope, notBeforeMs }: Feed,
  recorded: RecordedEvent,
): void {
  if (notBeforeMs !== undefined && recorded.occurredAtMs < notBeforeMs) return;
  const { stream, position } = recorded;
  try {
    const event = readItemEvent(recorded);
    if (!isInScope(within.state.definition, scope, event.data.partitionKey)) return;
    if (mode === 'all-versions') {
      if (event.type !== 'ItemPurged') changes.set(String(position), position);
    } else if (isItemWrite(event) && !isExpired(event.data, marks)) changes.set(stream, position);
    else changes.delete(stream);
  } catch (error) {
    unlessDamaged(error);
    // An unreadable event counts as a change, since the reader will get an error at its position.
    changes.set(String(position), position);
  }
}
