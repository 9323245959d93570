import { partitionKeyDeleteAfter } from '@epitaph/core/container/partition-key-deletes.ts';
import { handleContainer } from '@epitaph/core/container/handle.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { handleLife } from '@epitaph/core/item/handle.ts';
import { recordOfEnd } from '@epitaph/core/item/record-of-end.ts';
import type { ItemState } from '@epitaph/core/item/state.ts';
import { watermarks } from '@epitaph/core/ttl/watermarks.ts';
import type { CatalogContainer } from '../catalog/catalog.ts';
import type { ItemRow, UnrecordedEnd } from '../read-model-store.ts';
import { isGone, type PurgePorts, stepContext, streamOf } from './ports.ts';
import { despiteFaults, PurgeFault } from './faults.ts';

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

/** What came of a batch. */
interface RecordedEnds {
  /** How many ends are on record by it. */
  readonly recorded: number;
  /** Set where the end of one of them can't be recorded. That of the others is on record. */
  readonly fault: PurgeFault | undefined;
}

/**
 * Puts ends on record that are only computed so far: of items past their deadline, and of those that left with their
 * partition key. Each step is one batch, and does no harm when it is done again.
 */
export class EndRecorder {
  readonly #ports: EndRecorderPorts;

  constructor(ports: EndRecorderPorts) {
    this.#ports = ports;
  }

  /** Overdue items of a container that are candidates of a run. */
  async overdue(
    container: CatalogContainer,
    effectiveNowMs: number,
    upToPosition: number,
    limit: number,
  ): Promise<ItemRow[]> {
    const marks = watermarks(container.state.timeline, this.#dueBy(container, effectiveNowMs));
    const rows = await this.#ports.store().overdueItems(container.number, marks, limit);
    return rows.filter((row) => row.position <= upToPosition);
  }

  /**
   * Records `ItemExpired` for a batch of overdue items of a container, and answers what came of it. The decider looks at
   * the log and the time itself, so a stale row does no harm.
   */
  async recordExpiries(
    container: CatalogContainer,
    rows: readonly ItemRow[],
    nowMs: () => number,
  ): Promise<RecordedEnds> {
    return this.#recordEach(container, rows, async (row, stream) => {
      const underWay = () => this.#ports.commandUnderWay(container.state);
      // A policy counts from when it was decided, and so does any other end of the one before, but the catalog has it only
      // when it is on record.
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
          const now = this.#ports.catalog().containerByNumber(container.number)!;
          // It may have left with its partition key since the row was read.
          const { partitionKey } = row;
          const command = recordOfEnd(now.state, { partitionKey, position: last?.position }, this.#dueBy(now, atMs));
          return { kind: 'command', command };
        },
      );
      // What is left in a container that is gone costs nobody anything.
      const isPaid = handled.position !== undefined && !isGone(this.#ports, container);
      if (isPaid) this.#ports.budget.spend(container.state, bytes);
      return handled.position;
    });
  }

  /**
   * Records the end of lives that left with their partition key, and answers what came of it. The log is asked whether a
   * life has an end by now.
   */
  async recordPartitionKeyDeletes(
    container: CatalogContainer,
    rows: readonly UnrecordedEnd[],
    nowMs: () => number,
  ): Promise<RecordedEnds> {
    return this.#recordEach(container, rows, async (row, stream) => {
      // As it is now: the delete may have come since the container was looked up, and before the row was.
      const { state } = this.#ports.catalog().containerByNumber(container.number)!;
      const left = partitionKeyDeleteAfter(state, row.partitionKey, row.position);
      // Another node has worked it off since, or it is one of which this node has not heard: it is for the next pass.
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

  /** Records the ends of some lives, each of which answers where its end is on record, and waits until all are projected. */
  async #recordEach<Row extends ItemRow | UnrecordedEnd>(
    container: CatalogContainer,
    rows: readonly Row[],
    record: (row: Row, stream: string) => Promise<number | undefined>,
  ): Promise<RecordedEnds> {
    let recorded = 0;
    let position = 0;
    const fault = await despiteFaults(rows, async (row) => {
      const recordedAt = await record(row, await streamOf(this.#ports, container, row));
      if (recordedAt === undefined) return;
      recorded += 1;
      position = Math.max(position, recordedAt);
    });
    if (position > 0) await this.#ports.projected(position);
    return { recorded, fault };
  }

  /** Puts on record that a container's deletes by partition key are worked off, those up to a position of the log. */
  async completePartitionKeyDeletes(
    { state }: CatalogContainer,
    upToPosition: number,
    nowMs: () => number,
  ): Promise<void> {
    const { log } = this.#ports;
    for (const { position } of state.partitionKeyDeletes) {
      if (position > upToPosition) continue;
      const context = stepContext(this.#ports, nowMs());
      const command = { type: 'CompletePartitionKeyDelete', position, nowMs: context.nowMs } as const;
      const handled = await handleContainer(log, context, state.rid, command);
      if (handled.position !== undefined) await this.#ports.projected(handled.position);
      // Another node may have done so, of which this one has not heard.
      else if (this.#ports.confirmCatalog === undefined) {
        throw new PurgeFault(`the event log has nothing of ${containerStream(state.rid)} at ${position} any more`);
      }
    }
  }

  /**
   * The time by which items are judged: in a container that is gone, the last instant that it was there. What had
   * expired by then left by its own deadline, however late that is looked at, and the rest left with the container.
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

/** A life that was projected stands in the log, purged ones by the record of that. Of what does not nothing can be recorded. */
function assertWritten({ status }: ItemState, stream: string): void {
  if (status === 'none') throw new PurgeFault(`the event log has nothing of ${stream} any more`);
}
