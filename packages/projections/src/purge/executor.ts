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

/** Lives handled at a time. Small enough that the requests of clients pass in between. */
export const BATCH_SIZE = 256;
/** Lives whose sealed bodies are looked at at once. */
const READ_AT_ONCE = 32;

/** A life that is to be erased. */
export interface Candidate {
  readonly stream: string;
  readonly cause: PurgeCause;
  /** Set when the life ended because a policy started. */
  readonly byPolicyStart?: boolean;
  /** Set when it is erased only after what its container waits for after an end is over; in milliseconds. */
  readonly endedAtMs?: number;
}

/** A life whose key is to be destroyed. */
interface Dying {
  readonly candidate: Candidate;
  /** Its index among the lives that were to be erased. */
  readonly index: number;
  readonly reading: LifeReading;
  readonly request: DestroyRequest;
  /** What its key had to wait for after its end, in seconds. */
  readonly graceSeconds: number;
}

/** A life whose key is destroyed. */
interface Gone extends Dying {
  readonly recoverableUntilMs: number | null;
  readonly checks: ItemPurged['checks'];
}

/** Told of each life that can't be erased, or whose erasure can't be recorded, in the order in which they are met. */
type NoteFault = (life: { readonly index: number }, fault: PurgeFault) => void;

type Demand = Pick<DemandedErasure, 'context' | 'isWanted'>;

/** An erasure that somebody demands. */
export interface DemandedErasure {
  readonly lives: readonly { readonly stream: string; readonly cause: 'erasure' | 'container-deleted' }[];
  /** Who demands it, for which request, and when. */
  readonly context: CommandContext;
  /** Whether it is still wanted, where another node may have refused it: asked when nothing in the vault can change. */
  readonly isWanted?: (() => Promise<boolean>) | undefined;
}

export interface RefusedLife {
  /** Its index among the lives that were to be erased. */
  readonly index: number;
  readonly stream: string;
  /** Holds that cover it, as the vault names them. */
  readonly holds: readonly string[];
  /** When the last floor over it has passed, in milliseconds; null for none. */
  readonly floorUntilMs: number | null;
  /** When the floor in the way has passed, in milliseconds; null while a hold is in the way, whose end nobody knows. */
  readonly untilMs: number | null;
}

export interface ErasedBatch {
  readonly purged: number;
  /** Lives whose key a hold or a floor keeps. */
  readonly refused: readonly RefusedLife[];
  /** Indexes of those that the log does not agree about with what was said of them. */
  readonly left: readonly number[];
  /** Indexes of those that can't be erased, or whose erasure can't be recorded. */
  readonly atFault: readonly number[];
  /** Set where one of them can't be erased, or its erasure can't be recorded. That of the others is on record. */
  readonly fault: PurgeFault | undefined;
}

const NOTHING_ERASED: ErasedBatch = { purged: 0, refused: [], left: [], atFault: [], fault: undefined };

/** Erases lives: each step is one batch, idempotent, and leaves a state from which the next run goes on. */
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
   * Erases lives that have ended, or that their container took with it: key, then record, then the sealed bodies in the
   * log. They may be of several containers.
   */
  async erase(lives: readonly Candidate[], nowMs: () => number): Promise<ErasedBatch> {
    return lives.length === 0 ? NOTHING_ERASED : this.#erase(lives, nowMs);
  }

  /**
   * Completes the erasure of those among some ended lives whose keys are destroyed already: a crash or a fault came
   * before the record.
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
   * Erases lives whether or not they have ended; those that have not, end by it. Of a life that is purged on record
   * already it removes what a crash has left in the log.
   */
  async eraseOnDemand(erasure: DemandedErasure, nowMs: () => number): Promise<ErasedBatch> {
    const { lives } = erasure;
    const erased = withoutFault(await this.#erase(lives, nowMs, erasure));
    for (const { stream } of lives) await this.truncations.finishLife(stream, nowMs());
    return erased;
  }

  /** Resolves when every erasure begun so far is on record, or has failed. */
  async recorded(): Promise<void> {
    await Promise.allSettled(this.#erasures);
  }

  /**
   * Resolves when nothing is erased any more, by any node, that only was due by what stood on record before now.
   */
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
    // By how it stands now: for how long a life can be brought back may have been changed since it was found to be over
    // that, also by another node.
    if (demandedBy === undefined && found.length > 0) await this.#ports.confirmCatalog?.(0);
    const dying: Dying[] = [];
    for (const life of found.map((each) => this.#withGrace(each))) {
      if (isDue(life, nowMs())) dying.push(life);
      else if (!hasSameEnd(candidates[life.index]!, life.candidate)) noteFault(life, otherEnd(life.candidate.stream));
    }
    const { gone, refused, destructions } = await this.#destroyKeys(dying, nowMs, demanded, noteFault);
    this.#ports.onErased(gone.flatMap(({ reading }) => reading.writePositions));
    // The vault may have let it wait, for as long as a backup copies the keys: until then the content was there.
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
      // Only the end of the run waits for the truncation: what it removes can't be read any more. A demanded erasure
      // truncates by itself. So each is told of its own faults, and sees to what they leave.
      if (demandedBy === undefined) this.truncations.begin(life.candidate.stream, recorded, nowMs());
    };
    await despiteFaults(gone, record, noteFault);
    if (position > 0) await this.#ports.projected(position);
    for (const index of faults.keys()) left.delete(index);
    const [fault] = faults.values();
    return { purged, refused, left: [...left], atFault: [...faults.keys()], fault };
  }

  /** Those of some lives that the log, asked at the last moment, still says are to be erased, as it has them. */
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
      // A life that is live stays, unless its container is gone or its erasure is demanded.
      if (state.status === 'live' && candidate.cause !== 'container-deleted' && candidate.cause !== 'erasure') return;
      // Its last write says which key it has. Only a purge takes it out.
      if (lastWrite === undefined) {
        throw new PurgeFault(`the event log has no writes any more of ${candidate.stream}, which is not purged`);
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

  /** For how long a life can be brought back after its end, by how its container stands now. */
  #graceSecondsOf({ stream, cause, byPolicyStart = false }: Candidate): number {
    const container = this.#containerOf(stream);
    if (cause === 'erasure' || container === undefined || isGone(this.#ports, container)) return 0;
    return graceSeconds(container.state, byPolicyStart);
  }

  /** Has the vault destroy the keys of some lives, as far as nothing keeps them. */
  async #destroyKeys(
    lives: readonly Dying[],
    nowMs: () => number,
    demanded: Demand | undefined,
    noteFault: NoteFault,
  ): Promise<{
    readonly gone: readonly Gone[];
    readonly refused: readonly RefusedLife[];
    /** The vault's count by which they are gone, where it counts. */
    readonly destructions: number | undefined;
  }> {
    const { vault, confirmCatalog } = this.#ports;
    let asked = lives;
    // It may have taken long until it was this one's turn in the vault: another node that has set a window or a grace since
    // waits for the turn after that, and then nothing goes any more that it keeps.
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
    // Asked now that the keys are gone: a backup that begins after this has none of them.
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
        // Copies that were made while it waited for its turn in the vault have the key, too.
        const lateMs = Math.max(0, nowMs() - life.request.nowMs);
        const inCopiesUntilMs = outcome.recoverableUntilMs === undefined ? null : outcome.recoverableUntilMs + lateMs;
        gone.push({
          ...life,
          recoverableUntilMs: latest(inCopiesUntilMs, copiesKeptUntilMs),
          // Which checks came before is not known any more of a key that was destroyed before a crash. Of others the vault
          // has made sure that no hold covered them.
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
   * Records how a life that is erased on demand has ended since that was decided, if it has: by its deadline, or with its
   * partition key. An erasure must not pass for the end of a life that had one already.
   *
   * @returns the life with its cause, which is another one where its container went meanwhile
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
    // A policy counts from when it was decided, which may be before this instant, but the catalog has it only when it is on record.
    for (let change = underWay(); change !== undefined; change = underWay()) await change;
    const container = this.#containerOf(candidate.stream);
    if (container === undefined) return life;
    const goneAtMs = this.#ports.catalog().goneAtMs(container.state);
    const hasGone = goneAtMs !== null && goneAtMs <= context.nowMs;
    // No policy begins at this instant any more: whether the life has ended is judged by those that there are.
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
   * @returns where, and what was read of the life by then
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
          // Another may have recorded an end since then, and nothing is erased before its end.
          if (last !== undefined && last.occurredAtMs > atMs) {
            atMs = last.occurredAtMs;
            return { kind: 'again' };
          }
          // Another write to a live item may have been under way, here or on another node: it is gone, too.
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
      // A server's limit for one event may be too small for any record. The key is gone; others don't wait for it.
      if (!isTooLarge(error)) throw error;
      throw new PurgeFault(
        `the purge of ${candidate.stream}, of ${writes} writes, can't be recorded: its record is larger than the event store takes (MaxAppendSize)`,
      );
    }
  }

  /**
   * True for a life that is about to be erased as gone with its container, but had expired before, or left with its
   * partition key. Its row may not say so yet, for rows may be behind the catalog; and the clock of this node may be behind
   * that of the one which deleted the container, so that it has not come to the deadline.
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

  /** The sealed bodies can't be opened any more; what is left is to have their bytes gone, too. */
  #remainsOf({ sealedBytes }: LifeReading): NonNullable<ItemPurged['remains']> {
    return { sealedBytes, removedBy: this.#ports.log.scavenging === undefined ? 'truncation' : 'scavenge' };
  }
}

/** Whether a life can be brought back no more. */
const isDue = ({ candidate: { endedAtMs }, graceSeconds: seconds }: Dying, nowMs: number): boolean =>
  endedAtMs === undefined || endedAtMs + seconds * 1000 <= nowMs;

/**
 * A life that has ended goes by that end as the log has it: its row may be damaged, or still that of an item where its
 * container went after it.
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

/** It comes up in each pass, and were none of them told, each would be a run on record in which nothing is done. */
const otherEnd = (stream: string): PurgeFault =>
  new PurgeFault(
    `the read models have the end of ${stream} otherwise than the event log, by which it is not erased yet; fsck says which is damaged`,
  );

/** @throws {PurgeFault} what one of the lives met; when the erasure of the others is on record */
function withoutFault(batch: ErasedBatch): ErasedBatch {
  if (batch.fault !== undefined) throw batch.fault;
  return batch;
}

const isTooLarge = (error: unknown): boolean => error instanceof Refusal && error.code === 'too-large';

/** Records a purge with all writes in its ledger, or with half as many again and again until the log takes the record. */
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
