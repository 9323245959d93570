import { hash } from 'node:crypto';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { hasPseudonymousIds } from '@epitaph/core/item/pseudonym.ts';
import { isInRange } from '@epitaph/core/partition-key/effective-partition-key.ts';
import { isWhole, startOf } from '@epitaph/core/partition-key/scope.ts';
import type { ItemRow } from '@epitaph/projections/read-model-store.ts';
import {
  Chosen,
  choosingPlan,
  type Evaluation,
  type FoundPlaces,
  hasLastingPlaces,
  isOfMany,
  isOrdered,
  isRanked,
  type Json,
  jsonText,
  MAX_NEIGHBOURS,
  NO_BOUNDS,
  OrderedPage,
  type OrderedRow,
  type OrderedStart,
  parseQuery,
  placesText,
  type PlanOptions,
  planQuery,
  type Query,
  type QueryParameter,
  type QueryPlan,
  startAfter,
  startEvaluation,
  withoutValues,
} from '@epitaph/query';
import type { RequestUnits } from '../../request-units/request-units.ts';
import type { QueryPage, QueryRequest } from '../api/queries-api.ts';
import { MAX_PAGE_CHARACTERS } from '../document-limits.ts';
import type { Documents } from '../items/documents.ts';
import { momentOf } from '../items/item-snapshot.ts';
import type { Moment, StoreParts } from '../parts.ts';
import { planOptionsOf } from '../plan-options.ts';
import { type Batch, Candidates, Stub } from './candidates.ts';
import { FactCache, type KnownOrder } from './known-facts.ts';
import { LongPages } from './long-pages.ts';
import {
  type Answer,
  birthsOf,
  checkOrder,
  continuationOf,
  countedIn,
  differences,
  inOrder,
  isPartOf,
  Page,
  resumeOf,
  rowsLeft,
  startOfToken,
} from './query-page.ts';
import { QueryPlaces, workUntil } from './query-places.ts';
import { type Bounds, PieceSize, Run } from './query-run.ts';
import { RowPlaces } from './row-places.ts';
import { spansOf } from './spans-of-time.ts';

/** The most documents that one page of a streaming query examines before it is returned with the rows found so far. */
const MAX_EXAMINED = 20_000;
/** Bytes of rows that an ordered page keeps to choose from: twice the limit for its text, at two bytes a character. */
const PAGE_BYTES = 4 * MAX_PAGE_CHARACTERS;
/** An ordered page keeps this many rows, however large they are: one to return, and those that say where the next page begins. */
const LEAST_ROWS = 1 + MAX_NEIGHBOURS;
/** The user-defined functions of a container without any. */
const NONE: ReadonlySet<string> = new Set();

/**
 * Answers queries. The clear columns select the rows according to the plan, and the evaluator gets their documents one
 * by one.
 */
export class Queries {
  readonly #parts: StoreParts;
  readonly #places = new QueryPlaces();
  readonly #facts = new FactCache();
  readonly #candidates: Candidates;
  readonly #longPages: LongPages<MadePage>;
  readonly #requestUnits: RequestUnits;

  /** @param pageWaitMs milliseconds that a request waits for a page */
  constructor(parts: StoreParts, documents: Documents, requestUnits: RequestUnits, pageWaitMs?: number) {
    this.#parts = parts;
    this.#requestUnits = requestUnits;
    this.#longPages = new LongPages(pageWaitMs);
    this.#candidates = new Candidates(parts, documents, this.#places, this.#facts);
  }

  async query(container: ContainerState, request: QueryRequest): Promise<QueryPage> {
    const { monotonicMs } = this.#parts.ports;
    const { pageId: id, isAwaited = false, signal, standAside } = request;
    const startedMs = monotonicMs();
    const about = () => aboutOf(container, request);
    const asked = { id, about, isAwaited, signal, standAside };
    const { made, again } = await this.#longPages.ask(asked, (ends) =>
      this.#begin(container, { ...request, signal: ends }),
    );
    if (again !== undefined) return made.notReady(again, monotonicMs() - startedMs);
    try {
      const page = await made.page;
      return { ...page, ...made.untold(page) };
    } catch (error) {
      const worked = error instanceof Error ? workUntil.get(error) : undefined;
      if (worked !== undefined) workUntil.set(error as Error, made.untold(worked));
      throw error;
    }
  }

  /**
   * Must be called when content was erased: pages that are ready and not fetched may show it, and what is remembered for
   * the next pages.
   *
   * @param positions of the erased versions of items; undefined if they are unknown
   */
  erased(positions: readonly number[] | undefined): void {
    this.#longPages.forgetReady();
    this.#facts.erased(positions);
  }

  /** Gives up the pages for which no request waits. */
  stop(): Promise<void> {
    return this.#longPages.stop();
  }

  #begin(container: ContainerState, request: QueryRequest): MadePage {
    const { monotonicMs } = this.#parts.ports;
    const startedMs = monotonicMs();
    const parsed = parseQuery(request.sql);
    const parsedMs = monotonicMs();
    const { plan, bounds } = planToPage(request, container, parsed);
    checkOrder(plan, request);
    const plannedMs = monotonicMs();
    let running: Run | undefined;
    const make = async (): Promise<QueryPage> => {
      await this.#parts.seen(request.atLeast);
      const begin = async (isSlow: boolean) => {
        const moment = await momentOf(this.#parts, container, request.snapshot);
        return (running = new Run(request, plan, moment, monotonicMs, isSlow, bounds));
      };
      const { run, result: answer } = await this.#places.toItsEnd(request, begin, (begun) => this.#answer(begun));
      const metrics = {
        totalMs: monotonicMs() - startedMs,
        compileMs: parsedMs - startedMs,
        planMs: plannedMs - parsedMs,
        lookupMs: run.lookupMs,
        loadMs: run.loadMs,
      };
      const { continuation } = answer;
      return {
        ...answer,
        ...(continuation === undefined ? {} : { continuation: inOrder(continuation, plan, request) }),
        examined: run.examined,
        extraWork: run.extraWork,
        metrics,
        pushdown: run.pushdown,
      };
    };
    const chargeRest = this.#requestUnits.later(container);
    let told: Work = { examined: 0, extraWork: 0 };
    const untold = (worked: Work): Work => {
      const before = told;
      // A run that was begun again has done less work for a while. Work that it repeats is reported only once.
      told = {
        examined: Math.max(before.examined, worked.examined),
        extraWork: Math.max(before.extraWork, worked.extraWork),
      };
      return { examined: told.examined - before.examined, extraWork: told.extraWork - before.extraWork };
    };
    return {
      page: make(),
      untold,
      givenUp: () => chargeRest(untold(running ?? told)),
      notReady: (id, totalMs) => ({
        rows: [],
        texts: [],
        ...(request.continuation === undefined ? {} : { continuation: request.continuation }),
        pageId: id,
        ...untold(running ?? told),
        metrics: { totalMs, compileMs: 0, planMs: 0, lookupMs: 0, loadMs: 0 },
        pushdown: running?.pushdown ?? plan.pushdown,
      }),
    };
  }

  /**
   * The items from which a query's rows come, as of now.
   *
   * @returns undefined when there are more than `most`
   * @throws Refusal bad-request for a query whose rows don't each come from one document
   * @throws QueryError for a query that lacks a parameter: without the error it would silently find nothing, or
   *   everything
   */
  async rowsOf(
    container: ContainerState,
    request: Pick<QueryRequest, 'sql' | 'parameters'>,
    most: number,
  ): Promise<ItemRow[] | undefined> {
    const whole = planOf(request, container, { needsParameters: true });
    if (!whole.streaming || !whole.readsDocuments || whole.top !== undefined || whole.limit !== undefined) {
      throw new Refusal(
        'bad-request',
        'The query must choose documents: without aggregates, GROUP BY, DISTINCT, ORDER BY, TOP, OFFSET and LIMIT.',
      );
    }
    // The content of an item may be damaged, so it is opened only if the filter needs it.
    const plan = planOf(request, container, { query: withoutValues(whole.query), needsParameters: true });
    const { monotonicMs } = this.#parts.ports;
    await this.#parts.seen('head');
    const asked = { ...request, maxItemCount: most };
    const begin = async (isSlow: boolean) =>
      new Run(asked, plan, await this.#parts.moment(container), monotonicMs, isSlow);
    const { result } = await this.#places.toItsEnd(asked, begin, async (run) => {
      const evaluation = startEvaluation(plan, run.context);
      const found: ItemRow[] = [];
      for await (const { rows, documents } of this.#candidates.of(run, 0)) {
        for (let next = 0; next < documents.length;) {
          next = evaluation.offer(documents, next);
          if (evaluation.takeRows().length === 0) continue;
          if (found.length === most) return undefined;
          found.push(rows[next - 1]!);
        }
      }
      return found;
    });
    return result;
  }

  async #answer(run: Run): Promise<Answer> {
    const { plan, request } = run;
    if (plan.countOnly && plan.pushdown.complete && isUnfiltered(plan) && isWhole(run.scope)) {
      continuationOf(request, 'skip');
      const rows = request.continuation === undefined ? [await this.#countAll(run.moment)] : [];
      return { rows, texts: rows.map(String) };
    }
    if (isOrdered(plan)) return this.#sorted(run);
    // In a token of an earlier version, rows may be counted for a query that now goes on after a place. Such a query is
    // evaluated from the start.
    if (request.continuation?.kind !== 'skip') {
      if (isRanked(plan)) return this.#ranked(run);
      if (plan.asOffered) return this.#stream(run);
    }
    return plan.streaming ? this.#stream(run) : this.#whole(run);
  }

  #countAll({ within, items, marks }: Moment) {
    return items.readModel.countVisible(within.number, marks);
  }

  /** Answers a query whose rows come in document order. Each page goes on after the last row of the page before. */
  #stream(run: Run): Promise<Answer> {
    const order = run.plan.query.distinct ? this.#knownOrderOf(run) : undefined;
    if (order === undefined) return this.#streamed(run);
    return this.#withPlaces(run, order, (places) => this.#streamed(run, { order, places }));
  }

  async #streamed(run: Run, known?: { readonly order: KnownOrder; readonly places: RowPlaces }): Promise<Answer> {
    const { request, plan, bounds } = run;
    const last = continuationOf(request, 'after');
    const inside = last?.inside ?? 0;
    const start = last === undefined ? 0 : inside > 0 ? last.birth - 1 : last.birth;
    // Whether a row is distinct depends on all rows before it, so these are evaluated again and left out of the page.
    const isAnew = plan.query.distinct;
    const mostExamined = isAnew ? Number.POSITIVE_INFINITY : MAX_EXAMINED;
    let passed = last?.rows ?? 0;
    const evaluation = startEvaluation(plan, run.context);
    const page = new Page(request.maxItemCount);
    const after = (birth: number, given = 0) =>
      page.answer({
        kind: 'after',
        birth,
        ...(given === 0 ? {} : { inside: given }),
        ...(bounds === undefined ? {} : { rows: passed }),
      });
    if (bounds !== undefined && passed >= bounds.to) return page.answer();
    const offer = (batch: Batch, from: number) =>
      known === undefined
        ? run.offer(evaluation, batch.documents, from)
        : run.counted(known.places, () => offerPlaces(evaluation, batch, from, known.places));
    const givesRows = (batch: Batch, from: number) => {
      const { examined, extraWork } = run;
      offer(batch, from);
      // Whether another page follows is found out at no charge.
      Object.assign(run, { examined, extraWork });
      return evaluation.hasRows;
    };
    // A full page has a continuation only if more rows follow. Clients take a page without one for the last, and some
    // rely on the last page having none.
    let fullAt: number | undefined;
    const batches =
      known === undefined ? this.#candidates.of(run, isAnew ? 0 : start) : this.#candidates.toPlace(run, known.order);
    for await (const batch of batches) {
      const { rows, documents, isLast, isNearEnd, isPart, through } = batch;
      if (fullAt !== undefined) {
        if (givesRows(batch, 0)) return after(fullAt);
        continue;
      }
      for (let next = 0; next < documents.length;) {
        next = offer(batch, next);
        const found = evaluation.hasRows ? evaluation.takeRows() : [];
        const { birth } = rows[next - 1]!;
        if (birth <= start) continue;
        for (let given = birth === last?.birth ? inside : 0; given < found.length; given += 1) {
          if (bounds === undefined || passed >= bounds.from) {
            if (!page.takeIfItFits(found[given]!)) return given === 0 ? after(birth - 1) : after(birth, given);
          }
          passed += 1;
          if (bounds !== undefined && passed >= bounds.to) return page.answer();
        }
        if (!page.isFull && run.examined < mostExamined) continue;
        if (!isNearEnd || givesRows(batch, next)) return after(birth);
        fullAt = birth;
        break;
      }
      // Rows that a narrower scope left out count as well, because looking at them took time.
      if (run.scanned >= mostExamined && !isLast && isPart !== true && fullAt === undefined) return after(through);
    }
    return page.answer();
  }

  /** Answers ORDER BY and GROUP BY. Each page goes on after the place of the last row of the page before. */
  async #sorted(run: Run): Promise<Answer> {
    const { request, plan } = run;
    const { resume } = request;
    const begun = continuationOf(request, 'sorted');
    // If the client tells rows apart by their place, the continuation is the start of the page of which it has not used
    // every row.
    const isWithin = resume?.inside !== undefined && (begun?.birth !== resume.birth || begun?.inside !== resume.inside);
    const last = isWithin ? undefined : begun;
    const start = last === undefined ? resumeOf(run) : startOfToken(plan, last);
    const given = last?.rows ?? 0;
    const left = rowsLeft(plan, given);
    const size = Math.min(request.maxItemCount, left);
    const offset = last === undefined ? (plan.offset ?? 0) : 0;
    const page = new Page(size);
    if (size === 0) return page.answer();
    const { ordered, rows: found, before, isCut } = await this.#ordered(run, start, offset, size);
    for (const one of found.slice(0, size)) if (!page.takeIfItFits(named(one, request))) break;
    const rows = page.length;
    if (rows === 0 || (found.length <= rows && !isCut) || rows === left) return page.answer();
    const { keys, document, inside, exclude, near } = await this.#toEnd(
      run,
      ordered,
      startAfter(plan.program, [...before, ...found.slice(0, rows)], found.slice(rows)),
    );
    return page.answer({
      kind: 'sorted',
      keys: keys.map((value) => (value === undefined ? [] : [value])),
      ...(document === undefined ? {} : { birth: document }),
      ...(inside === undefined ? {} : { inside }),
      ...(exclude ? {} : { include: true }),
      ...(near === undefined ? {} : { near }),
      rows: given + rows,
    });
  }

  /** The rows of an ordered page, from the shortest span of time that has enough for it. */
  async #ordered(run: Run, start: OrderedStart | undefined, offset: number, size: number): Promise<Ordered> {
    // One row more than fits shows that there is another page. A few more may be needed to say where that one begins.
    const rows = size + MAX_NEIGHBOURS;
    const { examined, extraWork, memory } = run;
    const { heldBytes } = memory;
    const chooser = this.#chooserOf(run, start);
    // Of a row of one document, only the place is known, and not what tells its neighbours.
    const isKnown = chooser === undefined && (start?.near === undefined || isOfMany(run.plan));
    const order = isKnown ? this.#knownOrderOf(run) : undefined;
    const spans = spansOf(run, start, offset + rows);
    for (;;) {
      const { value: span, done: isLast } = await spans.next();
      run.narrowTo(span);
      const page = await this.#orderedWithin(run, { chooser, order, start, offset, rows, isAll: isLast === true });
      if (page !== undefined) return page;
      // The work on a span without enough rows is not charged.
      Object.assign(run, { examined, extraWork });
      memory.releaseTo(heldBytes);
    }
  }

  /**
   * The rows of an ordered page among the documents that the run looks at. If `id` and `_ts` are enough to choose them,
   * only the chosen documents are opened.
   *
   * @returns undefined for a page that is not full while documents outside the span may follow
   */
  async #orderedWithin(run: Run, { chooser, order, start, offset, rows, isAll }: Wanted): Promise<Ordered | undefined> {
    const afterOffset = (found: Ordered): Ordered => ({ ...found, rows: found.rows.slice(offset) });
    const isMissing = (page: Ordered) => !isAll && !page.isCut && page.rows.length < rows;
    const { plan, context, memory } = run;
    const { heldBytes } = memory;
    const room = { bytes: PAGE_BYTES, leastRows: offset + LEAST_ROWS };
    const newPage = () => new OrderedPage(plan, context, start, offset + rows, room);
    // The places of such rows have all that the rows consist of. They are never in the order of `_ts`, so this is all.
    if (order !== undefined && isOfMany(plan)) {
      return afterOffset(await this.#rowsByPlaces(run, order, newPage()));
    }
    let choice: Ordered | undefined;
    if (chooser !== undefined) {
      const choosing = new OrderedPage(chooser, context, start, offset + rows);
      choice = afterOffset(await this.#rowsOver(run, choosing, this.#candidates.toChoose(run, chooser)));
    } else if (order !== undefined) {
      const choosing = new OrderedPage(plan, context, start, offset + rows);
      choice = afterOffset(await this.#rowsByPlaces(run, order, choosing));
    }
    if (choice !== undefined) {
      const { rows: chosen } = choice;
      memory.releaseTo(heldBytes);
      if (isMissing(choice)) return undefined;
      const { examined } = run;
      const page = await this.#rowsOfChosen(run, start, chosen);
      if (chooser !== undefined || start === undefined) run.examined = examined;
      // If a chosen document was erased meanwhile, another one takes its place.
      if (page.isCut || page.rows.length === chosen.length) return page;
      run.examined = 0;
    }
    const page = afterOffset(await this.#rowsOver(run, newPage(), this.#candidates.of(run, 0)));
    return isMissing(page) ? undefined : page;
  }

  /** The rows of chosen documents, as many as fit on a page. Documents whose rows come after these are not opened. */
  async #rowsOfChosen(run: Run, start: OrderedStart | undefined, chosen: readonly OrderedRow[]): Promise<Ordered> {
    const { plan, context, memory } = run;
    const { heldBytes } = memory;
    const rows: OrderedRow[] = [];
    // If documents have several rows, one may have been chosen more than once.
    let size = plan.program.sources.length > 0 ? chosen.length : LEAST_ROWS;
    for (let bytesLeft = PAGE_BYTES; ;) {
      const some = chosen.slice(rows.length, rows.length + size);
      const room = { bytes: bytesLeft, leastRows: LEAST_ROWS };
      const ordered = new OrderedPage(plan, context, start, chosen.length, room);
      const page = await this.#rowsOver(run, ordered, this.#candidates.chosen(run, some));
      rows.push(...page.rows);
      const bytes = memory.heldBytes - heldBytes;
      bytesLeft = PAGE_BYTES - bytes;
      const isCut = page.isCut || (bytesLeft <= 0 && rows.length < chosen.length);
      // Fewer rows if a document was erased meanwhile.
      const isEnd = isCut || page.rows.length < some.length || rows.length === chosen.length;
      if (isEnd) return { ...page, rows, isCut };
      // So many fit if they are as large as those before.
      size = Math.ceil((bytesLeft * rows.length) / bytes);
    }
  }

  async #rowsOver(run: Run, ordered: OrderedPage, batches: AsyncIterable<Offered>): Promise<Ordered> {
    await this.#offerAll(run, ordered, batches);
    return { ordered, ...ordered.rows() };
  }

  /**
   * The order in which a page's rows are chosen by their places; undefined if that is not possible, or would not be worth
   * it. A first page is mostly the only one, so it must have been asked for before.
   */
  #knownOrderOf({ plan, moment, request, isFirst }: Run): KnownOrder | undefined {
    if (!plan.needsBody || !hasLastingPlaces(plan)) return undefined;
    const { state, number } = moment.within;
    if (isFirst && moment.items.rows.documents(number) !== undefined) return undefined;
    const order = this.#facts.of<FoundPlaces>(
      state,
      `places ${placesText(plan, request.parameters as readonly QueryParameter[])}`,
      isFirst,
    );
    return !isFirst || order.asked > 1 ? order : undefined;
  }

  /** The rows of a page, or its choice, by the places of all rows. Remembers these for the next page. */
  #rowsByPlaces(run: Run, order: KnownOrder, ordered: OrderedPage): Promise<Ordered> {
    return this.#withPlaces(run, order, async (places) => {
      for await (const { rows, documents } of this.#candidates.toPlace(run, order)) {
        run.counted(places, () => {
          for (let index = 0; index < rows.length; index += 1) {
            const row = rows[index]!;
            const chosen = () => Chosen.of(Stub.of(row));
            places.each(row, documents[index]!, (place) => ordered.offerPlace(row.birth, place, chosen));
          }
        });
      }
      await this.#toEnd(run, ordered, ordered.finishing());
      return { ordered, ...ordered.rows() };
    });
  }

  async #withPlaces<Result>(
    run: Run,
    order: KnownOrder,
    work: (places: RowPlaces) => Promise<Result>,
  ): Promise<Result> {
    const places = new RowPlaces(run, order);
    order.runBegins();
    let used: number | undefined;
    try {
      const result = await work(places);
      ({ used } = places);
      return result;
    } finally {
      order.runEnds(used);
    }
  }

  /**
   * The plan that chooses rows by `id` and `_ts`; undefined if there is none. It is used even if all documents are in
   * memory: the charge for a query, and whether it is refused, depend on the rows that are made.
   */
  #chooserOf({ plan, request, moment }: Run, start: OrderedStart | undefined): QueryPlan | undefined {
    const { state } = moment.within;
    // A place that is given by its neighbours needs the rows of those.
    if (start?.near !== undefined || hasPseudonymousIds(state.definition)) return undefined;
    const { parameters, userFunctions } = request;
    const options = { ...planOptionsOf(state.definition), userFunctions: userFunctions?.names ?? NONE };
    return choosingPlan(plan, parameters as readonly QueryParameter[], options);
  }

  /**
   * Answers ORDER BY RANK. A document that is added or removed changes the scores of all others, so each page has the
   * best rows among those that were not returned before.
   */
  async #ranked(run: Run): Promise<Answer> {
    const { request, plan } = run;
    const last = continuationOf(request, 'ranked');
    const given = last?.rows ?? 0;
    const left = rowsLeft(plan, given);
    const size = Math.min(request.maxItemCount, left);
    const page = new Page(size);
    if (size === 0) return page.answer();
    const ordered = new OrderedPage(plan, run.context, undefined, Number.POSITIVE_INFINITY);
    await this.#offerAll(run, ordered, this.#candidates.of(run, 0));
    const passed = new Set(birthsOf(last?.births ?? []));
    const offset = last === undefined ? (plan.offset ?? 0) : 0;
    const found = ordered.rows().rows.filter(({ document }) => !passed.has(document!));
    for (const { row } of found.slice(offset, offset + size)) if (!page.takeIfItFits(row)) break;
    const rows = page.length;
    if (found.length <= offset + rows || rows === left) return page.answer();
    for (const { document } of found.slice(0, offset + rows)) passed.add(document!);
    const births = differences([...passed].toSorted((one, other) => one - other));
    return page.answer({ kind: 'ranked', births, rows: given + rows, range: countedIn(run.scope) });
  }

  async #offerAll(run: Run, ordered: OrderedPage, batches: AsyncIterable<Offered>): Promise<void> {
    for await (const { rows, documents } of batches) {
      run.examined += documents.length;
      run.counted(ordered, () => ordered.offer(documents, (index) => rows[index]!.birth));
    }
    await this.#toEnd(run, ordered, ordered.finishing());
  }

  /** Does the remaining work once there are no more documents. Groups are processed in pieces, as documents are. */
  async #toEnd<Result>(
    run: Run,
    evaluation: Pick<Evaluation, 'extraWork'>,
    steps: Generator<void, Result, undefined>,
  ): Promise<Result> {
    const piece = new PieceSize();
    const { calls } = run;
    const isWaiting = () => calls?.isWaiting === true;
    const work = () => {
      let step = steps.next();
      for (let left = piece.size; left > 1 && step.done !== true && !isWaiting(); left -= 1) step = steps.next();
      return step;
    };
    for (;;) {
      if (run.isSlow) await this.#parts.slowLane.begin(run.request.signal);
      const took = run.clock();
      let step: IteratorResult<void, Result>;
      try {
        step = run.counted(evaluation, work);
      } finally {
        if (run.isSlow) this.#parts.slowLane.ended(took());
      }
      piece.took(took());
      if (isWaiting()) await run.settle();
      await this.#places.giveWay(run);
      if (step.done === true) return step.value;
    }
  }

  /** Answers any other query. It is evaluated again for each page, and the page is a part of the whole answer. */
  async #whole(run: Run): Promise<Answer> {
    const { request, plan, moment } = run;
    const last = continuationOf(request, 'skip');
    const skip = last?.rows ?? 0;
    const { range } = run.scope;
    if (run.scope.partitionKey === undefined && last?.range !== undefined && isPartOf(range, last.range)) {
      // The token's range has been split since. Its first part returns the rest of the whole range, and the other parts
      // nothing.
      run.scope = { ...run.scope, range: last.range };
      if (!isInRange(startOf(moment.within.state.definition, run.scope), range)) return { rows: [], texts: [] };
    }
    if (request.resume !== undefined) {
      throw new Refusal('bad-request', 'A resume filter needs the query that a query plan has rewritten.');
    }
    const page = new Page(request.maxItemCount);
    let produced = 0;
    let hasMore = false;
    const take = (found: readonly Json[]) => {
      for (const row of found) {
        produced += 1;
        if (hasMore || produced <= skip) continue;
        hasMore = !page.takeIfItFits(row);
      }
    };
    const evaluation = startEvaluation(plan, run.context);
    if (plan.readsDocuments) {
      // One row more than fits shows that there is another page.
      const wantsMore = () => evaluation.wantsDocuments && !hasMore;
      for await (const { documents } of this.#candidates.of(run, 0)) {
        for (let next = 0; next < documents.length && wantsMore();) {
          next = run.offer(evaluation, documents, next);
          if (evaluation.hasRows) take(evaluation.takeRows());
        }
        if (!wantsMore()) break;
      }
    }
    if (!hasMore) {
      await this.#toEnd(run, evaluation, evaluation.finishing());
      take(evaluation.takeRows());
    }
    return page.answer(hasMore ? { kind: 'skip', rows: skip + page.length, range: countedIn(run.scope) } : undefined);
  }
}

/** The rows of an ordered page, and what is needed to say where the next page begins. */
type Ordered = ReturnType<OrderedPage['rows']> & { readonly ordered: OrderedPage };

/** The request for an ordered page. */
interface Wanted {
  /** Chooses the documents of the rows without opening any. */
  readonly chooser: QueryPlan | undefined;
  /** The order by which the rows are chosen instead, if their places are known, or kept for the next page. */
  readonly order: KnownOrder | undefined;
  readonly start: OrderedStart | undefined;
  /** How many rows to skip, and how many to return after these. */
  readonly offset: number;
  readonly rows: number;
  /** False if there are documents outside the span; all of them come later in the order. */
  readonly isAll: boolean;
}

/** Documents with their births, which give their places. */
type Offered = Pick<Batch<Pick<ItemRow, 'birth'>>, 'rows' | 'documents'>;

type Work = Pick<QueryPage, 'examined' | 'extraWork'>;

/** A page that is being made. */
interface MadePage {
  readonly page: Promise<QueryPage>;
  /** Charges the work that no answer has reported. */
  givenUp(): void;
  /** The part of the work done so far that no answer has reported yet. Counts it as reported. */
  untold(until: Work): Work;
  /** The answer when the page is not ready. */
  notReady(id: string, totalMs: number): QueryPage;
}

/** Identifies the question that a page answers. */
function aboutOf({ rid }: ContainerState, request: QueryRequest): string {
  const { sql, parameters, partitionKey, prefix, range, maxItemCount, continuation, resume, apart } = request;
  const scope = [partitionKey, prefix, range];
  const asked = [rid, sql, parameters, ...scope, maxItemCount, continuation, resume, apart];
  return hash('sha256', jsonText(asked.map((part) => part ?? null) as Json));
}

function planOf(
  { sql, parameters }: Pick<QueryRequest, 'sql' | 'parameters'>,
  { definition }: ContainerState,
  { query = parseQuery(sql), ...options }: PlanOptions & { readonly query?: Query },
): QueryPlan {
  return planQuery(query, parameters as readonly QueryParameter[], { ...planOptionsOf(definition), ...options });
}

/**
 * The plan of a query. If a page can go on after a document, TOP, OFFSET and LIMIT are removed from the plan and
 * returned as bounds. They then count the rows that earlier pages returned, not those that the query would find by now.
 */
function planToPage(
  request: QueryRequest,
  container: ContainerState,
  parsed: Query,
): { readonly plan: QueryPlan; readonly bounds: Bounds | undefined } {
  const userFunctions = request.userFunctions?.names ?? NONE;
  const plan = planOf(request, container, { query: parsed, userFunctions });
  const count = plan.top ?? plan.limit;
  if (count === undefined || plan.orderBy.length > 0 || plan.program.grouping !== undefined) {
    return { plan, bounds: undefined };
  }
  const unbounded = planOf(request, container, { query: { ...plan.query, ...NO_BOUNDS }, userFunctions });
  const from = plan.offset ?? 0;
  return unbounded.asOffered && request.continuation?.kind !== 'skip'
    ? { plan: unbounded, bounds: { from, to: from + count } }
    : { plan, bounds: undefined };
}

/** A row with the `_rid` that the request assigns to it. */
function named({ row, document, inside }: OrderedRow, { rowRid }: QueryRequest): Json {
  if (rowRid === undefined || document === undefined || inside === undefined) return row;
  return { ...(row as { readonly [name: string]: Json }), _rid: rowRid(document, inside) };
}

function isUnfiltered({ pushdown }: QueryPlan): boolean {
  return pushdown.ids === undefined && pushdown.ts === undefined && pushdown.paths.length === 0;
}

/** Offers the rows of documents, by their places, until there are some to take. Returns the index after the last one. */
function offerPlaces(evaluation: Evaluation, { rows, documents }: Batch, from: number, places: RowPlaces): number {
  let next = from;
  for (; next < documents.length && !evaluation.hasRows; next += 1) {
    places.each(rows[next]!, documents[next]!, ({ row }) => evaluation.offerRow(row!));
  }
  return next;
}
