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

/** Events decoded at a time: it takes a few milliseconds, and between two pages requests have their turn. */
const PAGE_EVENTS = 250;
/** Events applied in one transaction; fewer when they take longer than a second to read. */
const BATCH_EVENTS = 2_000;
/** Differences that are named; the rest is counted. */
const MAX_NAMED_DIFFERENCES = 100;

export interface RebuildProgress {
  readonly phase: 'reading' | 'comparing';
  readonly version: number;
  /** Where a rebuild that was cut short had come to, when this one goes on with it; 0 for one from the start. */
  readonly resumedFrom: number;
  readonly position: number;
  readonly headPosition: number;
}

export interface RebuildOptions extends ClearSources {
  readonly log: EventLog;
  readonly versions: ReadModelVersions;
  readonly signal: AbortSignal;
  /** True when an abort only puts the work off: what is built by then is kept, to be gone on with. */
  readonly keepsWhenAborted: () => boolean;
  /** Events that are read in a second at most; as fast as it goes when not given. */
  readonly eventsPerSecond?: number | undefined;
  readonly monotonicMs: () => number;
  /** Resolves after some milliseconds, or early when the signal is aborted. */
  readonly wait: (milliseconds: number, signal: AbortSignal) => Promise<void>;
  readonly onProgress: (progress: RebuildProgress) => void;
  /**
   * Runs a step while the live projector stands still, so that old and new can be held at the same position, and
   * swapped. Reads go on meanwhile, and writes wait for the moment.
   */
  readonly whileProjectorStops: (step: () => Promise<void>) => Promise<void>;
}

/** A container whose contents the two versions have differently, or the catalog (databases, users, keys). */
export interface RebuildDifference {
  readonly part: 'catalog' | ContainerNumber;
  readonly itemsBefore: number;
  readonly itemsRebuilt: number;
}

export interface RebuildResult {
  readonly version: number;
  /** What was found different from the version that was in use; undefined when the two could not be compared. */
  readonly differences: { readonly count: number; readonly named: readonly RebuildDifference[] } | undefined;
}

/**
 * Builds a new version of the read models from the log, beside the one in use, and swaps them when it has caught
 * up. What a crash has cut short is gone on with by the next rebuild; until the swap the old version is in use.
 *
 * @throws the signal's reason when it is aborted
 * @throws {UnreadableEvent} where the log has lost an event of a container, a database, a user or a key
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

/** The version that is being built, and how far it is. */
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
  /** Whether the log lacks positions, by truncation or by damage; or may, where they were not all read here. */
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
      // A log that was restored from a backup is shorter than what was built from the one before.
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
   * Reads the log up to a position, and no event beyond it. A purged life comes to the same with its truncated events
   * and without; only where a scavenge has left a part of them a later write may not find its item. Then it goes on
   * from what is applied with those events that stand.
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
   * Made without an event of a stream they would have a policy, a recovery window or a permission that had ended; those in use
   * may have it right. What was read before a fault, or a stop, is not known any more, nor does anything come after a last event to
   * tell that it is lost: so all that the catalog comes from is looked through once more.
   *
   * @throws {UnreadableEvent} where the log has lost any of it, unless somebody has said since what holds all the same, or the end of an item
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
    // An item's may have been its deletion: it would be shown again. And what has lost its only event would be gone.
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
      // Whoever waits for it next is told.
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
      // Whoever throws away what is built, or goes on from it, comes after what is still being applied.
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
    // A tenth of a second's worth, so that a slow rebuild is an even load.
    return Math.max(1, Math.min(PAGE_EVENTS, Math.floor(eventsPerSecond / 10)));
  }

  #batchSize(): number {
    return Math.min(BATCH_EVENTS, this.#options.eventsPerSecond ?? BATCH_EVENTS);
  }

  /** Lets requests have their turn, and waits for as long as the cap demands. */
  async #giveWay(): Promise<void> {
    const { eventsPerSecond, monotonicMs, wait, signal } = this.#options;
    const dueMs = eventsPerSecond === undefined ? 0 : (this.#eventsRead * 1000) / eventsPerSecond;
    const waitMs = dueMs - (monotonicMs() - this.#startedMs);
    if (waitMs <= 0) await turn();
    else await wait(waitMs, signal);
  }
}

/** Of others no event that can't be read has come so far. */
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
 * Compares the version in use with the new one, part by part. Both are held still at one position, which takes a
 * moment; the comparison itself goes on beside reads and writes.
 */
async function compare(options: RebuildOptions, building: Building): Promise<RebuildResult['differences']> {
  const { versions, signal } = options;
  const snapshots: ReadModelSnapshot[] = [];
  try {
    await options.whileProjectorStops(async () => {
      const live = await building.liveCheckpoint();
      await building.readTo(live);
      // The one in use may stand behind what was built before a crash: only the new one is complete then.
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

/** A version in use that can't be read is what a rebuild is for: it is not compared. */
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
