import { hasPseudonymousIds } from '@epitaph/core/item/pseudonym.ts';
import { isInScope, isWhole, type Scope } from '@epitaph/core/partition-key/scope.ts';
import { TURN_MS } from '@epitaph/core/turn.ts';
import { isExpired } from '@epitaph/core/ttl/watermarks.ts';
import { isUnreadable } from '@epitaph/projections/items/unreadable-items.ts';
import type { ItemRow } from '@epitaph/projections/read-model-store.ts';
import { Chosen, type Json, type OrderedRow, type QueryPlan } from '@epitaph/query';
import { PartUnreadable } from '../damage.ts';
import type { Documents } from '../items/documents.ts';
import { type KeptScan, MAX_KEPT_CHARACTERS } from '../item-rows.ts';
import { assertNotNameless, namelessIn, namelessUnreadable } from '../items/nameless.ts';
import { firstAfter, hasExpired, KEPT_BATCH, scanScope, scanScopes } from '../items/scans.ts';
import type { Moment, StoreParts } from '../parts.ts';
import { clearConditionsOf } from './clear-filters.ts';
import { itemsIn } from './named-in-filter.ts';
import type { FactCache, KnownOrder } from './known-facts.ts';
import { KnownFilter } from './known-filter.ts';
import type { QueryPlaces } from './query-places.ts';
import { MAX_LOOKED_UP, PieceSize, type Run } from './query-run.ts';

/** In a scan of no more rows than this, each document is opened: preparing to filter them by known properties takes as long. */
const FEW_ROWS = 1_000;

/** What gives a document its place in the order. */
type Born = Pick<ItemRow, 'birth'>;

/** Visible items, each with its document at the same index. */
export interface Batch<Row extends Born = ItemRow> {
  readonly rows: readonly Row[];
  readonly documents: readonly Json[];
  /** True when no batch follows. */
  readonly isLast: boolean;
  /** True when every batch that follows was looked up together with this one. */
  readonly isNearEnd: boolean;
  /** True when at least one batch follows that was looked up together with this one. */
  readonly isPart?: boolean;
  /** The birth up to which every row has been examined. */
  readonly through: number;
}

/** Takes the place of a document when its `id` and `_ts` are enough, or its places in an order are known. */
export class Stub {
  readonly id: string;
  readonly _ts: number;
  readonly #row: ItemRow;

  private constructor(row: ItemRow) {
    this.id = row.id;
    this._ts = row.ts;
    this.#row = row;
  }

  static of(row: ItemRow): Json {
    return new Stub(row) as unknown as Json;
  }

  /** The row of a document that is a stub; undefined for any other. */
  static rowOf(document: Json): ItemRow | undefined {
    return (document as unknown) instanceof Stub ? (document as unknown as Stub).#row : undefined;
  }
}

/** Finds the documents that a query is evaluated on. */
export class Candidates {
  readonly #parts: StoreParts;
  readonly #documents: Documents;
  readonly #places: QueryPlaces;
  readonly #facts: FactCache;

  constructor(parts: StoreParts, documents: Documents, places: QueryPlaces, facts: FactCache) {
    this.#parts = parts;
    this.#documents = documents;
    this.#places = places;
    this.#facts = facts;
  }

  /**
   * Visible documents that the clear columns don't rule out, in order of birth. Each batch takes a few milliseconds to
   * process, and other work gets its turn between batches.
   */
  of(run: Run, afterBirth: number): AsyncGenerator<Batch> {
    return this.#inPieces(run, run.plan, this.#found(run, afterBirth));
  }

  /**
   * As {@link of}, for the plan that chooses documents. Unless the documents of the container are in memory, each is
   * represented by a {@link Stub}.
   */
  toChoose(run: Run, chooser: QueryPlan): AsyncGenerator<Batch> {
    return this.#inPieces(
      run,
      chooser,
      this.#found(run, 0, () => true),
    );
  }

  /** As {@link of}, but documents whose places are known are each represented by a {@link Stub}. */
  toPlace(run: Run, order: KnownOrder): AsyncGenerator<Batch> {
    return this.#inPieces(
      run,
      run.plan,
      this.#found(run, 0, ({ position }) => order.get(position) !== undefined),
    );
  }

  /** The documents that rows of a {@link Chosen} represent, without those that have been erased meanwhile. */
  chosen(run: Run, chosen: readonly OrderedRow[]): AsyncGenerator<Batch<Born>> {
    // A document with several rows may have been chosen more than once.
    const byBirth = new Map(chosen.map(({ row, document }) => [document!, Chosen.documentOf(row)]));
    const inOrder = [...byBirth]
      .map(([birth, document]) => ({ birth, document }))
      .toSorted((one, other) => one.birth - other.birth);
    const documents = inOrder.map(({ document }) => document);
    const rows = documents.map((document) => Stub.rowOf(document)).filter((row) => row !== undefined);
    const through = inOrder.at(-1)?.birth ?? 0;
    if (rows.length > 0) return this.#inPieces(run, run.plan, this.#decoded(run, { rows, isLast: true, through }));
    return this.#inPieces(run, run.plan, [{ rows: inOrder, documents, isLast: true, isNearEnd: true, through }]);
  }

  /**
   * @param plan evaluates the documents; the results of its function calls are ready for each document of a batch
   */
  async *#inPieces<Row extends Born>(
    run: Run,
    plan: QueryPlan,
    found: AsyncIterable<Batch<Row>> | Iterable<Batch<Row>>,
  ): AsyncGenerator<Batch<Row>> {
    const ready = run.trialOf(plan);
    let piece = new PieceSize();
    for await (const batch of found) {
      // Each batch begins with a small piece again, because its documents may take a thousand times as long as those
      // before. If documents are tried first, the trial limits the piece.
      if (ready === undefined) piece = new PieceSize();
      const { length } = batch.rows;
      let from = 0;
      do {
        let to = Math.min(from + piece.size, length);
        if (run.isSlow) await this.#parts.slowLane.begin(run.request.signal);
        const took = run.clock();
        let isReady = true;
        try {
          if (ready !== undefined && to > from) {
            to = ready(batch.documents, from, to);
            isReady = to > from;
          }
          if (isReady) {
            // In the slow lane any document may take long, also after a thousand that did not. The piece ends with the
            // one that does.
            const step = run.isSlow && ready === undefined ? 1 : to - from;
            let next = from;
            do {
              const end = Math.min(next + step, to);
              yield end - next === length ? batch : partOf(batch, next, end);
              next = end;
            } while (next < to && took() < TURN_MS);
            to = next;
          }
        } finally {
          if (run.isSlow) this.#parts.slowLane.ended(took());
        }
        if (isReady) piece.took(took());
        else await run.settle();
        from = to;
        await this.#places.giveWay(run);
      } while (from < length);
    }
  }

  /** @param isStub whether a {@link Stub} is enough for a row */
  async *#found(run: Run, afterBirth: number, isStub?: (row: ItemRow) => boolean): AsyncGenerator<Batch> {
    const { pushdown, where } = run;
    const { within, marks } = run.moment;
    const { scope } = run;
    const recorded = await this.#parts.recordedScope(within.state, scope);
    const { signal } = run.request;
    const giveWay = () => this.#places.giveWay(run);
    const { definition } = within.state;
    // An id within a known partition key is a look-up, not a scan.
    const named = itemsIn(pushdown, definition, scope.partitionKey);
    if (named !== undefined) {
      const rows: ItemRow[] = [];
      const finding = run.clock();
      for (const { id, partitionKey } of named) {
        if (scope.partitionKey !== undefined && partitionKey !== scope.partitionKey) continue;
        if (!isInScope(definition, scope, partitionKey)) continue;
        const name = await this.#parts.recordedName(within.state, { id, partitionKey });
        const row = await run.moment.items.rows.find(within.number, name.partitionKey, name.id);
        if (row === undefined) await assertNotNameless(this.#parts, run.moment, name);
        // An unpaired surrogate, which no item's id contains, becomes the replacement character in UTF-8 and finds the
        // item of that name.
        if (row?.id === name.id && row.birth > afterBirth && !isExpired(row, marks)) rows.push(row);
        if (run.turnMs() >= TURN_MS) await giveWay();
      }
      run.lookupMs += finding();
      rows.sort((left, right) => left.birth - right.birth);
      yield* this.#decoded(run, { rows, isLast: true, through: rows.at(-1)?.birth ?? afterBirth }, isStub);
      return;
    }
    const { rows: kept } = run.moment.items;
    const scan = kept.scanned(within.number);
    const documents = kept.documents(within.number);
    if (isWhole(recorded) && scan !== undefined && documents !== undefined) {
      yield* ofKept(run, scan, documents, afterBirth);
      return;
    }
    const clear = clearConditionsOf(pushdown, definition);
    const keys = scan === undefined ? await this.#scopesOf(run) : undefined;
    // A scan of all rows comes across nameless items as it does across others.
    if (!isWhole(recorded) || keys !== undefined || clear !== undefined || where?.ids !== undefined) {
      await this.#assertNoneNameless(run);
    }
    const scanning =
      keys === undefined
        ? scanScope(run.moment, { ...recorded, clear, where }, afterBirth, { signal, giveWay })
        : scanScopes(
            run.moment,
            keys.map((key) => ({ ...key, clear, where })),
            afterBirth,
            { signal, giveWay },
          );
    let lookup = run.clock();
    let filter: KnownFilter | undefined;
    let isMany = false;
    let isThrough = false;
    try {
      for await (const batch of scanning) {
        run.lookupMs += lookup();
        run.scanned += batch.scanned;
        if (!isMany && run.scanned > FEW_ROWS) {
          isMany = true;
          filter = KnownFilter.of(run, this.#facts);
        }
        yield* this.#decoded(run, batch, isStub, filter);
        lookup = run.clock();
      }
      isThrough = true;
    } finally {
      filter?.end(isThrough);
    }
    if (isWhole(recorded)) this.#keepDocuments(run.moment);
  }

  /** @throws {PartUnreadable} when there is an item without a name that the query may ask for, or does not exclude */
  async #assertNoneNameless(run: Run): Promise<void> {
    const nameless = await namelessIn(run.moment);
    const found = nameless.find((row) => run.where?.ids !== undefined || !run.rulesOut(Stub.of(row)));
    if (found !== undefined) throw namelessUnreadable(found);
  }

  /** A scope for each partition key that the query names; undefined when all rows have to be scanned. */
  async #scopesOf({ keys, scope: { prefix, range }, moment }: Run): Promise<readonly Scope[] | undefined> {
    if (keys === undefined || keys.length > MAX_LOOKED_UP) return undefined;
    const { state } = moment.within;
    const { definition } = state;
    const scopes: Scope[] = [];
    for (const { partitionKey, prefix: leading } of keys) {
      if (partitionKey === undefined) scopes.push({ prefix: leading, range });
      else if (isInScope(definition, { prefix, range }, partitionKey)) {
        scopes.push(await this.#parts.recordedScope(state, { partitionKey }));
      }
    }
    return scopes;
  }

  /** Keeps the documents of a kept scan with it once all of them have been decoded. */
  #keepDocuments({ within: { number: container }, items: { rows } }: Moment): void {
    const scan = rows.scanned(container);
    const documents = scan && this.#documents.allParsed(scan.rows, MAX_KEPT_CHARACTERS);
    if (documents !== undefined) rows.keepDocuments(container, scan!, documents);
  }

  /** Rows with their documents. Each batch takes a few milliseconds to open, because documents may be large. */
  async *#decoded(
    run: Run,
    { rows: candidates, isLast, through }: Pick<Batch, 'rows' | 'isLast' | 'through'>,
    isStub: (row: ItemRow) => boolean = () => false,
    filter?: KnownFilter,
  ): AsyncGenerator<Batch> {
    const { state } = run.moment.within;
    const needsBody = run.plan.needsBody || hasPseudonymousIds(state.definition);
    const isOpened = (row: ItemRow) => needsBody && !isStub(row);
    const load = run.clock();
    const { mayMatch } = run;
    const wanted = mayMatch === undefined ? candidates : candidates.filter(mayMatch);
    let rows: ItemRow[] = [];
    let documents: Json[] = [];
    const mayOpen = wanted.filter((row) => isOpened(row));
    const excluded = filter === undefined ? undefined : await this.#excludedBy(filter, run, mayOpen);
    if (needsBody) {
      const opened = excluded === undefined ? mayOpen : mayOpen.filter((row) => !excluded.has(row));
      await this.#documents.prefetch(opened, run.room);
    }
    let opening = run.clock();
    // The part of the loading time in which other work had its turn.
    let givenMs = 0;
    for (const row of wanted) {
      // If the last event of an item can't be read, it is not even known whether the item exists.
      let document = isOpened(row) || isUnreadable(row) ? this.#documents.parsed(row) : Stub.of(row);
      document ??= excluded?.get(row);
      if (document === undefined) {
        const openedMs = opening();
        if (openedMs >= TURN_MS) {
          const given = run.clock();
          const passed = rows.at(-1)?.birth ?? row.birth - 1;
          yield { rows, documents, isLast: false, isNearEnd: isLast, isPart: true, through: passed };
          [rows, documents] = [[], []];
          await this.#places.giveWay(run);
          givenMs += given();
          opening = run.clock();
        }
        try {
          document = await this.#documents.parse(state, row, run.room);
          if (document !== undefined) filter?.opened(row, document);
        } catch (error) {
          // A damaged document must not fail a query that excludes it, nor a page that ends before it.
          if (!(error instanceof PartUnreadable)) throw error;
          if (run.rulesOut(Stub.of(row))) continue;
          if (rows.length > 0) {
            yield { rows, documents, isLast: false, isNearEnd: false, isPart: true, through: rows.at(-1)!.birth };
          }
          throw error;
        }
      }
      if (document === undefined) {
        run.moment.items.erased?.();
        continue;
      }
      rows.push(row);
      documents.push(document);
    }
    run.loadMs += load() - givenMs;
    yield { rows, documents, isLast, isNearEnd: isLast, through };
  }

  /** The rows whose documents a filter excludes, each with the part of the document that says so. */
  async #excludedBy(filter: KnownFilter, run: Run, rows: readonly ItemRow[]): Promise<ReadonlyMap<ItemRow, Json>> {
    const excluded = new Map<ItemRow, Json>();
    for (const row of rows) {
      const part = isUnreadable(row) ? undefined : filter.excluded(row);
      if (part !== undefined) excluded.set(row, part);
      if (run.turnMs() >= TURN_MS) await this.#places.giveWay(run);
    }
    return excluded;
  }
}

/** The part of a batch from one index up to, but not including, another. */
function partOf<Row extends Born>(
  { rows, documents, isLast, isNearEnd, isPart, through }: Batch<Row>,
  from: number,
  to: number,
): Batch<Row> {
  const isEnd = to === rows.length;
  return {
    rows: rows.slice(from, to),
    documents: documents.slice(from, to),
    isLast: isLast && isEnd,
    isNearEnd,
    isPart: isPart === true || !isEnd,
    through: isEnd ? through : rows[to - 1]!.birth,
  };
}

/** The rows of a kept scan that are visible and not ruled out, in batches. */
async function* ofKept(run: Run, scan: KeptScan, all: readonly Json[], afterBirth: number): AsyncGenerator<Batch> {
  const { marks } = run.moment;
  const isIn = hasExpired(scan, marks)
    ? (row: ItemRow) => !isExpired(row, marks) && run.mayMatch?.(row) !== false
    : run.mayMatch;
  const { length } = scan.rows;
  for (let start = firstAfter(scan.rows, afterBirth); start < length; start += KEPT_BATCH) {
    const end = Math.min(start + KEPT_BATCH, length);
    let rows = scan.rows.slice(start, end);
    let documents = all.slice(start, end);
    run.scanned += rows.length;
    const through = rows.at(-1)!.birth;
    if (isIn !== undefined) {
      const whole = rows;
      rows = whole.filter(isIn);
      documents = documents.filter((_, index) => isIn(whole[index]!));
    }
    yield { rows, documents, isLast: end === length, isNearEnd: end === length, through };
    if (end === length) return;
  }
}
