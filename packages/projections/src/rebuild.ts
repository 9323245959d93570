import {
  clientEncryptionKeyStream,
  parseClientEncryptionKeyStream,
} from '@epitaph/core/client-encryption-key/stream-name.ts';
import { containerStream, parseContainerStream } from '@epitaph/core/container/stream-name.ts';
import { readContainerEvent } from '@epitaph/core/container/upcast.ts';
import { databaseStream, parseDatabaseStream } from '@epitaph/core/database/stream-name.ts';
import { assertEndNotLost, endLost, eventsLost } from '@epitaph/core/item/read-life.ts';
import { parseItemStream } from '@epitaph/core/item/stream-name.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { streamPages } from '@epitaph/core/log/stream-pages.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { Pace, turn } from '@epitaph/core/turn.ts';
import { UnreadableEvent } from '@epitaph/core/upcast.ts';
import { parseScriptStream, scriptStream } from '@epitaph/core/script/stream-name.ts';
import { readScriptEvent } from '@epitaph/core/script/upcast.ts';
import { parseUserStream, userStream } from '@epitaph/core/user/stream-name.ts';
import { readUserEvent } from '@epitaph/core/user/upcast.ts';
import { Catalog } from './catalog/catalog.ts';
import { changesOf } from './changes.ts';
import { ClearCopies, type ClearSources } from './items/clear-copies.ts';
import { LogMarks } from './log-marks.ts';
import type { ContainerNumber, ReadModelChange, ReadModelSnapshot, ReadModelVersions } from './read-model-store.ts';

/** How many events are decoded at a time. That takes a few milliseconds, and requests have their turn between two pages. */
const PAGE_EVENTS = 250;
/** How many events are applied in one transaction. Fewer if reading them takes longer than a second. */
const BATCH_EVENTS = 2_000;
/** How many differences are listed. All are counted. */
const MAX_NAMED_DIFFERENCES = 100;

export interface RebuildProgress {
  readonly phase: 'reading' | 'comparing';
  readonly version: number;
  /** Where an interrupted rebuild was when this one continued it. 0 for a rebuild from the start. */
  readonly resumedFrom: number;
  readonly position: number;
  readonly headPosition: number;
}

export interface RebuildOptions extends ClearSources {
  readonly log: EventLog;
  readonly versions: ReadModelVersions;
  readonly signal: AbortSignal;
  /** True if an abort only postpones the work: what is built by then is kept, to be continued. */
  readonly keepsWhenAborted: () => boolean;
  /** How many events are read per second at most. Unlimited if not given. */
  readonly eventsPerSecond?: number | undefined;
  readonly monotonicMs: () => number;
  /** Resolves after some milliseconds, or early when the signal is aborted. */
  readonly wait: (milliseconds: number, signal: AbortSignal) => Promise<void>;
  readonly onProgress: (progress: RebuildProgress) => void;
  /**
   * Runs a step while the live projector is stopped, so that the old and the new version can be kept at the same
   * position and swapped. Reads continue in the meantime, and writes wait.
   */
  readonly whileProjectorStops: (step: () => Promise<void>) => Promise<void>;
}

/** A container that is not the same in both versions; or the catalog (databases, users, keys). */
export interface RebuildDifference {
  readonly part: 'catalog' | ContainerNumber;
  readonly itemsBefore: number;
  readonly itemsRebuilt: number;
}

export interface RebuildResult {
  readonly version: number;
  /** How the new version differs from the one that was in use. Undefined if the two could not be compared. */
  readonly differences: { readonly count: number; readonly named: readonly RebuildDifference[] } | undefined;
}

/**
 * Builds a new version of the read models from the log, beside the one in use, and swaps them when it has caught up. A
 * rebuild that was interrupted by a crash is continued by the next one. Until the swap the old version stays in use.
 *
 * @throws the signal's reason when it is aborted
 * @throws {UnreadableEvent} if the log has lost an event of a container, a database, a user or a key
 */
export async function rebuild(options: RebuildOptions): Promise<RebuildResult> {
  const { log, versions, signal } = options;
  const building = await Building.start(options);
  let swapped = false;
  try {
    await building.readTo(await building.liveCheckpoint());
    const differences = await compare(options, building);
    await building.readTo(await log.head());
    await building.assertWhole();
    await options.whileProjectorStops(async () => {
      await building.readTo(await log.head());
      signal.throwIfAborted();
      await versions.swapTo(building.version);
      swapped = true;
    });
    return { version: building.version, differences };
  } finally {
    const keeps = signal.aborted && options.keepsWhenAborted();
    if (!swapped && !keeps) await versions.discard(building.version);
  }
}

type Built = Awaited<ReturnType<ReadModelVersions['createNext']>>;

/** The version that is being built, and its progress. */
class Building {
  readonly #options: RebuildOptions;
  readonly #next: Built;
  #catalog: Catalog;
  #logMarks: LogMarks;
  readonly #resumedFrom: number;
  readonly #startedMs: number;
  readonly #clearCopies: ClearCopies;
  #position: number;
  #eventsRead = 0;
  /** See {@link readTo}. */
  #isLenient = true;
  /**
   * Whether the log lacks positions, by truncation or damage. Also true if that is not known, because not all of it was
   * read here.
   */
  #hasGaps: boolean;

  private constructor(options: RebuildOptions, next: Built, catalog: Catalog, logMarks: LogMarks, position: number) {
    this.#options = options;
    this.#next = next;
    this.#catalog = catalog;
    this.#logMarks = logMarks;
    this.#clearCopies = new ClearCopies(options);
    this.#position = position;
    this.#resumedFrom = position;
    this.#hasGaps = position > 0;
    this.#startedMs = options.monotonicMs();
  }

  static async start(options: RebuildOptions): Promise<Building> {
    const { versions, log } = options;
    let next = await versions.openUnfinished();
    let position = next === undefined ? 0 : await next.store.checkpoint();
    if (next !== undefined && position > (await log.head())) {
      // A log that was restored from a backup is shorter than the log that these read models were built from.
      await versions.discard(next.version);
      next = undefined;
      position = 0;
    }
    next ??= await versions.createNext();
    const { store } = next;
    const building = new Building(options, next, await Catalog.load(store), await LogMarks.load(store), position);
    await building.tell('reading');
    return building;
  }

  get version(): number {
    return this.#next.version;
  }

  get position(): number {
    return this.#position;
  }

  async liveCheckpoint(): Promise<number> {
    return this.#options.versions.current.store.checkpoint();
  }

  snapshot(): Promise<ReadModelSnapshot> {
    return this.#next.store.snapshot();
  }

  /**
   * Reads the log up to a position, and no event after it. A purged life has the same result with its truncated events
   * and without them. Only if a scavenge has left some of them, a later write may not find its item. Then the rebuild
   * continues strictly from what is applied, without truncated events.
   */
  async readTo(position: number): Promise<void> {
    try {
      await this.#readTo(position);
    } catch (error) {
      if (!this.#isLenient || this.#options.signal.aborted) throw error;
      this.#isLenient = false;
      this.#position = await this.#next.store.checkpoint();
      this.#catalog = await Catalog.load(this.#next.store);
      this.#logMarks = await LogMarks.load(this.#next.store);
      await this.#readTo(position);
    }
  }

  /**
   * Checks that the log has lost nothing that the catalog is made from. Without an event of a stream the new version
   * would have a policy, a recovery window or a permission that had ended, while the version in use may be right. The
   * streams are read once more for this, because what was read before a fault or a stop is not known any more, and
   * nothing follows a last event to tell that it is lost.
   *
   * @throws {UnreadableEvent} if the log has lost any of it, unless somebody has stated since what applies
   *   nevertheless; or the end of an item
   */
  async assertWhole(): Promise<void> {
    const { log } = this.#options;
    const pace = new Pace();
    for (const stream of catalogStreams(this.#catalog)) {
      let next = 0;
      let lost: UnreadableEvent | undefined;
      for await (const events of streamPages(log, stream, this.#options.signal)) {
        for (const event of events) {
          if (event.revision !== next) lost = eventsLost(event);
          const unreadable = whyNotRead(event);
          lost = unreadable ?? lost;
          if (unreadable === undefined && event.type === 'ContainerTtlChanged' && event.data['afterLoss'] === true) {
            lost = undefined;
          }
          next = event.revision + 1;
        }
      }
      if (lost !== undefined) throw lost;
      await assertEndNotLost(log, stream);
      await pace.step();
    }
    // The lost event of an item may be its deletion, and the item would be shown again. And a life that has lost its
    // only event would be missing.
    for await (const stream of log.lostEnds?.(this.#hasGaps ? 0 : this.#position) ?? []) {
      if (isOfResource(stream)) throw endLost(stream);
    }
  }

  async #readTo(position: number): Promise<void> {
    const { log, signal } = this.#options;
    let changes: ReadModelChange[] = [];
    let events = 0;
    let under: Promise<void> = Promise.resolve();
    /** One batch is applied while the next is read. */
    const apply = async (upTo: number) => {
      await under;
      under = this.#apply(changes, upTo);
      // The next one to wait for it gets the error.
      under.catch(() => {});
      changes = [];
      events = 0;
    };
    try {
      for (let read = this.#position; read < position;) {
        signal.throwIfAborted();
        const page = await log.readAll(read, this.#pageSize(), { withBodies: false, mayBeTruncated: this.#isLenient });
        const within = page.filter((event) => event.position <= position);
        if (within.length > 0) {
          for (const change of changesOf(within, this.#catalog)) changes.push(change);
          changes.push(...this.#logMarks.after(within));
          events += within.length;
          this.#eventsRead += within.length;
          const { position: upTo } = within.at(-1)!;
          this.#hasGaps ||= upTo - read !== within.length;
          read = upTo;
        }
        const last = within.length < page.length || page.length === 0 || read === position;
        if (events >= this.#batchSize() || (last && events > 0)) await apply(read);
        if (last) break;
        await this.#giveWay();
      }
    } catch (error) {
      // The caller may throw away what is built or continue from it, so it must come after the batch in progress.
      await under.catch(() => {});
      throw error;
    }
    await under;
  }

  async #apply(changes: readonly ReadModelChange[], upTo: number): Promise<void> {
    await this.#next.store.apply(await this.#clearCopies.addTo(changes, this.#catalog), upTo, this.#position);
    this.#position = upTo;
    await this.tell('reading');
  }

  async tell(phase: RebuildProgress['phase']): Promise<void> {
    const headPosition = await this.#options.log.head();
    const { version } = this;
    this.#options.onProgress({
      phase,
      version,
      resumedFrom: this.#resumedFrom,
      position: this.#position,
      headPosition,
    });
  }

  #pageSize(): number {
    const { eventsPerSecond = Number.POSITIVE_INFINITY } = this.#options;
    // A tenth of a second's worth of events, so that a slow rebuild is an even load.
    return Math.max(1, Math.min(PAGE_EVENTS, Math.floor(eventsPerSecond / 10)));
  }

  #batchSize(): number {
    return Math.min(BATCH_EVENTS, this.#options.eventsPerSecond ?? BATCH_EVENTS);
  }

  /** Lets requests have their turn, and waits as long as the limit demands. */
  async #giveWay(): Promise<void> {
    const { eventsPerSecond, monotonicMs, wait, signal } = this.#options;
    const dueMs = eventsPerSecond === undefined ? 0 : (this.#eventsRead * 1000) / eventsPerSecond;
    const waitMs = dueMs - (monotonicMs() - this.#startedMs);
    if (waitMs <= 0) await turn();
    else await wait(waitMs, signal);
  }
}

/** Why an event can't be read. Other streams need no check: an unreadable event in one would have stopped the rebuild before. */
function whyNotRead(event: RecordedEvent): UnreadableEvent | undefined {
  try {
    if (parseContainerStream(event.stream) !== undefined) readContainerEvent(event);
    else if (parseUserStream(event.stream) !== undefined) readUserEvent(event);
    else if (parseScriptStream(event.stream) !== undefined) readScriptEvent(event);
    return undefined;
  } catch (error) {
    if (error instanceof UnreadableEvent) return error;
    throw error;
  }
}

const isOfResource = (stream: string): boolean =>
  [parseItemStream, parseDatabaseStream, parseClientEncryptionKeyStream, parseScriptStream].some(
    (parse) => parse(stream) !== undefined,
  );

function* catalogStreams(catalog: Catalog): Generator<string> {
  for (const { state } of catalog.allContainers()) {
    yield containerStream(state.rid);
    for (const script of catalog.scriptsOf(state.rid)) yield scriptStream(script.rid);
  }
  for (const { rid } of catalog.liveDatabases()) {
    yield databaseStream(rid);
    for (const { state } of catalog.entriesOf('user', rid)) yield userStream(state.rid);
    for (const { state } of catalog.entriesOf('client-encryption-key', rid)) {
      yield clientEncryptionKeyStream(state.rid);
    }
  }
}

/**
 * Compares the version in use with the new one, part by part. For a moment both are kept at the same position to take
 * snapshots. The comparison itself goes on beside reads and writes.
 */
async function compare(options: RebuildOptions, building: Building): Promise<RebuildResult['differences']> {
  const { versions, signal } = options;
  const snapshots: ReadModelSnapshot[] = [];
  try {
    await options.whileProjectorStops(async () => {
      const live = await building.liveCheckpoint();
      await building.readTo(live);
      // The version in use may be behind what was built before a crash. Then only the new one is complete.
      if (building.position > live) return;
      snapshots.push(await versions.current.store.snapshot());
      snapshots.push(await building.snapshot());
    });
    const [before, rebuilt] = snapshots;
    if (before === undefined || rebuilt === undefined) return undefined;
    await building.tell('comparing');
    const digests = await rebuilt.digests(signal);
    return differencesOf(await before.digests(signal).catch(unlessDamaged), digests);
  } finally {
    for (const snapshot of snapshots) await snapshot.close();
  }
}

/** A version in use that can't be read is what a rebuild is for. It is not compared. */
function unlessDamaged(error: unknown): undefined {
  if (!(error instanceof StorageUnavailable && error.isForOperator)) throw error;
}

function differencesOf(
  before: Awaited<ReturnType<ReadModelSnapshot['digests']>> | undefined,
  rebuilt: Awaited<ReturnType<ReadModelSnapshot['digests']>>,
): RebuildResult['differences'] {
  if (before === undefined) return undefined;
  let count = 0;
  const named: RebuildDifference[] = [];
  for (const part of new Set([...before.keys(), ...rebuilt.keys()])) {
    const [old, now] = [before.get(part), rebuilt.get(part)];
    if (old?.digest === now?.digest) continue;
    count += 1;
    if (named.length < MAX_NAMED_DIFFERENCES) {
      named.push({ part, itemsBefore: old?.items ?? 0, itemsRebuilt: now?.items ?? 0 });
    }
  }
  return { count, named };
}
