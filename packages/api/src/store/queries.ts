import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { hasPseudonymousIds } from '@epitaph/core/item/pseudonym.ts';
import { isInRange, type KeyRange, WHOLE_RANGE } from '@epitaph/core/partition-key/effective-partition-key.ts';
import { isInScope, type Scope, startOf } from '@epitaph/core/partition-key/scope.ts';
import { TURN_MS, Turns } from '@epitaph/core/turn.ts';
import { isExpired } from '@epitaph/core/ttl/watermarks.ts';
import type { ContainerNumber, ItemRow } from '@epitaph/projections/read-model-store.ts';
import {
  type Evaluation,
  type EvaluationContext,
  isOfMany,
  isOrdered,
  isRanked,
  type Json,
  jsonText,
  MAX_NEIGHBOURS,
  Memory,
  NO_BOUNDS,
  OrderedPage,
  type OrderedStart,
  parseQuery,
  planQuery,
  type Query,
  type QueryParameter,
  type QueryPlan,
  startAfter,
  startEvaluation,
} from '@epitaph/query';
import { clearConditionsOf } from '../cosmos/clear-paths.ts';
import { itemsIn, partitionKeysIn } from '../cosmos/partition-key.ts';
import type { Documents } from './documents.ts';
import { inThisHeap, MOST_QUERY_BYTES } from './heap.ts';
import { type KeptScan, MAX_KEPT_CHARACTERS } from './item-rows.ts';
import type { Moment, StoreParts } from './parts.ts';
import { Places } from './places.ts';
import { IsSlow, SWIFT_MS } from './slow-lane.ts';
import { firstAfter, hasExpired, KEPT_BATCH, scanScope, scanScopes } from './scans.ts';
import type { Continuation, QueryPage, QueryRequest } from './store-api.ts';
import { planOptionsOf } from './plan-options.ts';

/** Documents looked at for one page of a streaming query before it answers with what it has. */
const MAX_EXAMINED = 20_000;
/** Partition keys at most that a query names and that are looked up one by one. */
const MAX_LOOKED_UP = 100;
/** Characters of JSON that the rows of a page have at most, unless its first row alone has more. */
export const MAX_PAGE_CHARACTERS = 4 * 1024 * 1024;

/** Bytes of rows that a page keeps to choose from: twice those of its text, which count as two a character. */
const PAGE_BYTES = 4 * MAX_PAGE_CHARACTERS;
/** Documents that are worked on before it is known how long they take. */
const FIRST_DOCUMENTS = 1;
/** Bytes from which on a query holds much. */
const MUCH_BYTES = inThisHeap(1024 * 1024);
/** Queries that hold much and run at once. */
const HOLDING_AT_ONCE = 2;

/** Queries at once that work longer on a document. */
const SLOW_AT_ONCE = 4;

/** What queries have worked, in the units of {@link QueryPage.extraWork}, that ended in an error: by that. */
export const workUntil = new WeakMap<Error, number>();

/** A query comes to hold much, and no place is free for it. It has changed nothing, and can be run anew when one is. */
class NeedsPlace extends Error {
  override readonly name = 'NeedsPlace';
}

/** Visible items, each with its document at the same index. */
interface Candidates {
  readonly rows: readonly ItemRow[];
  readonly documents: readonly Json[];
}

interface Batch extends Candidates {
  /** No batch follows. */
  readonly isLast: boolean;
  /** No batch follows but such as were looked up together with it. */
  readonly isNearEnd: boolean;
  /** More of what was looked up together with it follows. */
  readonly isPart?: boolean;
  /** The birth up to which everything has been looked at. */
  readonly through: number;
}

/** Runs queries: the plan's clear columns pick the rows, the evaluator sees the documents one after the other. */
export class Queries {
  readonly #parts: StoreParts;
  readonly #documents: Documents;
  readonly #holding = new Places(HOLDING_AT_ONCE);
  readonly #slow = new Places(SLOW_AT_ONCE);
  readonly #turns = new Turns();

  constructor(parts: StoreParts, documents: Documents) {
    this.#parts = parts;
    this.#documents = documents;
  }

  async query(container: ContainerState, request: QueryRequest): Promise<QueryPage> {
    const { monotonicMs } = this.#parts.ports;
    const startedMs = monotonicMs();
    const parsed = parseQuery(request.sql);
    const parsedMs = monotonicMs();
    const { plan, bounds } = planToPage(request, container, parsed);
    const plannedMs = monotonicMs();
    await this.#parts.seen(request.atLeast);
    const begin = async (isSlow: boolean) =>
      new Run(request, plan, await this.#parts.moment(container), monotonicMs, isSlow, bounds);
    const { run, result: answer } = await this.#toItsEnd(request, begin, (running) => this.#answer(running));
    const metrics = {
      totalMs: monotonicMs() - startedMs,
      compileMs: parsedMs - startedMs,
      planMs: plannedMs - parsedMs,
      lookupMs: run.lookupMs,
      loadMs: run.loadMs,
    };
    return { ...answer, examined: run.examined, extraWork: run.extraWork, metrics, pushdown: plan.pushdown };
  }

  /**
   * The items that a query's rows come from, as of now.
   *
   * @returns undefined when they are more than `most`
   * @throws Refusal bad-request for a query whose rows don't come from one document each
   */
  async rowsOf(
    container: ContainerState,
    request: Pick<QueryRequest, 'sql' | 'parameters'>,
    most: number,
  ): Promise<ItemRow[] | undefined> {
    const plan = planOf(request, container);
    if (!plan.streaming || !plan.readsDocuments || plan.top !== undefined || plan.limit !== undefined) {
      throw new Refusal(
        'bad-request',
        'The query must choose documents: without aggregates, GROUP BY, DISTINCT, ORDER BY, TOP, OFFSET and LIMIT.',
      );
    }
    const { monotonicMs } = this.#parts.ports;
    await this.#parts.seen('head');
    const whole = { ...request, maxItemCount: most };
    const begin = async (isSlow: boolean) =>
      new Run(whole, plan, await this.#parts.moment(container), monotonicMs, isSlow);
    const { result } = await this.#toItsEnd(whole, begin, async (run) => {
      const evaluation = startEvaluation(plan, run.context);
      const found: ItemRow[] = [];
      for await (const { rows, documents } of this.#candidates(run, 0)) {
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

  /** Runs a query; one that turns out slow, or comes to hold much where no place is free for that, is run anew in a place. */
  async #toItsEnd<Result>(
    { signal, standAside }: QueryRequest,
    begin: (isSlow: boolean) => Promise<Run>,
    work: (run: Run) => Promise<Result>,
  ): Promise<{ readonly run: Run; readonly result: Result }> {
    const enter = async (places: Places): Promise<void> => {
      const place = () => places.take(signal);
      await (standAside === undefined ? place() : standAside(place));
    };
    let isSlow = false;
    let hasPlace = false;
    try {
      for (;;) {
        const run = await begin(isSlow);
        run.hasPlace = hasPlace;
        try {
          return { run, result: await work(run) };
        } catch (error) {
          if (!(error instanceof IsSlow) && !(error instanceof NeedsPlace)) {
            if (error instanceof Error) workUntil.set(error, run.extraWork);
            throw error;
          }
          if (error instanceof IsSlow) {
            // Who waits holds no place that another, who has this one, may wait for.
            if (run.hasPlace) this.#holding.giveBack();
            run.hasPlace = false;
            await enter(this.#slow);
            isSlow = true;
          } else {
            await enter(this.#holding);
            run.hasPlace = true;
          }
        } finally {
          hasPlace = run.hasPlace;
        }
      }
    } finally {
      if (hasPlace) this.#holding.giveBack();
      if (isSlow) this.#slow.giveBack();
    }
  }

  async #answer(run: Run): Promise<Answer> {
    const { plan, request } = run;
    if (plan.countOnly && plan.pushdown.complete && isUnfiltered(plan) && isWhole(run.scope)) {
      continuationOf(request, 'skip');
      const rows = request.continuation === undefined ? [await this.#countAll(run.moment)] : [];
      return { rows, texts: rows.map(String) };
    }
    if (isOrdered(plan)) return this.#sorted(run);
    // Tokens of before say of more queries how many rows were given.
    if (request.continuation?.kind !== 'skip') {
      if (isRanked(plan)) return this.#ranked(run);
      if (plan.asOffered) return this.#stream(run);
    }
    return plan.streaming ? this.#stream(run) : this.#whole(run);
  }

  #countAll({ within, marks }: Moment) {
    return this.#parts.readModel.countVisible(within.number, marks);
  }

  /** A query whose rows come in document order: each page goes on after the last row of the one before. */
  async #stream(run: Run): Promise<Answer> {
    const { request, plan, bounds } = run;
    const last = continuationOf(request, 'after');
    const inside = last?.inside ?? 0;
    const start = last === undefined ? 0 : inside > 0 ? last.birth - 1 : last.birth;
    // What is distinct depends on what came before: all of that is looked at again, and left out.
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
    // Clients take a page without a continuation for the last one, and some count on it.
    let fullAt: number | undefined;
    for await (const batch of this.#candidates(run, isAnew ? 0 : start)) {
      const { rows, documents, isLast, isNearEnd, isPart, through } = batch;
      if (fullAt !== undefined) {
        if (givesRows(evaluation, documents, 0)) return after(fullAt);
        continue;
      }
      for (let next = 0; next < documents.length;) {
        next = run.offer(evaluation, documents, next);
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
        if (!isNearEnd || givesRows(evaluation, documents, next)) return after(birth);
        fullAt = birth;
        break;
      }
      // Rows that a narrower scope left out count too: they took their time.
      if (run.scanned >= mostExamined && !isLast && isPart !== true && fullAt === undefined) return after(through);
    }
    return page.answer();
  }

  /** ORDER BY and GROUP BY: each page goes on after the place of the last row of the one before. */
  async #sorted(run: Run): Promise<Answer> {
    const { request, plan } = run;
    const last = continuationOf(request, 'sorted');
    const start = last === undefined ? resumeOf(run) : startOfToken(plan, last);
    const given = last?.rows ?? 0;
    const left = rowsLeft(plan, given);
    const size = Math.min(request.maxItemCount, left);
    const offset = last === undefined ? (plan.offset ?? 0) : 0;
    const page = new Page(size);
    if (size === 0) return page.answer();
    // A row more than fits says that there is another page, and some more may tell where it begins.
    const leastRows = offset + 1 + MAX_NEIGHBOURS;
    const ordered = new OrderedPage(plan, run.context, start, offset + size + MAX_NEIGHBOURS, {
      bytes: PAGE_BYTES,
      leastRows,
    });
    await this.#offerAll(run, ordered);
    const { rows: all, before, isCut } = ordered.rows();
    const found = all.slice(offset);
    for (const { row } of found.slice(0, size)) if (!page.takeIfItFits(row)) break;
    const rows = page.length;
    if (rows === 0 || (found.length <= rows && !isCut) || rows === left) return page.answer();
    const { keys, document, inside, exclude, near } = startAfter(
      plan.program,
      [...before, ...found.slice(0, rows)],
      found.slice(rows),
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

  /** ORDER BY RANK: what comes and goes moves the scores of all, so each page is the best of what was not given before. */
  async #ranked(run: Run): Promise<Answer> {
    const { request, plan } = run;
    const last = continuationOf(request, 'ranked');
    const given = last?.rows ?? 0;
    const left = rowsLeft(plan, given);
    const size = Math.min(request.maxItemCount, left);
    const page = new Page(size);
    if (size === 0) return page.answer();
    const ordered = new OrderedPage(plan, run.context, undefined, Number.POSITIVE_INFINITY);
    await this.#offerAll(run, ordered);
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

  async #offerAll(run: Run, ordered: OrderedPage): Promise<void> {
    for await (const { rows, documents } of this.#candidates(run, 0)) {
      run.examined += documents.length;
      run.counted(ordered, () => ordered.offer(documents, (index) => rows[index]!.birth));
    }
    await this.#finish(run, ordered);
  }

  /** What is left when there are no more documents: groups are worked on in pieces, as documents are. */
  async #finish(run: Run, evaluation: Pick<Evaluation, 'finishing' | 'extraWork'>): Promise<void> {
    const steps = evaluation.finishing();
    const piece = new PieceSize();
    const work = () => {
      for (let left = piece.size; left > 0; left -= 1) if (steps.next().done === true) return true;
      return false;
    };
    for (let isDone = false; !isDone;) {
      if (run.isSlow) await this.#parts.slowLane.begin(run.request.signal);
      const took = run.clock();
      try {
        isDone = run.counted(evaluation, work);
      } finally {
        if (run.isSlow) this.#parts.slowLane.ended(took());
      }
      piece.took(took());
      await this.#giveWay(run);
    }
  }

  /** Any other query is evaluated anew for each page, and the page is a piece of its answer. */
  async #whole(run: Run): Promise<Answer> {
    const { request, plan, moment } = run;
    const last = continuationOf(request, 'skip');
    const skip = last?.rows ?? 0;
    const { range } = run.scope;
    if (run.scope.partitionKey === undefined && last?.range !== undefined && isPartOf(range, last.range)) {
      // What is left of a range that has split comes from the first of its parts that is asked, and nothing from others.
      run.scope = { ...run.scope, range: last.range };
      if (!isInRange(startOf(moment.within.state.definition, run.scope), range)) return { rows: [], texts: [] };
    }
    if (request.resume !== undefined) {
      throw new Refusal('bad-request', 'A resume filter needs a query as a query plan has written it.');
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
      // One row more than fits says that there is another page.
      const wantsMore = () => evaluation.wantsDocuments && !hasMore;
      for await (const { documents } of this.#candidates(run, 0)) {
        for (let next = 0; next < documents.length && wantsMore();) {
          next = run.offer(evaluation, documents, next);
          if (evaluation.hasRows) take(evaluation.takeRows());
        }
        if (!wantsMore()) break;
      }
    }
    if (!hasMore) {
      await this.#finish(run, evaluation);
      take(evaluation.takeRows());
    }
    return page.answer(hasMore ? { kind: 'skip', rows: skip + page.length, range: countedIn(run.scope) } : undefined);
  }

  /**
   * Visible documents that the clear columns don't rule out, in order of birth, in batches that take some milliseconds to
   * work on: in between others get their turn.
   */
  async *#candidates(run: Run, afterBirth: number): AsyncGenerator<Batch> {
    for await (const batch of this.#found(run, afterBirth)) {
      // Those that come next may be a thousand times as much work as those before.
      const piece = new PieceSize();
      const { length } = batch.rows;
      let from = 0;
      do {
        const to = Math.min(from + piece.size, length);
        if (run.isSlow) await this.#parts.slowLane.begin(run.request.signal);
        const took = run.clock();
        try {
          yield to - from === length ? batch : partOf(batch, from, to);
        } finally {
          if (run.isSlow) this.#parts.slowLane.ended(took());
        }
        from = to;
        piece.took(took());
        await this.#giveWay(run);
      } while (from < length);
    }
  }

  async *#found(run: Run, afterBirth: number): AsyncGenerator<Batch> {
    const { pushdown } = run.plan;
    const { within, marks } = run.moment;
    const { scope } = run;
    const recorded = await this.#parts.recordedScope(within.state, scope);
    const { signal } = run.request;
    const giveWay = () => this.#giveWay(run);
    const { definition } = within.state;
    // An id within a known partition is a look-up, not a scan.
    const named = itemsIn(pushdown, definition, scope.partitionKey);
    if (named !== undefined) {
      const rows: ItemRow[] = [];
      const finding = run.clock();
      for (const { id, partitionKey } of named) {
        if (scope.partitionKey !== undefined && partitionKey !== scope.partitionKey) continue;
        if (!isInScope(definition, scope, partitionKey)) continue;
        const name = await this.#parts.recordedName(within.state, { id, partitionKey });
        const row = await this.#parts.rows.find(within.number, name.partitionKey, name.id);
        if (row !== undefined && row.birth > afterBirth && !isExpired(row, marks)) rows.push(row);
        if (run.turnMs() >= TURN_MS) await giveWay();
      }
      run.lookupMs += finding();
      rows.sort((left, right) => left.birth - right.birth);
      yield* this.#decoded(run, { rows, isLast: true, through: rows.at(-1)?.birth ?? afterBirth });
      return;
    }
    const { rows: kept } = this.#parts;
    const scan = kept.scanned(within.number);
    const documents = kept.documents(within.number);
    if (isWhole(recorded) && scan !== undefined && documents !== undefined) {
      yield* ofKept(run, scan, documents, afterBirth);
      return;
    }
    const clear = clearConditionsOf(pushdown, definition);
    const keys = scan === undefined ? await this.#scopesOf(run) : undefined;
    const scanning =
      keys === undefined
        ? scanScope(this.#parts, run.moment, { ...recorded, clear }, afterBirth, { signal, giveWay })
        : scanScopes(
            this.#parts,
            run.moment,
            keys.map((key) => ({ ...key, clear })),
            afterBirth,
            { signal, giveWay },
          );
    let lookup = run.clock();
    for await (const batch of scanning) {
      run.lookupMs += lookup();
      run.scanned += batch.scanned;
      yield* this.#decoded(run, batch);
      lookup = run.clock();
    }
    if (isWhole(recorded)) this.#keepDocuments(within.number);
  }

  /** The partition keys that the query names, each as a scope of its own; undefined where it has to look through all. */
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

  /** Keeps the documents of a scan with it, where all have been decoded by now. */
  #keepDocuments(container: ContainerNumber): void {
    const { rows } = this.#parts;
    const scan = rows.scanned(container);
    const documents = scan && this.#documents.allParsed(scan.rows, MAX_KEPT_CHARACTERS);
    if (documents !== undefined) rows.keepDocuments(container, scan!, documents);
  }

  /** Some rows with their documents, in batches that take some milliseconds to open: documents may be large. */
  async *#decoded(
    run: Run,
    { rows: candidates, isLast, through }: Pick<Batch, 'rows' | 'isLast' | 'through'>,
  ): AsyncGenerator<Batch> {
    const { state } = run.moment.within;
    const needsBody = run.plan.needsBody || hasPseudonymousIds(state.definition);
    const load = run.clock();
    const { mayMatch } = run;
    const wanted = mayMatch === undefined ? candidates : candidates.filter(mayMatch);
    let rows: ItemRow[] = [];
    let documents: Json[] = [];
    if (needsBody) await this.#documents.prefetch(wanted);
    let opening = run.clock();
    // Of the time to load, what others took.
    let givenMs = 0;
    for (const row of wanted) {
      let document = needsBody ? this.#documents.parsed(row) : { id: row.id, _ts: row.ts };
      if (document === undefined) {
        const openedMs = opening();
        if (openedMs >= TURN_MS) {
          const given = run.clock();
          const passed = rows.at(-1)?.birth ?? row.birth - 1;
          yield { rows, documents, isLast: false, isNearEnd: isLast, isPart: true, through: passed };
          [rows, documents] = [[], []];
          await this.#giveWay(run);
          givenMs += given();
          opening = run.clock();
        }
        document = await this.#documents.parse(state, row);
      }
      if (document === undefined) continue;
      rows.push(row);
      documents.push(document);
    }
    run.loadMs += load() - givenMs;
    yield { rows, documents, isLast, isNearEnd: isLast, through };
  }

  /**
   * Lets others have their turn, if a query had its own for long.
   *
   * @throws NeedsPlace for one that holds much and has no place for that
   */
  async #giveWay(run: Run): Promise<void> {
    const { signal } = run.request;
    if (run.turnMs() >= TURN_MS) {
      await this.#turns.next();
      signal?.throwIfAborted();
      run.turnMs = run.clock();
    }
    if (run.hasPlace || run.memory.heldBytes < MUCH_BYTES) return;
    run.hasPlace = this.#holding.takeIfFree();
    if (!run.hasPlace) throw new NeedsPlace();
  }
}

function planOf(
  { sql, parameters }: Pick<QueryRequest, 'sql' | 'parameters'>,
  { definition }: ContainerState,
  query: Query = parseQuery(sql),
): QueryPlan {
  return planQuery(query, parameters as readonly QueryParameter[], planOptionsOf(definition));
}

/** Which of its rows a query gives: from a number on, up to but not including another. */
interface Bounds {
  readonly from: number;
  readonly to: number;
}

/**
 * The plan of a query, without its TOP, OFFSET and LIMIT where a page can go on after a document: they are then of the
 * rows that came before it, and not of those that it would give by now.
 */
function planToPage(
  request: QueryRequest,
  container: ContainerState,
  parsed: Query,
): { readonly plan: QueryPlan; readonly bounds: Bounds | undefined } {
  const plan = planOf(request, container, parsed);
  const count = plan.top ?? plan.limit;
  if (count === undefined || plan.orderBy.length > 0 || plan.program.grouping !== undefined) {
    return { plan, bounds: undefined };
  }
  const unbounded = planOf(request, container, { ...plan.query, ...NO_BOUNDS });
  const from = plan.offset ?? 0;
  return unbounded.asOffered && request.continuation?.kind !== 'skip'
    ? { plan: unbounded, bounds: { from, to: from + count } }
    : { plan, bounds: undefined };
}

/** The range in which a place in an answer counts the rows before it. */
const countedIn = ({ range }: Scope): KeyRange => range ?? WHOLE_RANGE;

const isPartOf = (range: KeyRange | undefined, whole: KeyRange): range is KeyRange =>
  range !== undefined &&
  range.min >= whole.min &&
  range.max <= whole.max &&
  (range.min !== whole.min || range.max !== whole.max);

type Answer = Pick<QueryPage, 'rows' | 'texts' | 'continuation'>;

/** How many documents, or groups, are worked on in one turn. */
class PieceSize {
  size = FIRST_DOCUMENTS;

  /** The last piece took so long. */
  took(ms: number): void {
    if (ms > TURN_MS) this.size = Math.max(1, Math.floor((this.size * TURN_MS) / ms));
    else if (ms < TURN_MS / 4) this.size *= 4;
  }
}

/** One page's run of a query, with what it took. */
class Run {
  readonly request: QueryRequest;
  readonly plan: QueryPlan;
  readonly moment: Moment;
  /** Which of its rows the query gives; undefined for those that the plan itself gives. */
  readonly bounds: Bounds | undefined;
  scope: Scope;
  /** The partition keys that its filter names, where they are several or none: no other can match. */
  readonly keys: readonly NamedKey[] | undefined;
  readonly memory = new Memory(MOST_QUERY_BYTES);
  readonly context: EvaluationContext;
  /** Milliseconds since its turn began. */
  turnMs: () => number;
  /** It has one of the places of queries that hold much. */
  hasPlace = false;
  /** It is one of those that work long on a document, and goes on in the lane for that. */
  readonly isSlow: boolean;
  /** Documents that the query was evaluated on. */
  examined = 0;
  /** Units of work on them beyond those that every document takes. */
  extraWork = 0;
  /** Rows of the read model that were looked at. */
  scanned = 0;
  lookupMs = 0;
  loadMs = 0;
  /** Whether a row's clear columns let its document satisfy the filter; undefined when they always do. */
  readonly mayMatch: ((row: ItemRow) => boolean) | undefined;
  readonly #monotonicMs: () => number;

  constructor(
    request: QueryRequest,
    plan: QueryPlan,
    moment: Moment,
    monotonicMs: () => number,
    isSlow: boolean,
    bounds?: Bounds,
  ) {
    this.request = request;
    this.bounds = bounds;
    this.plan = plan;
    this.moment = moment;
    const { definition } = moment.within.state;
    const { scope, keys } = narrowed(request, plan, definition);
    this.scope = scope;
    this.keys = keys;
    this.mayMatch = clearFilter(plan, keys, definition);
    this.#monotonicMs = monotonicMs;
    this.turnMs = this.clock();
    this.isSlow = isSlow;
    const limits = isSlow ? {} : { maxDocumentMs: SWIFT_MS, tooLong: () => new IsSlow() };
    this.context = { nowMs: moment.nowMs, memory: this.memory, monotonicMs, ...limits };
  }

  /** Hands documents over as {@link Evaluation.offer} takes them, and counts them. */
  offer(evaluation: Evaluation, documents: readonly Json[], start: number): number {
    const next = this.counted(evaluation, () => evaluation.offer(documents, start));
    this.examined += next - start;
    return next;
  }

  /** Counts what an evaluation works meanwhile. */
  counted<Result>(evaluation: Pick<Evaluation, 'extraWork'>, work: () => Result): Result {
    const before = evaluation.extraWork;
    try {
      return work();
    } finally {
      this.extraWork += evaluation.extraWork - before;
    }
  }

  /** Starts a watch; what it answers is the milliseconds since. */
  clock(): () => number {
    const startedMs = this.#monotonicMs();
    return () => this.#monotonicMs() - startedMs;
  }
}

/** The rows of a page, as values and as text, bounded in number and in characters. */
class Page {
  readonly #rows: Json[] = [];
  readonly #texts: string[] = [];
  readonly #size: number;
  #characters = 0;

  constructor(size: number) {
    this.#size = size;
  }

  get length(): number {
    return this.#rows.length;
  }

  get isFull(): boolean {
    return this.#rows.length >= this.#size || this.#characters > MAX_PAGE_CHARACTERS;
  }

  /** Takes a row unless it would be one too many, or more text than a page holds; the first is taken whatever its size. */
  takeIfItFits(row: Json): boolean {
    if (this.isFull) return false;
    const text = jsonText(row);
    if (this.#rows.length > 0 && this.#characters + text.length + 1 > MAX_PAGE_CHARACTERS) return false;
    this.#rows.push(row);
    this.#texts.push(text);
    this.#characters += text.length + 1;
    return true;
  }

  answer(continuation?: Continuation): Answer {
    const page = { rows: this.#rows, texts: this.#texts };
    return continuation === undefined ? page : { ...page, continuation };
  }
}

/** The request's continuation, which must be of the kind that this query gives out. */
function continuationOf<Kind extends Continuation['kind']>(
  { continuation }: QueryRequest,
  kind: Kind,
): Extract<Continuation, { readonly kind: Kind }> | undefined {
  if (continuation === undefined) return undefined;
  if (continuation.kind !== kind) throw invalidContinuation();
  return continuation as Extract<Continuation, { readonly kind: Kind }>;
}

const invalidContinuation = (): Refusal => new Refusal('bad-request', 'Invalid Continuation Token');

/** A partition key that a query names, or those that begin with some components. */
type NamedKey = Pick<Scope, 'partitionKey' | 'prefix'>;

/**
 * What is asked for, narrowed by what the query itself says of the partition key: a document that satisfies it can't
 * be anywhere else. Where it names several, they are told beside.
 */
function narrowed(
  { partitionKey, prefix, range }: QueryRequest,
  { pushdown, program }: QueryPlan,
  definition: ContainerDefinition,
): { readonly scope: Scope; readonly keys?: readonly NamedKey[] } {
  if (partitionKey !== undefined) return { scope: { partitionKey, range } };
  const { length } = definition.partitionKey.paths;
  const keys = partitionKeysIn(pushdown, definition).map((components): NamedKey => {
    const key = JSON.stringify(components);
    return components.length === length ? { partitionKey: key } : { prefix: components.length === 0 ? undefined : key };
  });
  const [only] = keys;
  if (only !== undefined && keys.length === 1) {
    // What was asked for as a prefix still has to hold.
    if (prefix === undefined) return { scope: { ...only, range } };
    const isWithin = only.partitionKey !== undefined && isInScope(definition, { prefix }, only.partitionKey);
    return { scope: isWithin ? { ...only, range } : { prefix, range } };
  }
  const areWhole = keys.every((key) => key.partitionKey !== undefined);
  // Of keys that are on record as pseudonyms nobody sees how they begin.
  const areTold = areWhole || (prefix === undefined && !hasPseudonymousIds(definition));
  // How rare a word is, is asked of all documents.
  return areTold && program.rank === undefined ? { scope: { prefix, range }, keys } : { scope: { prefix, range } };
}

const isWhole = ({ partitionKey, prefix, range }: Scope): boolean =>
  partitionKey === undefined && prefix === undefined && range === undefined;

/** Where a client goes on with an ordered answer. */
function resumeOf({ request: { resume }, plan }: Run): OrderedStart | undefined {
  if (resume === undefined) return undefined;
  if (plan.orderBy.length === 0 || resume.keys.length !== plan.orderBy.length) {
    throw new Refusal('bad-request', 'The resume filter has not one value for each expression of ORDER BY.');
  }
  return { keys: resume.keys as (Json | undefined)[], document: resume.birth, exclude: resume.exclude };
}

/** The place that a page of the same query has ended at. */
function startOfToken(plan: QueryPlan, last: Extract<Continuation, { readonly kind: 'sorted' }>): OrderedStart {
  const { keys, birth, inside, include, near } = last;
  const isWhole = isOfMany(plan) ? keys.length > plan.orderBy.length : keys.length === plan.orderBy.length;
  if (near === undefined && (!isWhole || isOfMany(plan) !== (birth === undefined))) throw invalidContinuation();
  // Before places were told within documents, rows of equal values came downwards in other orders.
  const hasOtherTies = birth !== undefined && inside === undefined && plan.orderBy.some(({ descending }) => descending);
  if (hasOtherTies) throw invalidContinuation();
  const values = keys.map(([value]) => value as Json | undefined);
  return { keys: values, document: birth, inside, exclude: include !== true, near };
}

/** Rows that a query still gives by its TOP or LIMIT. */
const rowsLeft = ({ top, limit }: QueryPlan, given: number): number =>
  Math.max(0, (top ?? limit ?? Number.POSITIVE_INFINITY) - given);

const differences = (numbers: readonly number[]): number[] =>
  numbers.map((number, index) => number - (numbers[index - 1] ?? 0));

function birthsOf(between: readonly number[]): number[] {
  let birth = 0;
  return between.map((difference) => (birth += difference));
}

/** Whether any of the documents from `start` gives a row of a streaming query. */
function givesRows(evaluation: Evaluation, documents: readonly Json[], start: number): boolean {
  evaluation.offer(documents, start);
  return evaluation.hasRows;
}

/** Some of a batch. */
function partOf({ rows, documents, isLast, isNearEnd, isPart, through }: Batch, from: number, to: number): Batch {
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

/** What of a kept scan is visible and not ruled out, in batches. */
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

function clearFilter(
  { pushdown }: QueryPlan,
  keys: readonly NamedKey[] | undefined,
  definition: ContainerDefinition,
): Run['mayMatch'] {
  const { ts } = pushdown;
  // Rows that have pseudonyms do not say the id and the key: the document does.
  const isTold = !hasPseudonymousIds(definition);
  const ids = isTold && pushdown.ids !== undefined ? new Set(pushdown.ids) : undefined;
  const hasKey = isTold && keys !== undefined ? isAmong(keys, definition) : undefined;
  if (ids === undefined && ts === undefined && hasKey === undefined) return undefined;
  return (row) =>
    (ids === undefined || ids.has(row.id)) &&
    (ts?.min === undefined || row.ts >= ts.min) &&
    (ts?.max === undefined || row.ts <= ts.max) &&
    (hasKey === undefined || hasKey(row.partitionKey));
}

function isAmong(keys: readonly NamedKey[], definition: ContainerDefinition): (key: string) => boolean {
  const whole = new Set(keys.flatMap(({ partitionKey }) => partitionKey ?? []));
  const prefixes = keys.filter(({ partitionKey }) => partitionKey === undefined);
  // To ask of each row whether it begins with any of very many takes longer than to read it.
  if (prefixes.length > MAX_LOOKED_UP) return () => true;
  return (key) => whole.has(key) || prefixes.some((prefix) => isInScope(definition, prefix, key));
}

function isUnfiltered({ pushdown }: QueryPlan): boolean {
  return pushdown.ids === undefined && pushdown.ts === undefined && pushdown.paths.length === 0;
}
