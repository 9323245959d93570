import { partitionKeyDeleteAfter } from '@epitaph/core/container/partition-key-deletes.ts';
import { handleContainer, type KnownContainer } from '@epitaph/core/container/handle.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { handleLife } from '@epitaph/core/item/handle.ts';
import { recordOfEnd } from '@epitaph/core/item/record-of-end.ts';
import type { ItemState } from '@epitaph/core/item/state.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { isExpired, type Watermarks, watermarks } from '@epitaph/core/ttl/watermarks.ts';
import type { CatalogContainer } from '../catalog/catalog.ts';
import type { ContainerNumber, ItemRow, UnrecordedEnd } from '../read-model-store.ts';
import { despiteFaults, FAULT_RETRY_MS, PurgeFault } from './faults.ts';
import { isGone, type PurgePorts, stepContext, streamOf } from './ports.ts';
import type { Freeze } from './runs.ts';

type EndRecorderPorts = Pick<
  PurgePorts,
  | 'log'
  | 'vault'
  | 'sealer'
  | 'naming'
  | 'store'
  | 'catalog'
  | 'projected'
  | 'commandUnderWay'
  | 'onExpiriesRecorded'
  | 'budget'
  | 'confirmCatalog'
  | 'newId'
>;

/** The result of a batch. */
interface RecordedEnds {
  /** How many ends it has recorded. */
  readonly recorded: number;
  /** Lives whose end can't be recorded, by the positions by which they are set aside. */
  readonly atFault: readonly number[];
  /** Set if the end of one of the lives can't be recorded. The ends of the others are recorded. */
  readonly fault: PurgeFault | undefined;
}

/**
 * Records ends that are only computed so far: of items past their deadline, and of items that left with their partition
 * key. Each step is one batch, and can be repeated without harm.
 */
export class EndRecorder {
  readonly #ports: EndRecorderPorts;
  /** Lives whose end can't be recorded, by the position that identifies each, and until when they are left alone. */
  readonly #setAside = new Map<ContainerNumber, Map<number, number>>();
  /** Until when the deletes by partition key of a container are left alone. */
  readonly #unfinishable = new Map<ContainerNumber, number>();

  constructor(ports: EndRecorderPorts) {
    this.#ports = ports;
  }

  /** Overdue items of a container that are candidates of a run, without those set aside. */
  async overdue(
    container: CatalogContainer,
    { effectiveNowMs, upToPosition }: Freeze,
    limit: number,
    nowMs: number,
  ): Promise<ItemRow[]> {
    const marks = watermarks(container.state.timeline, this.#dueBy(container, effectiveNowMs));
    const rows = await this.#notSetAside(container.number, limit, nowMs, (count) =>
      this.#ports.store().overdueItems(container.number, marks, count),
    );
    return rows.filter((row) => row.position <= upToPosition);
  }

  /** Lives that left with their partition key and whose end is not recorded, without those set aside. */
  unrecorded(container: ContainerNumber, limit: number, nowMs: number): Promise<UnrecordedEnd[]> {
    return this.#notSetAside(container, limit, nowMs, (count) => this.#ports.store().unrecordedEnds(container, count));
  }

  /** The first rows that are not set aside. Rows set aside are mostly the first ones, and would hold up all others. */
  async #notSetAside<Row extends ItemRow | UnrecordedEnd>(
    container: ContainerNumber,
    limit: number,
    nowMs: number,
    firstRows: (count: number) => MaybePromise<readonly Row[]>,
  ): Promise<Row[]> {
    const setAside = this.#setAside.get(container);
    for (const [place, untilMs] of setAside ?? []) if (untilMs <= nowMs) setAside!.delete(place);
    const rows = await firstRows(limit + (setAside?.size ?? 0));
    return rows.filter((row) => setAside?.has(placeOf(row)) !== true).slice(0, limit);
  }

  /** All lives are tried again, of all containers or of one. */
  forgetFaults(container?: ContainerNumber): void {
    for (const left of [this.#setAside, this.#unfinishable]) {
      if (container === undefined) left.clear();
      else left.delete(container);
    }
  }

  /**
   * Records `ItemExpired` for a batch of overdue items of a container. The decider checks the log and the time itself,
   * so an outdated row does no harm.
   */
  async recordExpiries(
    container: CatalogContainer,
    rows: readonly ItemRow[],
    nowMs: () => number,
  ): Promise<RecordedEnds> {
    return this.#recordEach(container, rows, nowMs, async (row, stream) => {
      const underWay = () => this.#ports.commandUnderWay(container.state);
      // A policy, or the container's end, counts from its decision, but the catalog has it only once it is recorded. So
      // commands in progress are waited for.
      for (let command = underWay(); command !== undefined; command = underWay()) await command;
      const atMs = nowMs();
      let bytes = 0;
      this.#ports.onExpiriesRecorded(container.number, atMs);
      const handled = await handleLife(
        this.#ports,
        stepContext(this.#ports, atMs),
        stream,
        row.life,
        (state, { last }) => {
          assertWritten(state, stream);
          if (state.status === 'live') ({ bytes } = state.lastWrite);
          if (last?.position === row.position) assertOverdue(state, stream, watermarks(container.state.timeline, atMs));
          const now = this.#ports.catalog().containerByNumber(container.number)!;
          // The item may have left with its partition key since the row was read.
          const { partitionKey } = row;
          const command = recordOfEnd(now.state, { partitionKey, position: last?.position }, this.#dueBy(now, atMs));
          return { kind: 'command', command };
        },
      );
      // Items left in a deleted container cost nobody any request units.
      const isPaid = handled.position !== undefined && !isGone(this.#ports, container);
      if (isPaid) this.#ports.budget.spend(container.state, bytes);
      return handled.position;
    });
  }

  /** Records the end of lives that left with their partition key. The log is asked whether a life has an end by now. */
  async recordPartitionKeyDeletes(
    container: CatalogContainer,
    rows: readonly UnrecordedEnd[],
    nowMs: () => number,
  ): Promise<RecordedEnds> {
    return this.#recordEach(container, rows, nowMs, async (row, stream) => {
      // Looked up again, because the delete may have come after the container was looked up and before the row was.
      const { state } = this.#ports.catalog().containerByNumber(container.number)!;
      const left = partitionKeyDeleteAfter(state, row.partitionKey, row.position);
      // Another node has completed the delete, or this node has not heard of it yet. The next pass handles it.
      if (left === undefined) return undefined;
      const { atMs, by } = left;
      const handled = await handleLife(this.#ports, stepContext(this.#ports, nowMs()), stream, row.life, (life) => {
        assertWritten(life, stream);
        return {
          kind: 'command',
          command: {
            type: 'RecordPartitionKeyDelete',
            timeline: state.timeline,
            leftWithPartitionKey: { atMs, by, position: row.position },
          },
        };
      });
      return handled.position;
    });
  }

  /**
   * Records the ends of some lives, and waits until all are projected. `record` returns the position of the end. Lives
   * at fault are set aside.
   */
  async #recordEach<Row extends ItemRow | UnrecordedEnd>(
    container: CatalogContainer,
    rows: readonly Row[],
    nowMs: () => number,
    record: (row: Row, stream: string) => Promise<number | undefined>,
  ): Promise<RecordedEnds> {
    let recorded = 0;
    let position = 0;
    const atFault: number[] = [];
    const recordOne = async (row: Row): Promise<void> => {
      const recordedAt = await record(row, await streamOf(this.#ports, container, row));
      if (recordedAt === undefined) return;
      recorded += 1;
      position = Math.max(position, recordedAt);
    };
    const fault = await despiteFaults(rows, recordOne, (row) => {
      atFault.push(placeOf(row));
      const setAside = this.#setAside.get(container.number) ?? new Map<number, number>();
      this.#setAside.set(container.number, setAside.set(placeOf(row), nowMs() + FAULT_RETRY_MS));
    });
    if (position > 0) await this.#ports.projected(position);
    return { recorded, atFault, fault };
  }

  /** Whether a container's deletes by partition key should be recorded as completed. */
  hasUnfinishedDeletes(container: CatalogContainer, nowMs: number): boolean {
    if (container.state.partitionKeyDeletes.length === 0 || isGone(this.#ports, container)) return false;
    return (this.#unfinishable.get(container.number) ?? 0) <= nowMs;
  }

  /**
   * Records that a container's deletes by partition key are completed, those up to a position of the log.
   *
   * @returns the fault that was met; then they are left alone for a while
   */
  completePartitionKeyDeletes(
    container: CatalogContainer,
    upToPosition: number,
    nowMs: () => number,
  ): Promise<PurgeFault | undefined> {
    return despiteFaults(
      [container],
      () => this.#complete(container, upToPosition, nowMs),
      ({ number }) => this.#unfinishable.set(number, nowMs() + FAULT_RETRY_MS),
    );
  }

  readonly #known: KnownContainer = async (rid, position) => {
    await this.#ports.projected(position);
    return this.#ports.catalog().containerByRid(rid)?.state;
  };

  async #complete({ state }: CatalogContainer, upToPosition: number, nowMs: () => number): Promise<void> {
    const { log } = this.#ports;
    for (const { position } of state.partitionKeyDeletes) {
      if (position > upToPosition) continue;
      const context = stepContext(this.#ports, nowMs());
      const command = { type: 'CompletePartitionKeyDelete', position, nowMs: context.nowMs } as const;
      const handled = await handleContainer(log, context, state.rid, command, this.#known);
      // The container was deleted in the meantime, and its pending deletes with it.
      if (handled.state?.status === 'deleted') return;
      if (handled.position !== undefined) await this.#ports.projected(handled.position);
      // Another node may have recorded it, and this one has not heard of that yet.
      else if (this.#ports.confirmCatalog === undefined) {
        throw new PurgeFault(`the event log has nothing of ${containerStream(state.rid)} at ${position} any more`);
      }
    }
  }

  /**
   * The time by which items are judged. In a deleted container this is the last instant at which it existed: what had
   * expired by then left by its own deadline, however late that is noticed, and the rest left with the container.
   */
  #dueBy(container: CatalogContainer, nowMs: number): number {
    const goneAtMs = this.#ports.catalog().goneAtMs(container.state);
    return goneAtMs === null ? nowMs : Math.min(nowMs, goneAtMs - 1);
  }

  /** How many expiries may be recorded in a container now. */
  affordable(container: CatalogContainer): number {
    return isGone(this.#ports, container) ? Number.POSITIVE_INFINITY : this.#ports.budget.affordable(container.state);
  }
}

/** The position that identifies a row. Positions are the log's, so no other life has the same. */
const placeOf = (row: ItemRow | UnrecordedEnd): number => ('birth' in row ? row.birth : row.position);

/**
 * A life that was projected is in the log; a purged one by the record of its purge. If it is not, nothing can be
 * recorded of it.
 */
function assertWritten({ status }: ItemState, stream: string): void {
  if (status === 'none') throw new PurgeFault(`the event log has nothing of ${stream} any more`);
}

/**
 * An item that is overdue by the row of its last write is overdue by that write, too, because it was looked up under
 * these policies. Without this error it would come up in each pass, and each pass would record a run in which nothing
 * is done.
 */
function assertOverdue(state: ItemState, stream: string, marks: Watermarks): void {
  if (state.status !== 'live' || isExpired(state.lastWrite, marks)) return;
  throw new PurgeFault(
    `the deadline of ${stream} differs between the read models and the event log, by which it has not passed; epitaph fsck says which is damaged`,
  );
}
