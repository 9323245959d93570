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

/** Changes that can be combined, and a change that must follow them by itself, if there is one. */
export interface Segment {
  readonly batch: Batch;
  readonly then?: PartitionKeyDeleted | ItemWritten;
}

/**
 * Divides changes at those that depend on the rows which the changes before them have left: a delete by partition key, which ends all
 * items that are there, and the row for an unreadable event, which depends on the item's former row.
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

/** The combined result of a batch of changes, so that each table is written by one statement with many rows. */
export class Batch {
  readonly inserted = new Map<string, ItemWritten & { readonly birth: number }>();
  readonly updated = new Map<string, ItemWritten>();
  readonly removed = new Map<string, LifeName>();
  readonly ended = new Map<string, EndedRow>();
  /** Lives in `ended`, and lives that were purged after their end. */
  readonly left = new Map<string, LifeName>();
  readonly disappeared = new Map<string, DisappearanceRow>();
  /** Purges of lives that did not end in this batch. Only the tables have how these ended. */
  readonly purged = new Map<string, Purged>();
  readonly databases = new Map<number, string>();
  /** The last state of each container, and the state that the tables have. */
  readonly containers = new Map<number, Pick<ContainerChange, 'state' | 'before' | 'holds'>>();
  readonly entries = new Map<number, { readonly kind: string; readonly state: string; readonly gone: boolean }>();
  /** Purge runs that were started and completed, by their streams. */
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
      // A life that began in this batch and did not end in it ends by this purge.
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

/** A digest of partition key and id, which may be of any length. The partition key is JSON, which has no raw line break. */
export function nameDigest(partitionKey: string, id: string): Buffer {
  // In UTF-16 all ids differ, also those with halves of surrogate pairs.
  return createHash('sha256').update(`${partitionKey}\n${id}`, 'utf16le').digest();
}

/** A text in a form that PostgreSQL can store. Most texts are not changed. */
export function toStored(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

export function fromStored(stored: string): string {
  return stored.includes('\\') ? (JSON.parse(`"${stored}"`) as string) : stored;
}
