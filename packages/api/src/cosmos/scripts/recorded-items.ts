import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { ItemSnapshot } from '../../store/api/common.ts';
import type { FoundItem, ShownItem } from '../../store/api/items-api.ts';
import type { QueryPage, QueryRequest } from '../../store/api/queries-api.ts';
import { birthOfItemRid } from '../../store/rids.ts';
import { badRequest } from '../errors.ts';
import { isJsonObject } from '../json.ts';
import type { CosmosRequest } from '../request.ts';

/** How many items are read together when a snapshot is compared with what was seen before. */
const READ_AT_ONCE = 100;
/** The page size with which all items of the partition key are read. */
const DOCUMENTS_AT_ONCE = 100;

/** Another writer has changed an item after a script saw it. */
export class Overtaken extends Error {}

/**
 * The recorded items of a partition key, as the scripts of one operation see them. Each script sees all items as they were at one moment,
 * and no item is seen in two versions.
 *
 * Every method rejects with Overtaken if an item has changed since one of the scripts first saw it.
 */
export class RecordedItems {
  readonly #store: CosmosRequest['store'];
  readonly #container: ContainerState;
  readonly #partitionKey: string;
  /** By id, the etag of each item when the scripts first looked; undefined if there was no such item. */
  readonly #firstSeen = new Map<string, string | undefined>();
  /** The id of each item that was seen, by birth. With it a link by rid can be resolved even if the item was deleted since. */
  readonly #ids = new Map<number, string>();
  #isScriptRunning = false;
  /** The snapshot that the running script reads from. It is opened at the script's second look-up, because a single look-up needs none. */
  #snapshot: Promise<ItemSnapshot> | undefined;
  #hasLookedUp = false;
  /** The result of the running script's first look-up, if that was for an item by its id. */
  #first: { readonly id: string; readonly found: ShownItem | undefined } | undefined;

  constructor(store: CosmosRequest['store'], container: ContainerState, partitionKey: string) {
    this.#store = store;
    this.#container = container;
    this.#partitionKey = partitionKey;
  }

  scriptBegins(): void {
    this.#isScriptRunning = true;
  }

  /** Ends the running script's snapshot. The next script reads at a moment of its own, and no snapshot is kept open until then. */
  async scriptEnded(): Promise<void> {
    const snapshot = this.#snapshot;
    this.#isScriptRunning = false;
    this.#snapshot = undefined;
    this.#hasLookedUp = false;
    this.#first = undefined;
    // If the snapshot could not be opened, the script has seen that error already.
    await snapshot?.then(
      (open) => open.close(),
      () => {},
    );
  }

  /** The etag with which an item was first seen; undefined if it was not there, or was not looked for. */
  etagOf(id: string): string | undefined {
    return this.#firstSeen.get(id);
  }

  async find(id: string): Promise<ShownItem | undefined> {
    if (this.#first?.id === id) return this.#first.found;
    // Between two scripts, the operation itself reads single items.
    if (!this.#isScriptRunning) return this.#read(id);
    if (this.#hasLookedUp) return this.#read(id, await this.#openSnapshot());
    this.#hasLookedUp = true;
    const found = await this.#read(id);
    this.#first = { id, found };
    return found;
  }

  /**
   * The id of the item whose life began at a position.
   *
   * @throws Refusal item-not-found if it was never seen and is not there; WireError if it is of another partition key
   */
  async idBornAt(birth: number): Promise<string> {
    const known = this.#ids.get(birth);
    if (known !== undefined) return known;
    const snapshot = await this.#openSnapshot();
    const found = await this.#store.itemByBirth(this.#container, birth, undefined, snapshot);
    assertWhole(snapshot);
    if (found === undefined) throw new Refusal('item-not-found');
    if (found.partitionKey !== this.#partitionKey) throw otherKeyInScript();
    return found.id;
  }

  /** A page of a query over the partition key. */
  async query(request: Omit<QueryRequest, 'partitionKey' | 'snapshot'>): Promise<QueryPage> {
    const snapshot = await this.#openSnapshot();
    const page = await this.#store.queryItems(this.#container, {
      ...request,
      partitionKey: this.#partitionKey,
      snapshot,
    });
    assertWhole(snapshot);
    return page;
  }

  /** All items of the partition key, in pages. */
  async *all(): AsyncGenerator<readonly ShownItem[]> {
    const snapshot = await this.#openSnapshot();
    const scope = { partitionKey: this.#partitionKey, maxItemCount: DOCUMENTS_AT_ONCE, snapshot };
    let page: Awaited<ReturnType<CosmosRequest['store']['listItems']>> | undefined;
    do {
      page = await this.#store.listItems(this.#container, { ...scope, continuation: page?.continuation });
      assertWhole(snapshot);
      for (const item of page.items) this.#remember(item.id, item);
      yield page.items;
    } while (page.continuation !== undefined);
  }

  /** Remembers the items among the rows of a query. */
  rememberRows(rows: readonly unknown[]): void {
    for (const row of rows) {
      if (!isJsonObject(row)) continue;
      const { id, _etag: etag, _rid: rid } = row;
      if (typeof id !== 'string' || typeof etag !== 'string' || typeof rid !== 'string') continue;
      const birth = birthOfItemRid(this.#container.rid, rid);
      if (birth !== undefined) this.#remember(id, { etag, birth });
    }
  }

  /** Reads the item from a snapshot, or its current version if none is given. */
  async #read(id: string, snapshot?: ItemSnapshot): Promise<FoundItem | undefined> {
    const found = await this.#store
      .readItem(this.#container, id, this.#partitionKey, snapshot ?? 'head')
      .catch(unlessMissing);
    assertWhole(snapshot);
    this.#remember(id, found);
    return found;
  }

  /** Opens a snapshot of this moment, from which the running script reads until it ends. */
  #openSnapshot(): Promise<ItemSnapshot> {
    this.#hasLookedUp = true;
    this.#snapshot ??= this.#store.snapshotItems(this.#container).then(async (snapshot) => {
      try {
        const seen = [...this.#firstSeen.keys()];
        for (let from = 0; from < seen.length; from += READ_AT_ONCE) {
          await Promise.all(seen.slice(from, from + READ_AT_ONCE).map((id) => this.#read(id, snapshot)));
        }
        return snapshot;
      } catch (error) {
        await snapshot.close();
        throw error;
      }
    });
    return this.#snapshot;
  }

  #remember(id: string, found: Pick<ShownItem, 'etag' | 'birth'> | undefined): void {
    const etag = found?.etag;
    if (found !== undefined) this.#ids.set(found.birth, id);
    if (!this.#firstSeen.has(id)) this.#firstSeen.set(id, etag);
    else if (this.#firstSeen.get(id) !== etag) throw new Overtaken();
  }
}

/** @throws Overtaken if an item is missing because it was deleted and erased after the snapshot was taken */
function assertWhole(snapshot: ItemSnapshot | undefined): void {
  if (snapshot?.isWhole === false) throw new Overtaken();
}

function unlessMissing(error: unknown): undefined {
  if (error instanceof Refusal && error.code === 'item-not-found') return undefined;
  throw error;
}

/** The text is that of Cosmos DB. */
export const otherKeyInScript = (): Error =>
  badRequest(
    'Requests originating from scripts cannot reference partition keys other than the one for which client request was submitted.',
  );
