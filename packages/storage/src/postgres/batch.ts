import { createHash } from 'node:crypto';
import { invariant } from '@epitaph/core/invariant.ts';
import type { ItemWritten } from '@epitaph/projections/items/row.ts';
import {
  isGone,
  type DisappearanceRow,
  type EndedRow,
  type LifeName,
  type LogMark,
  type ReadModelChange,
} from '@epitaph/projections/read-model-store.ts';

type ContainerChange = Extract<ReadModelChange, { kind: 'container' }>;
type Purged = Extract<ReadModelChange, { kind: 'item-purged' }>;
type PartitionKeyDeleted = Extract<ReadModelChange, { kind: 'partition-key-deleted' }>;

/** Changes that can be put together, and what follows on them alone, if anything does. */
export interface Segment {
  readonly batch: Batch;
  readonly then?: PartitionKeyDeleted | ItemWritten;
}

/**
 * Cuts changes where order matters beyond a batch: a delete by partition key takes what the changes before it have left, and what
 * stands for an event that can't be read goes by that.
 */
export function segmentsOf(changes: readonly ReadModelChange[]): Segment[] {
  const segments: Segment[] = [];
  let current: Exclude<ReadModelChange, PartitionKeyDeleted>[] = [];
  const cut = (then?: Segment['then']) => {
    segments.push({ batch: new Batch(current), ...(then === undefined ? {} : { then }) });
    current = [];
  };
  for (const change of changes) {
    if (change.kind === 'partition-key-deleted') cut(change);
    else if (change.kind === 'item-written' && change.isUnreadable === true) cut(change);
    else current.push(change);
  }
  cut();
  return segments;
}

/** What a batch of changes comes to, put together so that each table is written by one statement of many rows. */
export class Batch {
  readonly inserted = new Map<string, ItemWritten & { readonly birth: number }>();
  readonly updated = new Map<string, ItemWritten>();
  readonly removed = new Map<string, LifeName>();
  readonly ended = new Map<string, EndedRow>();
  /** Those and what was purged after it ended. */
  readonly left = new Map<string, LifeName>();
  readonly disappeared = new Map<string, DisappearanceRow>();
  /** Purges of lives that did not end in this batch: how they ended is known to the tables alone. */
  readonly purged = new Map<string, Purged>();
  readonly databases = new Map<number, string>();
  /** The last state of each, and what the tables have. */
  readonly containers = new Map<number, Pick<ContainerChange, 'state' | 'before' | 'holds'>>();
  readonly entries = new Map<number, { readonly kind: string; readonly state: string; readonly gone: boolean }>();
  /** Started and completed, by their streams. */
  readonly startedRuns = new Map<string, { readonly position: number; readonly state: string }>();
  readonly completedRuns = new Set<string>();
  readonly logMarks: LogMark[] = [];
  purges = 0;

  constructor(changes: readonly Exclude<ReadModelChange, PartitionKeyDeleted>[]) {
    for (const change of changes) this.#add(change);
  }

  #add(change: Exclude<ReadModelChange, PartitionKeyDeleted>): void {
    switch (change.kind) {
      case 'item-written':
        return this.#write(change);
      case 'item-ended': {
        const name = lifeName(change.row);
        this.#remove(change.row);
        this.ended.set(name, change.row);
        this.left.set(name, change.row);
        this.disappeared.set(name, change.disappearance);
        return;
      }
      case 'item-purged':
        return this.#purge(change);
      case 'database':
        this.databases.set(change.number, JSON.stringify(change.state));
        return;
      case 'container':
        this.#putContainer(change);
        return;
      case 'user':
      case 'client-encryption-key':
      case 'script': {
        const { kind, number, state } = change;
        this.entries.set(number, { kind, state: JSON.stringify(state), gone: isGone(change) });
        return;
      }
      case 'purge-run':
        this.startedRuns.set(change.stream, { position: change.position, state: JSON.stringify(change.state) });
        return;
      case 'purge-run-completed':
        this.completedRuns.add(change.stream);
        return;
      case 'log-mark':
        this.logMarks.push(change);
        return;
    }
  }

  #putContainer({ number, state, before, holds = [] }: ContainerChange): void {
    const first = this.containers.get(number) ?? { before, holds: [] };
    this.containers.set(number, { ...first, state, holds: [...first.holds!, ...holds] });
  }

  #write(change: ItemWritten): void {
    const name = lifeName(change);
    const created = this.inserted.get(name);
    if (created !== undefined) this.inserted.set(name, { ...change, birth: created.birth });
    else if (change.revision === 0) this.inserted.set(name, { ...change, birth: change.position });
    else {
      invariant(!this.removed.has(name), `a later write at ${change.position} finds its item`);
      this.updated.set(name, change);
    }
  }

  #remove(life: LifeName): void {
    const name = lifeName(life);
    if (this.inserted.delete(name)) return;
    this.updated.delete(name);
    this.removed.set(name, life);
  }

  #purge(change: Purged): void {
    this.purges += 1;
    const name = lifeName(change);
    if (!this.ended.delete(name)) {
      this.updated.delete(name);
      // Created in this batch, it can only have ended by this.
      if (!this.inserted.delete(name)) this.purged.set(name, change);
      else this.disappeared.set(name, change.disappearance);
      return;
    }
    const disappearance = this.disappeared.get(name)!;
    this.disappeared.set(name, { ...disappearance, purgedAtMs: change.purgedAtMs });
  }
}

function lifeName({ container, partitionKey, id, life }: LifeName): string {
  return `${container} ${life} ${JSON.stringify([partitionKey, id])}`;
}

export function partitionDigest(partitionKey: string): Buffer {
  return createHash('sha256').update(partitionKey).digest().subarray(0, 16);
}

/** Partition key and id, of whatever length. The key is JSON and so never has a raw line break. */
export function nameDigest(partitionKey: string, id: string): Buffer {
  // UTF-16, so that no two ids are one, halves of surrogate pairs included.
  return createHash('sha256').update(`${partitionKey}\n${id}`, 'utf16le').digest();
}

/** A text as PostgreSQL can keep it: most stay as they are. */
export function toStored(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

export function fromStored(stored: string): string {
  return stored.includes('\\') ? (JSON.parse(`"${stored}"`) as string) : stored;
}
