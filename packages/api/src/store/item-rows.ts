import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { rowAfter, rowName } from '@epitaph/projections/items/row.ts';
import type {
  ContainerNumber,
  ItemRow,
  ReadModelChange,
  ReadModelStore,
} from '@epitaph/projections/read-model-store.ts';
import type { Json } from '@epitaph/query';
import { inThisHeap } from './heap.ts';

/** Rows kept for look-ups by name: some 200 bytes each, and their texts. */
const CACHED_ROWS = inThisHeap(100_000);
/** Rows kept of whole containers, all together. */
const SCANNED_ROWS = inThisHeap(100_000);
/** Rows of one container that are kept; collecting them takes as long as there are rows. */
export const MAX_SCANNED_ROWS = inThisHeap(50_000);
/** Scans at once that collect their rows to be kept: others of the same container would collect the same. */
const COLLECTING_SCANS = 4;
/** Characters of JSON that the documents kept with them have, all together. */
export const MAX_KEPT_CHARACTERS = inThisHeap(32 * 1024 * 1024);

/** A row that is being changed, with what it was before. */
interface Changing {
  readonly before: ItemRow | undefined;
  times: number;
}

/** All rows of a container in order of birth, expired ones maybe among them. */
export interface KeptScan {
  readonly rows: readonly ItemRow[];
  /** The row that expires first: of those without a `ttl` of their own, and of those with one. */
  readonly firstToExpire: readonly ItemRow[];
}

/** The documents of a kept scan's rows. */
interface KeptDocuments {
  readonly documents: readonly Json[];
  /** Characters of JSON that they have. */
  readonly characters: number;
}

/**
 * Rows of the read model kept in memory, for look-ups by name and for scans of whole containers that are read again
 * and again while nobody writes to them.
 *
 * A row leaves before a change to it is begun, and comes back only when every reader would see the change: in between
 * everybody asks the read model itself, so nobody is told an older answer than somebody else was before. For read
 * models that other processes write to as well nothing is kept.
 */
export class ItemRows {
  readonly #store: () => ReadModelStore;
  readonly #rows = new GenerationCache<string, ItemRow>(CACHED_ROWS);
  readonly #changing = new Map<string, Changing>();
  readonly #scans = new Map<ContainerNumber, KeptScan>();
  /** Counts what has happened to each container; a scan that saw it change is not kept. */
  readonly #changes = new Map<ContainerNumber, number>();
  /** Changes under way, by container, and how many of them do not say which rows they change. */
  readonly #underWay = new Map<ContainerNumber, number>();
  #unnamed = 0;
  #scannedRows = 0;
  readonly #collecting = new Set<ContainerNumber>();
  readonly #documents = new Map<ContainerNumber, KeptDocuments>();
  #characters = 0;
  #of: ReadModelStore | undefined;
  readonly #keeps: boolean;

  constructor(store: () => ReadModelStore, { shared }: { readonly shared: boolean }) {
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
   * Whether a scan of a container is to collect its rows so that they can be kept. Then no other scan does so until
   * {@link endCollecting}.
   */
  beginCollecting(container: ContainerNumber): boolean {
    if (!this.#keeps || this.#collecting.has(container) || this.#collecting.size >= COLLECTING_SCANS) return false;
    this.#collecting.add(container);
    return true;
  }

  endCollecting(container: ContainerNumber): void {
    this.#collecting.delete(container);
  }

  /** A mark that a collecting scan has to hand back at its end. */
  changesOf(container: ContainerNumber): number {
    this.#current();
    return this.#changes.get(container) ?? 0;
  }

  /** Keeps what a whole scan has found, unless the container has changed since the scan began. */
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

  /** Keeps the documents of a scan's rows with it, as long as it is kept. */
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

  /** Told that documents were purged: none is kept that might be one of them. */
  erased(): void {
    this.#documents.clear();
    this.#characters = 0;
  }

  /** Told that changes are about to be applied. */
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

  /** Told that changes have been applied, and every reader sees them. */
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

  /** Told that changes were not applied, or that it is not known: what is kept may be wrong. */
  failed(): void {
    this.#rows.clear();
    this.#changing.clear();
    this.#underWay.clear();
    this.#unnamed = 0;
    // What a scan is just collecting as well.
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

  /** A rebuild puts another version of the read models to use: what was kept is of the version before. */
  #current(): ReadModelStore {
    const store = this.#store();
    if (store !== this.#of) {
      this.failed();
      this.#of = store;
    }
    return store;
  }
}

/** The rows that expire first: as long as they have not, nothing in the scan has. */
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

/** The item whose row a change changes; without a name, all items of the container. */
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
      // What was taken for expired may be there again.
      const isConfirmed = change.before?.lacksEvents === true && change.state.lacksEvents !== true;
      return isConfirmed ? { container: change.number, name: undefined } : undefined;
    }
    default:
      return undefined;
  }
}
