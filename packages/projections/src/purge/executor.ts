import type { CommandContext } from '@epitaph/core/command-context.ts';
import { lastBeforeItLeft, leftWithPartitionKey } from '@epitaph/core/container/partition-key-deletes.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { unrecordedEnd } from '@epitaph/core/item/decide.ts';
import { isItemWrite, type ItemPurged, type PurgeCause } from '@epitaph/core/item/events.ts';
import { evolveItem } from '@epitaph/core/item/evolve.ts';
import { handleLife } from '@epitaph/core/item/handle.ts';
import { lifeTail } from '@epitaph/core/item/read-life.ts';
import { recordOfEnd } from '@epitaph/core/item/record-of-end.ts';
import { initialItemState, type ItemState } from '@epitaph/core/item/state.ts';
import { parseItemStream } from '@epitaph/core/item/stream-name.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { graceSeconds } from '@epitaph/core/retention/grace.ts';
import type { DestroyRequest } from '@epitaph/core/vault/key-vault.ts';
import type { CatalogContainer } from '../catalog/catalog.ts';
import { Destructions } from './destructions.ts';
import { isGone, type PurgePorts, stepContext } from './ports.ts';
import { despiteFaults, PurgeFault } from './faults.ts';
import { Truncations } from './truncations.ts';
import { type LifeReading, readWithBodies } from './life-reading.ts';
import type { EndedRow } from '../read-model-store.ts';

/** How many lives are handled at a time. Small enough that clients' requests are served in between. */
export const BATCH_SIZE = 256;
/** How many lives have their sealed bodies read at the same time. */
const READ_AT_ONCE = 32;

/** A life that is to be erased. */
export interface Candidate {
  readonly stream: string;
  readonly cause: PurgeCause;
  /** Set if the life ended by the start of a policy. */
  readonly byPolicyStart?: boolean;
  /** Set if the life is erased only when its container's waiting time after an end is over; in milliseconds. */
  readonly endedAtMs?: number;
}

/** A life whose key is to be destroyed. */
interface Dying {
  readonly candidate: Candidate;
  /** Its index among the lives given to be erased. */
  readonly index: number;
  readonly reading: LifeReading;
  readonly request: DestroyRequest;
  /** How long its key had to wait after the life's end, in seconds. */
  readonly graceSeconds: number;
}

/** A life whose key is destroyed. */
interface Gone extends Dying {
  readonly recoverableUntilMs: number | null;
  readonly checks: ItemPurged['checks'];
}

/** Called for each life that can't be erased, or whose erasure can't be recorded, in the order in which they are met. */
type NoteFault = (life: { readonly index: number }, fault: PurgeFault) => void;

type Demand = Pick<DemandedErasure, 'context' | 'isWanted'>;

/** An erasure by explicit request. */
export interface DemandedErasure {
  readonly lives: readonly { readonly stream: string; readonly cause: 'erasure' | 'container-deleted' }[];
  /** Who requests it, by which request, and when. */
  readonly context: CommandContext;
  /** Whether the erasure is still wanted: another node may have refused it. Called while nothing in the vault can change. */
  readonly isWanted?: (() => Promise<boolean>) | undefined;
}

export interface RefusedLife {
  /** Its index among the lives given to be erased. */
  readonly index: number;
  readonly stream: string;
  /** Holds that cover it, by their ids in the vault. */
  readonly holds: readonly string[];
  /** When the last floor over it will have passed, in milliseconds. Null if there is none. */
  readonly floorUntilMs: number | null;
  /** When the floor in the way will have passed, in milliseconds. Null if a hold is in the way, whose end is not known. */
  readonly untilMs: number | null;
}

export interface ErasedBatch {
  readonly purged: number;
  /** Lives whose key a hold or a floor keeps. */
  readonly refused: readonly RefusedLife[];
  /** Indexes of lives for which the log does not agree with what was given. */
  readonly left: readonly number[];
  /** Indexes of lives that can't be erased, or whose erasure can't be recorded. */
  readonly atFault: readonly number[];
  /** Set if one of the lives can't be erased, or its erasure can't be recorded. The erasures of the others are recorded. */
  readonly fault: PurgeFault | undefined;
}

const NOTHING_ERASED: ErasedBatch = { purged: 0, refused: [], left: [], atFault: [], fault: undefined };

/** Erases lives. Each step is one batch, is idempotent, and leaves a state from which the next run can continue. */
export class PurgeExecutor {
  readonly #ports: PurgePorts;
  readonly #destructions: Destructions;
  readonly truncations: Truncations;
  readonly #erasures = new Set<Promise<ErasedBatch>>();

  constructor(ports: PurgePorts) {
    this.#ports = ports;
    this.#destructions = new Destructions(ports.log, ports.sealer);
    this.truncations = new Truncations(ports);
  }

  /**
   * Erases lives that have ended, or that left with their container: first the key, then the record, then the sealed
   * bodies in the log. The lives may be in several containers.
   */
  async erase(lives: readonly Candidate[], nowMs: () => number): Promise<ErasedBatch> {
    return lives.length === 0 ? NOTHING_ERASED : this.#erase(lives, nowMs);
  }

  /**
   * Completes the erasure of those ended lives whose keys are destroyed already, because a crash or a fault came before
   * the record.
   *
   * @returns the first fault that was met, when all others are done
   */
  async finishErasures(rows: readonly EndedRow[], nowMs: () => number): Promise<PurgeFault | undefined> {
    const { log, vault } = this.#ports;
    const begun: EndedRow[] = [];
    const unreadable = await despiteFaults(rows, async (row) => {
      const [write] = await lifeTail(log, row.stream);
      if (write === undefined || !isItemWrite(write)) return;
      const key = await vault.findKey(Number(write.data['key']), row.stream);
      if (key.status === 'destroyed') begun.push(row);
    });
    const candidates = begun.map(({ stream, cause, byPolicyStart }) => ({ stream, cause, byPolicyStart }));
    const { fault } = await this.erase(candidates, nowMs);
    return unreadable ?? fault;
  }

  /**
   * Erases lives whether or not they have ended. A life that has not ended, ends by the erasure. For a life that is
   * already recorded as purged, removes what a crash has left in the log.
   */
  async eraseOnDemand(erasure: DemandedErasure, nowMs: () => number): Promise<ErasedBatch> {
    const { lives } = erasure;
    const erased = withoutFault(await this.#erase(lives, nowMs, erasure));
    for (const { stream } of lives) await this.truncations.finishLife(stream, nowMs());
    return erased;
  }

  /** Resolves when every erasure begun so far is recorded, or has failed. */
  async recorded(): Promise<void> {
    await Promise.allSettled(this.#erasures);
  }

  /** Resolves when no node erases anything any more that is due only by what was recorded before now. */
  async keptFromNow(): Promise<void> {
    await this.recorded();
    await this.#ports.vault.destructionsUnderWay?.();
  }

  #erase(candidates: readonly Candidate[], nowMs: () => number, demanded?: Demand): Promise<ErasedBatch> {
    const under = this.#eraseNow(candidates, nowMs, demanded).finally(() => this.#erasures.delete(under));
    this.#erasures.add(under);
    return under;
  }

  async #eraseNow(
    candidates: readonly Candidate[],
    nowMs: () => number,
    demanded: Demand | undefined,
  ): Promise<ErasedBatch> {
    const demandedBy = demanded?.context;
    const faults = new Map<number, PurgeFault>();
    const noteFault: NoteFault = ({ index }, fault) => void faults.set(index, fault);
    const found = await this.#dying(candidates, nowMs, demandedBy, noteFault);
    // By the present settings: the time in which a life can be brought back may have been changed since the life was
    // found to be past it, also by another node.
    if (demandedBy === undefined && found.length > 0) await this.#ports.confirmCatalog?.(0);
    const dying: Dying[] = [];
    for (const life of found.map((each) => this.#withGrace(each))) {
      if (isDue(life, nowMs())) dying.push(life);
      else if (!hasSameEnd(candidates[life.index]!, life.candidate)) noteFault(life, otherEnd(life.candidate.stream));
    }
    const { gone, refused, destructions } = await this.#destroyKeys(dying, nowMs, demanded, noteFault);
    this.#ports.onErased(gone.flatMap(({ reading }) => reading.writePositions));
    // The vault may have made it wait while a backup copied the keys. Until then the content was there, so the present
    // time is recorded.
    const demandedNow = demandedBy && { ...demandedBy, nowMs: Math.max(demandedBy.nowMs, nowMs()) };
    if (destructions !== undefined)
      await this.#destructions.record(demandedNow ?? stepContext(this.#ports, nowMs()), destructions);
    let position = 0;
    let purged = 0;
    const left = new Set(candidates.keys());
    for (const { index } of refused) left.delete(index);
    const record = async (life: Gone): Promise<void> => {
      const ended = demandedNow === undefined ? life : await this.#recordEnd(life, demandedNow);
      const recorded = await this.#recordPurge(ended, nowMs, demandedNow).catch((error: unknown) => {
        if (!(error instanceof PurgeFault)) this.truncations.doubt(life.candidate.stream);
        throw error;
      });
      left.delete(life.index);
      purged += 1;
      position = Math.max(position, recorded.position);
      // Only the end of the run waits for the truncation, because nobody can read any more what it removes. An erasure
      // on request truncates by itself. So each caller gets the errors of its own truncations and handles them.
      if (demandedBy === undefined) this.truncations.begin(life.candidate.stream, recorded, nowMs());
    };
    await despiteFaults(gone, record, noteFault);
    if (position > 0) await this.#ports.projected(position);
    for (const index of faults.keys()) left.delete(index);
    const [fault] = faults.values();
    return { purged, refused, left: [...left], atFault: [...faults.keys()], fault };
  }

  /**
   * Those lives that are still to be erased according to the log, which is asked at the last moment; with what the log
   * has of them.
   */
  async #dying(
    candidates: readonly Candidate[],
    nowMs: () => number,
    demandedBy: CommandContext | undefined,
    noteFault: NoteFault,
  ): Promise<Omit<Dying, 'graceSeconds'>[]> {
    const { log, sealer } = this.#ports;
    const lives: Omit<Dying, 'graceSeconds'>[] = [];
    const look = async ({ candidate, index }: { readonly candidate: Candidate; readonly index: number }) => {
      const reading = await readWithBodies(log, sealer, candidate.stream);
      if (reading === undefined) throw new PurgeFault(`the event log has nothing of ${candidate.stream} any more`);
      const { last, lastWrite } = reading;
      const state = evolveItem(initialItemState, last.read, last.recorded.id);
      if (state.status === 'none' || state.status === 'purged') return;
      // A live life stays, unless its container is deleted or its erasure was requested.
      if (state.status === 'live' && candidate.cause !== 'container-deleted' && candidate.cause !== 'erasure') return;
      // The last write says which key the life has. Only a purge removes it.
      if (lastWrite === undefined) {
        throw new PurgeFault(`the event log has no writes of ${candidate.stream} any more, although it is not purged`);
      }
      if (demandedBy === undefined && (await this.#leftEarlier(candidate, state, lastWrite.recorded))) return;
      lives.push({
        candidate: byItsEnd(candidate, last),
        index,
        reading,
        request: {
          keyId: lastWrite.read.data.key,
          stream: candidate.stream,
          lastWriteTs: Math.floor(lastWrite.recorded.occurredAtMs / 1000),
          lastEventAtMs: last.recorded.occurredAtMs,
          nowMs: nowMs(),
          ...(demandedBy === undefined ? {} : { onDemand: true as const }),
        },
      });
    };
    const indexed = candidates.map((candidate, index) => ({ candidate, index }));
    for (let from = 0; from < indexed.length; from += READ_AT_ONCE) {
      await despiteFaults(indexed.slice(from, from + READ_AT_ONCE), look, noteFault);
    }
    return lives;
  }

  #withGrace(life: Omit<Dying, 'graceSeconds'>): Dying {
    return { ...life, graceSeconds: this.#graceSecondsOf(life.candidate) };
  }

  /** For how many seconds after its end a life can be brought back, by the present state of its container. */
  #graceSecondsOf({ stream, cause, byPolicyStart = false }: Candidate): number {
    const container = this.#containerOf(stream);
    if (cause === 'erasure' || container === undefined || isGone(this.#ports, container)) return 0;
    return graceSeconds(container.state, byPolicyStart);
  }

  /** Has the vault destroy the keys of some lives, except those that something keeps. */
  async #destroyKeys(
    lives: readonly Dying[],
    nowMs: () => number,
    demanded: Demand | undefined,
    noteFault: NoteFault,
  ): Promise<{
    readonly gone: readonly Gone[];
    readonly refused: readonly RefusedLife[];
    /** The vault's count of destructions after these, if it counts them. */
    readonly destructions: number | undefined;
  }> {
    const { vault, confirmCatalog } = this.#ports;
    let asked = lives;
    // It may have taken long to get this turn in the vault. A node that has set a window or a grace in the meantime
    // waits for the next turn, and after that nothing is erased that it keeps.
    const areDue = async () => {
      await confirmCatalog?.(0);
      asked = lives.map((life) => this.#withGrace(life));
      return asked.map((life) => isDue(life, nowMs()));
    };
    const isWanted = demanded?.isWanted;
    const areWanted = isWanted && (() => isWanted().then((wanted) => lives.map(() => wanted)));
    const areDueNow = confirmCatalog === undefined ? undefined : areDue;
    const requests = lives.map((life) => life.request);
    const outcomes = await vault.destroyKeys(requests, demanded === undefined ? areDueNow : areWanted);
    // Asked after the keys are gone, because a backup that begins later has none of them.
    const copiesKeptUntilMs = this.#ports.copiesKeptUntilMs();
    const gone: Gone[] = [];
    const refused: RefusedLife[] = [];
    let destructions: number | undefined;
    for (const [place, life] of asked.entries()) {
      const outcome = outcomes[place]!;
      const { stream } = life.candidate;
      if (outcome.kind === 'not-due') continue;
      if (outcome.kind === 'refused') {
        const { holds, floorUntilMs } = outcome;
        refused.push({
          index: life.index,
          stream,
          holds,
          floorUntilMs,
          untilMs: holds.length > 0 ? null : floorUntilMs,
        });
      } else if (outcome.kind === 'unknown') {
        // Nothing may claim that this content was erased. It stays visible as a problem to fsck and operators.
        noteFault(life, new PurgeFault(`the vault does not know the key of ${stream}`));
      } else {
        destructions = outcome.destructions;
        // Copies that were made while the call waited for its turn in the vault have the key, too.
        const lateMs = Math.max(0, nowMs() - life.request.nowMs);
        const inCopiesUntilMs = outcome.recoverableUntilMs === undefined ? null : outcome.recoverableUntilMs + lateMs;
        gone.push({
          ...life,
          recoverableUntilMs: latest(inCopiesUntilMs, copiesKeptUntilMs),
          // For a key that was destroyed before a crash, it is not known which checks were made. For the others the
          // vault has made sure that no hold covered them.
          checks:
            outcome.kind === 'destroyed'
              ? { holds: 0, floorSeconds: outcome.floorSeconds ?? 0, graceSeconds: life.graceSeconds }
              : undefined,
        });
      }
    }
    return { gone, refused, destructions };
  }

  /**
   * Records how a life that is erased on request has ended since the decision, if it has: by its deadline, or with its
   * partition key. An erasure must not seem to be the end of a life that had ended before.
   *
   * @returns the life with its cause, which is another one if its container was deleted in the meantime
   */
  async #recordEnd(life: Gone, context: CommandContext): Promise<Gone> {
    const { candidate, reading } = life;
    const { recorded, read } = reading.last;
    if (candidate.cause !== 'erasure' || !isItemWrite(read)) return life;
    const { partitionKey } = read.data;
    const known = this.#containerOf(candidate.stream);
    const stood = known && (await lastBeforeItLeft(this.#ports.log, known.state, partitionKey, recorded));
    const underWay = () => {
      const within = this.#containerOf(candidate.stream);
      return within && this.#ports.changeUnderWay(within.state);
    };
    // A policy counts from its decision, which may be before this instant, but the catalog has it only once it is recorded.
    for (let change = underWay(); change !== undefined; change = underWay()) await change;
    const container = this.#containerOf(candidate.stream);
    if (container === undefined) return life;
    const goneAtMs = this.#ports.catalog().goneAtMs(container.state);
    const hasGone = goneAtMs !== null && goneAtMs <= context.nowMs;
    // No policy can begin at this instant any more, so the known ones decide whether the life has ended.
    this.#ports.onExpiriesRecorded(container.number, context.nowMs);
    const written = { partitionKey, position: (stood ?? recorded).position };
    const command = recordOfEnd(container.state, written, hasGone ? goneAtMs - 1 : context.nowMs);
    let isLive = false;
    const number = parseItemStream(candidate.stream)!.life;
    const { decision } = await handleLife(this.#ports, context, candidate.stream, number, ({ status }) => {
      isLive = status === 'live';
      return { kind: 'command', command };
    });
    const wentWithContainer = hasGone && isLive && decision.kind === 'refused';
    return wentWithContainer ? { ...life, candidate: { ...candidate, cause: 'container-deleted' } } : life;
  }

  /**
   * Records the purge of a life whose key is gone.
   *
   * @returns the position of the record, and what was read of the life
   * @throws {PurgeFault} when the log takes no record of it, however small
   */
  async #recordPurge(
    { candidate, request, recoverableUntilMs, checks, reading: before }: Gone,
    nowMs: () => number,
    demandedBy: CommandContext | undefined,
  ): Promise<{ readonly position: number; readonly reading: LifeReading }> {
    const { log, sealer } = this.#ports;
    const { id, partitionKey } = before.first.read.data;
    let reading = before;
    const context = demandedBy ?? stepContext(this.#ports, nowMs());
    let atMs = context.nowMs;
    const attempt = (most: number) =>
      handleLife(
        this.#ports,
        { ...context, nowMs: atMs },
        candidate.stream,
        parseItemStream(candidate.stream)!.life,
        async (_state, { last }) => {
          // An end may have been recorded since then, and no life is erased before its end.
          if (last !== undefined && last.occurredAtMs > atMs) {
            atMs = last.occurredAtMs;
            return { kind: 'again' };
          }
          // Another write to a live item may have been in progress, here or on another node. Its content is gone, too.
          if (last?.revision !== reading.last.recorded.revision) {
            reading = (await readWithBodies(log, sealer, candidate.stream)) ?? reading;
            this.#ports.onErased(reading.writePositions);
          }
          return {
            kind: 'command',
            command: {
              type: 'RecordPurge',
              id,
              partitionKey,
              cause: candidate.cause,
              key: request.keyId,
              recoverableUntilMs,
              ledger: reading.ledger(most),
              ...(candidate.cause === 'container-deleted' ? { firstPosition: reading.first.recorded.position } : {}),
              ...(checks === undefined ? {} : { checks }),
              remains: this.#remainsOf(reading),
            },
          };
        },
        reading.last.recorded,
      );
    const record = async (most: number) => {
      let handled = await attempt(most);
      while (handled.decision.kind === 'again') handled = await attempt(most);
      return handled;
    };
    const writes = before.writePositions.length;
    try {
      const { position = 0 } = await withFewerWrites(writes, record);
      return { position, reading };
    } catch (error) {
      // A server's limit for one event may be too small for any record. The key is gone, and other lives don't wait for this one.
      if (!isTooLarge(error)) throw error;
      throw new PurgeFault(
        `the purge of ${candidate.stream}, of ${writes} writes, can't be recorded: its record is larger than the event store accepts (MaxAppendSize)`,
      );
    }
  }

  /**
   * True for a life that is about to be erased with its container, but had expired before, or left with its partition
   * key. Its row may not say so yet, because rows may be behind the catalog. And this node's clock may be behind the
   * clock of the node that deleted the container, so that it has not reached the deadline.
   */
  async #leftEarlier({ stream, cause }: Candidate, state: ItemState, lastWrite: RecordedEvent): Promise<boolean> {
    const container = this.#containerOf(stream);
    if (cause !== 'container-deleted' || state.status !== 'live' || container === undefined) return false;
    const goneAtMs = this.#ports.catalog().goneAtMs(container.state);
    if (goneAtMs === null) return false;
    const { timeline } = container.state;
    const { log } = this.#ports;
    const left = await leftWithPartitionKey(log, container.state, state.lastWrite.partitionKey, lastWrite);
    return unrecordedEnd(state, { timeline, nowMs: goneAtMs - 1, leftWithPartitionKey: left }) !== undefined;
  }

  #containerOf(stream: string): CatalogContainer | undefined {
    return this.#ports.catalog().containerByRid(parseItemStream(stream)!.containerRid);
  }

  /** The sealed bodies can't be opened any more. What remains to be done is to remove their bytes. */
  #remainsOf({ sealedBytes }: LifeReading): NonNullable<ItemPurged['remains']> {
    return { sealedBytes, removedBy: this.#ports.log.scavenging === undefined ? 'truncation' : 'scavenge' };
  }
}

/** Whether the time in which a life can be brought back is over. */
const isDue = ({ candidate: { endedAtMs }, graceSeconds: seconds }: Dying, nowMs: number): boolean =>
  endedAtMs === undefined || endedAtMs + seconds * 1000 <= nowMs;

/**
 * A life that has ended is erased by its end in the log: its row may be damaged, or may still be that of an item, if
 * its container was deleted after the end.
 */
function byItsEnd(candidate: Candidate, { read, recorded }: LifeReading['last']): Candidate {
  if (candidate.cause === 'erasure' || (read.type !== 'ItemExpired' && read.type !== 'ItemDeleted')) return candidate;
  const [cause, byPolicyStart, endedAtMs] =
    read.type === 'ItemExpired'
      ? (['expired', read.data.byPolicyStart, read.data.expiredAtMs] as const)
      : (['deleted', false, read.data.withPartitionKey?.atMs ?? recorded.occurredAtMs] as const);
  const { stream } = candidate;
  return candidate.endedAtMs === undefined
    ? { stream, cause, byPolicyStart }
    : { stream, cause, byPolicyStart, endedAtMs };
}

const hasSameEnd = (one: Candidate, other: Candidate): boolean =>
  one.endedAtMs === other.endedAtMs && one.byPolicyStart === other.byPolicyStart;

/** Such a life comes up in each pass. Without this error each pass would record a run in which nothing is done. */
const otherEnd = (stream: string): PurgeFault =>
  new PurgeFault(
    `the end of ${stream} differs between the read models and the event log, by which it must not be erased yet; epitaph fsck says which is damaged`,
  );

/** @throws {PurgeFault} the fault of one of the lives, when the erasure of the others is recorded */
function withoutFault(batch: ErasedBatch): ErasedBatch {
  if (batch.fault !== undefined) throw batch.fault;
  return batch;
}

const isTooLarge = (error: unknown): boolean => error instanceof Refusal && error.code === 'too-large';

/**
 * Records a purge with all writes in its ledger. If the log refuses the record as too large, tries again with half as
 * many writes each time.
 */
async function withFewerWrites<Result>(writes: number, record: (most: number) => Promise<Result>): Promise<Result> {
  for (let most = Number.POSITIVE_INFINITY; ; most = Math.floor(Math.min(most, writes) / 2)) {
    try {
      return await record(most);
    } catch (error) {
      if (!isTooLarge(error) || Math.min(most, writes) < 4) throw error;
    }
  }
}

function latest(one: number | null, other: number | null): number | null {
  return one === null || other === null ? (one ?? other) : Math.max(one, other);
}
