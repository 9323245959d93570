import { hash } from 'node:crypto';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { type FoundPlaces, placesText, type QueryParameter, type QueryPlan } from '@epitaph/query';
import { inThisHeap } from '../heap.ts';

/** Bytes of all known places. */
const MOST_BYTES = inThisHeap(32 * 1024 * 1024);
/** Most are empty: of queries that were asked for once. */
const MOST_ORDERS = 64;

/** Bytes of an entry, besides its places. */
const ENTRY_BYTES = 96;
const bytesOfEntry = ({ bytes }: FoundPlaces): number => ENTRY_BYTES + bytes;

/**
 * What is known of the order of one query's rows: the places of the rows of some versions of items, by the positions of
 * the versions. A version's places depend on nothing else, so they stay valid whatever is written.
 */
export class KnownOrder {
  readonly definition: ContainerDefinition;
  /** How often it was asked for. */
  asked = 0;
  bytes = 0;
  /** Whether there was no room for some places, while many of those that are kept are of versions that were replaced. */
  isStale = false;
  #isFull = false;
  readonly #places = new Map<number, FoundPlaces>();
  #runs = 0;
  /** Positions that were erased during a run, which may have read their content before. */
  readonly #erased = new Set<number>();

  constructor(definition: ContainerDefinition) {
    this.definition = definition;
  }

  get(position: number): FoundPlaces | undefined {
    return this.#places.get(position);
  }

  /** @param makeRoom returns whether there is room for so many bytes more */
  keep(position: number, places: FoundPlaces, makeRoom: (bytes: number) => boolean): void {
    const bytes = bytesOfEntry(places);
    // Another run may have kept the same.
    if (this.#erased.has(position) || this.#places.has(position)) return;
    if (!makeRoom(bytes)) {
      this.#isFull = true;
      return;
    }
    this.#places.set(position, places);
    this.bytes += bytes;
  }

  erased(positions: readonly number[]): void {
    for (const position of positions) {
      const places = this.#places.get(position);
      if (places !== undefined) this.bytes -= bytesOfEntry(places);
      this.#places.delete(position);
      if (this.#runs > 0) this.#erased.add(position);
    }
  }

  /** @param run returns how many of the places it used, with its result */
  async during<Result>(run: () => Promise<{ readonly result: Result; readonly used: number }>): Promise<Result> {
    this.#runs += 1;
    try {
      const { result, used } = await run();
      if (this.#isFull && used < this.#places.size / 2) this.isStale = true;
      return result;
    } finally {
      this.#runs -= 1;
      if (this.#runs === 0) this.#erased.clear();
    }
  }
}

/**
 * Remembers the places of rows from one page of an ordered query to the next, which would otherwise open all documents
 * again to find out which rows come next.
 *
 * The values by which rows are ordered are content. So whatever is erased must be erased here too.
 */
export class KnownOrders {
  /** By the query; the least recently used first. */
  readonly #orders = new Map<string, KnownOrder>();

  /** The order of a query's rows. It is empty when it is asked for the first time. */
  of({ rid, definition }: ContainerState, plan: QueryPlan, parameters: readonly QueryParameter[]): KnownOrder {
    const question = hash('sha256', `${rid} ${placesText(plan, parameters)}`);
    const known = this.#orders.get(question);
    const order = known?.definition === definition && !known.isStale ? known : new KnownOrder(definition);
    this.#orders.delete(question);
    this.#orders.set(question, order);
    order.asked += 1;
    if (this.#orders.size > MOST_ORDERS) this.#forgetOther(order);
    return order;
  }

  keep(order: KnownOrder, position: number, places: FoundPlaces): void {
    order.keep(position, places, (bytes) => {
      while (order.bytes + this.#bytesBeside(order) + bytes > MOST_BYTES) if (!this.#forgetOther(order)) return false;
      return true;
    });
  }

  /** @param positions of the erased versions; undefined if they are unknown */
  erased(positions: readonly number[] | undefined): void {
    if (positions === undefined) this.#orders.clear();
    else for (const order of this.#orders.values()) order.erased(positions);
  }

  #bytesBeside(order: KnownOrder): number {
    let sum = 0;
    for (const other of this.#orders.values()) if (other !== order) sum += other.bytes;
    return sum;
  }

  /** Forgets the least recently used order besides the given one. Returns false if there is none. */
  #forgetOther(order: KnownOrder): boolean {
    for (const [question, other] of this.#orders) if (other !== order) return this.#orders.delete(question);
    return false;
  }
}
