import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { rowAfter, rowName } from '@epitaph/projections/items/row.ts';
import type { ContainerNumber, ItemRow, ItemsReader, ReadModelChange } from '@epitaph/projections/read-model-store.ts';
import type { Json } from '@epitaph/query';
import { inThisHeap } from './heap.ts';

/** Rows kept for look-ups by name, each about 200 bytes and its texts. */
const CACHED_ROWS = inThisHeap(100_000);
/** Rows kept for scans, of all containers together. */
const SCANNED_ROWS = inThisHeap(100_000);
/** Rows kept for scans of one container. Collecting them takes time in proportion to their number. */
export const MAX_SCANNED_ROWS = inThisHeap(50_000);
/** Scans that collect rows at the same time, each of another container. */
const COLLECTING_SCANS = 4;
/** Characters of JSON in all documents that are kept with scans. */
export const MAX_KEPT_CHARACTERS = inThisHeap(32 * 1024 * 1024);

/** A row that is being changed, with its value before the change. */
interface Changing {
  readonly before: ItemRow | undefined;
  times: number;
}

/** All rows of a container in order of birth. Some may have expired. */
export interface KeptScan {
  readonly rows: readonly ItemRow[];
  /** The rows that expire first: one of those without a `ttl` of their own, and one of those with one. */
  readonly firstToExpire: readonly ItemRow[];
}

/** The documents of a kept scan's rows. */
interface KeptDocuments {
  readonly documents: readonly Json[];
  /** Characters of JSON in all of them together. */
  readonly characters: number;
}

/**
 * Rows of the read model kept in memory, for look-ups by name and for scans of whole containers that are read again and
 * again without a write in between.
 *
 * A row is removed before a change to it begins, and put back only when every reader would see the change. Between the
 * two, every read asks the read model itself, so no reader gets an older answer than another reader got before. Nothing
 * is kept for read models to which other processes write too.
 */
export class ItemRows {
  readonly #store: () => ItemsReader;
  readonly #rows = new GenerationCache<string, ItemRow>(CACHED_ROWS);
  readonly #changing = new Map<string, Changing>();
  readonly #scans = new Map<ContainerNumber, KeptScan>();
  /** Counts the changes to each container. A scan is not kept if the count has changed since it began. */
  readonly #changes = new Map<ContainerNumber, number>();
  /** Changes under way by container, and how many of them do not name the rows that they change. */
  readonly #underWay = new Map<ContainerNumber, number>();
  #unnamed = 0;
  #scannedRows = 0;
  readonly #collecting = new Set<ContainerNumber>();
  readonly #documents = new Map<ContainerNumber, KeptDocuments>();
  #characters = 0;
  #of: ItemsReader | undefined;
  readonly #keeps: boolean;

  constructor(store: () => ItemsReader, { shared }: { readonly shared: boolean }) {
    this.#store = store;
    this.#keeps = !shared;
  }

  find(container: ContainerNumber, partitionKey: string, id: string): MaybePromise<ItemRow | undefined> {
    const store = this.#current();
    const name = rowName(container, partitionKey, id);
    const known = this.#rows.get(name);
    if (known !== undefined) return known;
    const found = store.findItem(container, partitionKey, id);
    if (!this.#keeps || found === undefined || found instanceof Promise) return found;
    if (this.#unnamed === 0 && !this.#changing.has(name)) this.#rows.set(name, found);
    return found;
  }

  /** All rows of a container; undefined when they are not kept. */
  scanned(container: ContainerNumber): KeptScan | undefined {
    this.#current();
    return this.#scans.get(container);
  }

  /**
   * Whether a scan of a container should collect its rows so that they can be kept. If so, no other scan of the
   * container collects until {@link endCollecting}.
   */
  beginCollecting(container: ContainerNumber): boolean {
    if (!this.#keeps || this.#collecting.has(container) || this.#collecting.size >= COLLECTING_SCANS) return false;
    this.#collecting.add(container);
    return true;
  }

  endCollecting(container: ContainerNumber): void {
    this.#collecting.delete(container);
  }

  /** The container's count of changes. A scan that collects passes it to {@link keep} at its end. */
  changesOf(container: ContainerNumber): number {
    this.#current();
    return this.#changes.get(container) ?? 0;
  }

  /** Keeps the rows that a whole scan has found, unless the container has changed since the scan began. */
  keep(container: ContainerNumber, rows: readonly ItemRow[], changesBefore: number): void {
    if (!this.#keeps || this.changesOf(container) !== changesBefore || rows.length > SCANNED_ROWS) return;
    if (this.#underWay.has(container)) return;
    this.#forget(container);
    this.#scans.set(container, { rows, firstToExpire: firstToExpire(rows) });
    this.#scannedRows += rows.length;
    for (const other of this.#scans.keys()) {
      if (this.#scannedRows <= SCANNED_ROWS) break;
      this.#forget(other);
    }
  }

  /** The documents of all rows of a kept scan; undefined when they are not kept. */
  documents(container: ContainerNumber): readonly Json[] | undefined {
    this.#current();
    return this.#documents.get(container)?.documents;
  }

  /** Keeps the documents of a kept scan's rows, for as long as the scan is kept. */
  keepDocuments(container: ContainerNumber, scan: KeptScan, kept: KeptDocuments): void {
    if (this.scanned(container) !== scan || kept.characters > MAX_KEPT_CHARACTERS) return;
    this.#forgetDocuments(container);
    this.#documents.set(container, kept);
    this.#characters += kept.characters;
    for (const other of this.#documents.keys()) {
      if (this.#characters <= MAX_KEPT_CHARACTERS) break;
      this.#forgetDocuments(other);
    }
  }

  /** Must be called when documents were purged. Any of the kept ones might be among them, so all are dropped. */
  erased(): void {
    this.#documents.clear();
    this.#characters = 0;
  }

  /** Must be called before changes are applied. */
  applying(changes: readonly ReadModelChange[]): void {
    if (!this.#keeps) return;
    this.#current();
    for (const change of changes) {
      const item = itemOf(change);
      if (item === undefined) continue;
      this.#touch(item.container);
      this.#underWay.set(item.container, (this.#underWay.get(item.container) ?? 0) + 1);
      if (item.name === undefined) {
        this.#unnamed += 1;
        this.#rows.clear();
        continue;
      }
      const changing = this.#changing.get(item.name);
      if (changing !== undefined) changing.times += 1;
      else {
        this.#changing.set(item.name, { before: this.#rows.get(item.name), times: 1 });
        this.#rows.delete(item.name);
      }
    }
  }

  /** Must be called when changes have been applied and every reader sees them. */
  applied(changes: readonly ReadModelChange[]): void {
    if (!this.#keeps) return;
    for (const change of changes) {
      const item = itemOf(change);
      if (item === undefined) continue;
      const left = (this.#underWay.get(item.container) ?? 1) - 1;
      if (left > 0) this.#underWay.set(item.container, left);
      else this.#underWay.delete(item.container);
      if (item.name === undefined) {
        this.#unnamed -= 1;
        this.#rows.clear();
        continue;
      }
      const changing = this.#changing.get(item.name);
      if (changing === undefined) continue;
      const now =
        change.kind === 'item-written' ? rowAfter(change, this.#rows.get(item.name) ?? changing.before) : undefined;
      if (now === undefined) this.#rows.delete(item.name);
      else this.#rows.set(item.name, now);
      changing.times -= 1;
      if (changing.times === 0) this.#changing.delete(item.name);
    }
  }

  /** Must be called when changes were not applied, or when that is unknown: the kept rows may be wrong. */
  failed(): void {
    this.#rows.clear();
    this.#changing.clear();
    this.#underWay.clear();
    this.#unnamed = 0;
    // Scans that are collecting rows at the moment must not keep them either.
    for (const container of [...this.#scans.keys(), ...this.#collecting]) this.#touch(container);
  }

  #touch(container: ContainerNumber): void {
    this.#changes.set(container, (this.#changes.get(container) ?? 0) + 1);
    this.#forget(container);
  }

  #forget(container: ContainerNumber): void {
    this.#scannedRows -= this.#scans.get(container)?.rows.length ?? 0;
    this.#scans.delete(container);
    this.#forgetDocuments(container);
  }

  #forgetDocuments(container: ContainerNumber): void {
    this.#characters -= this.#documents.get(container)?.characters ?? 0;
    this.#documents.delete(container);
  }

  /**
   * The store to read from. When a rebuild has replaced the read models, the kept rows belong to the version before and
   * are dropped.
   */
  #current(): ItemsReader {
    const store = this.#store();
    if (store !== this.#of) {
      this.failed();
      this.#of = store;
    }
    return store;
  }
}

/** The rows that expire first. Until they have expired, no other row of the scan has. */
function firstToExpire(rows: readonly ItemRow[]): ItemRow[] {
  let byDefault: ItemRow | undefined;
  let byOwn: ItemRow | undefined;
  for (const row of rows) {
    const { ts, ttl } = row;
    if (ttl === null) {
      if (byDefault === undefined || ts < byDefault.ts) byDefault = row;
    } else if (ttl > 0 && (byOwn === undefined || ts + ttl < byOwn.ts + byOwn.ttl!)) byOwn = row;
  }
  return [byDefault, byOwn].filter((row) => row !== undefined);
}

/** The item whose row a change changes. Without a name: all items of the container. */
function itemOf(
  change: ReadModelChange,
): { readonly container: ContainerNumber; readonly name: string | undefined } | undefined {
  switch (change.kind) {
    case 'item-written':
    case 'item-purged':
      return { container: change.container, name: rowName(change.container, change.partitionKey, change.id) };
    case 'item-ended': {
      const { container, partitionKey, id } = change.row;
      return { container, name: rowName(container, partitionKey, id) };
    }
    case 'partition-key-deleted':
      return { container: change.container, name: undefined };
    case 'container': {
      // Items that were taken for expired may be visible again.
      const isConfirmed = change.before?.lacksEvents === true && change.state.lacksEvents !== true;
      return isConfirmed ? { container: change.number, name: undefined } : undefined;
    }
    default:
      return undefined;
  }
}
