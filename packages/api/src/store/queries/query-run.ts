import { systemClocks } from '@epitaph/core/clock.ts';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { hasPseudonymousIds } from '@epitaph/core/item/pseudonym.ts';
import { isInScope, type Scope } from '@epitaph/core/partition-key/scope.ts';
import { TURN_MS } from '@epitaph/core/turn.ts';
import { type ItemRow, MOST_IDS_SOUGHT, type RowCondition } from '@epitaph/projections/read-model-store.ts';
import {
  type Evaluation,
  type EvaluationContext,
  FunctionCalls,
  type Json,
  matches,
  Memory,
  type Pushdown,
  type QueryParameter,
  type QueryPlan,
  sparingPlan,
  tryDocuments,
} from '@epitaph/query';
import type { QueryRequest } from '../api/queries-api.ts';
import { workOfFunctions } from '../../request-units/charge.ts';
import { MOST_QUERY_BYTES } from '../heap.ts';
import { ScanRoom } from '../items/documents.ts';
import type { Moment } from '../parts.ts';
import { planOptionsOf } from '../plan-options.ts';
import { IsSlow, SWIFT_MS } from '../slow-lane.ts';
import { withoutClearPaths } from './clear-filters.ts';
import { partitionKeysIn } from './named-in-filter.ts';

/** The most partition keys named by a query that are looked up one by one. With more, the query scans. */
export const MAX_LOOKED_UP = 100;
/** Size of the first piece, while it is unknown how long a document takes. */
const FIRST_DOCUMENTS = 1;

/** Which of its rows a query returns: from one number up to, but not including, another. */
export interface Bounds {
  readonly from: number;
  readonly to: number;
}

/** How many documents or groups are processed in one turn. */
export class PieceSize {
  size = FIRST_DOCUMENTS;

  /** Adjusts the size to the time that the last piece took. */
  took(ms: number): void {
    if (ms > TURN_MS) this.size = Math.max(1, Math.floor((this.size * TURN_MS) / ms));
    else if (ms < TURN_MS / 4) this.size *= 4;
  }
}

/** One run of a query for one page, and what it has cost so far. */
export class Run {
  readonly request: QueryRequest;
  readonly plan: QueryPlan;
  /** The part of the filter that is decided without documents. */
  readonly pushdown: Pushdown;
  readonly moment: Moment;
  /** Which of its rows the query returns; undefined when the plan itself limits them. */
  readonly bounds: Bounds | undefined;
  scope: Scope;
  /** The partition keys that the filter names, when there are several or none at all. No other key can match. */
  readonly keys: readonly NamedKey[] | undefined;
  readonly memory = new Memory(MOST_QUERY_BYTES);
  readonly context: EvaluationContext;
  /** Set for a plan that calls user-defined functions. */
  readonly calls: FunctionCalls | undefined;
  /** Milliseconds since the run's turn began. */
  turnMs: () => number;
  /** True while the run has one of the places for queries that hold much memory. */
  hasPlace = false;
  /** True for a query that was found to take long on a single document: it runs in the slow lane. */
  readonly isSlow: boolean;
  /** Documents that the query was evaluated on. */
  examined = 0;
  /** Units of work on these documents beyond those that every document takes. */
  extraWork = 0;
  /** Rows of the read model that were examined. */
  scanned = 0;
  lookupMs = 0;
  loadMs = 0;
  /** Whether the document of a row can satisfy the filter, by the row's clear columns; undefined when it always can. */
  mayMatch: ((row: ItemRow) => boolean) | undefined;
  /** The part of {@link mayMatch} that a scan can look for; undefined when there is none. */
  where: RowCondition | undefined;
  readonly room = new ScanRoom();
  readonly #monotonicMs: () => number;
  #span: Pushdown['ts'];
  #sparing: { readonly plan: QueryPlan | undefined } | undefined;

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
    // An index covers the whole container, so using it would show how many documents outside the caller's scope have a
    // value.
    this.pushdown = request.apart === true ? withoutClearPaths(plan.pushdown, definition) : plan.pushdown;
    const { scope, keys } = narrowed(request, plan, definition);
    this.scope = scope;
    this.keys = keys;
    this.#span = plan.pushdown.ts;
    this.mayMatch = clearFilter(plan.pushdown, keys, definition);
    this.where = rowCondition(plan.pushdown, definition);
    this.#monotonicMs = monotonicMs;
    this.turnMs = this.clock();
    this.isSlow = isSlow;
    // The time limit is measured by the thread's own time: the query must not be blamed when other work had the
    // machine.
    const limits = isSlow
      ? { monotonicMs: systemClocks.workedMs }
      : { monotonicMs, maxDocumentMs: SWIFT_MS, tooLong: () => new IsSlow() };
    const context = { nowMs: moment.nowMs, memory: this.memory, ...limits };
    const { userFunctions } = request;
    this.calls =
      plan.callsFunctions && userFunctions !== undefined ? new FunctionCalls(userFunctions, monotonicMs) : undefined;
    this.context = this.calls === undefined ? context : { ...context, calls: this.calls };
  }

  /** Whether the page is the first one of its query. */
  get isFirst(): boolean {
    return this.request.continuation === undefined && this.request.resume === undefined;
  }

  /** Restricts the run to documents of a span of time. Without a span, all documents that may match are examined. */
  narrowTo(span: Pushdown['ts']): void {
    if (span === this.#span) return;
    this.#span = span;
    const { definition } = this.moment.within.state;
    const pushdown = span === undefined ? this.plan.pushdown : { ...this.plan.pushdown, ts: span };
    this.mayMatch = clearFilter(pushdown, this.keys, definition);
    this.where = rowCondition(pushdown, definition);
  }

  /**
   * Whether a document's `id` and `_ts`, given by `stub`, are enough to rule it out. This needs a plan of its own, so
   * it is used only for documents that can't be read.
   */
  rulesOut(stub: Json): boolean {
    const { definition } = this.moment.within.state;
    if (hasPseudonymousIds(definition)) return false;
    this.#sparing ??= {
      plan: sparingPlan(this.plan, this.request.parameters as readonly QueryParameter[], planOptionsOf(definition)),
    };
    const { plan } = this.#sparing;
    return plan !== undefined && !matches(plan, stub, { nowMs: this.moment.nowMs });
  }

  /** How documents are tried before a plan is evaluated on them; undefined when that is not needed. */
  trialOf(plan: QueryPlan): ReturnType<typeof tryDocuments> | undefined {
    const { context, calls } = this;
    return plan.callsFunctions && calls !== undefined ? tryDocuments(plan, { ...context, calls }) : undefined;
  }

  /** Waits for results of user-defined functions that are still missing. */
  async settle(): Promise<void> {
    const { signal } = this.request;
    signal?.throwIfAborted();
    const { userFunctions } = this.request;
    const workedMs = userFunctions?.workedMs ?? 0;
    try {
      await this.calls?.settle(signal);
    } finally {
      this.extraWork += workOfFunctions((userFunctions?.workedMs ?? 0) - workedMs);
    }
    // Other work had its turn meanwhile.
    this.turnMs = this.clock();
  }

  /** Bytes that the query holds in memory now. */
  get heldBytes(): number {
    return this.memory.heldBytes + (this.calls?.heldBytes ?? 0);
  }

  /** Offers documents to {@link Evaluation.offer}, and counts them. */
  offer(evaluation: Evaluation, documents: readonly Json[], start: number): number {
    const next = this.counted(evaluation, () => evaluation.offer(documents, start));
    this.examined += next - start;
    return next;
  }

  /** Does a part of an evaluation's work and adds its cost to {@link extraWork}, even if it fails. */
  counted<Result>(evaluation: Pick<Evaluation, 'extraWork'>, work: () => Result): Result {
    const before = evaluation.extraWork;
    try {
      return work();
    } finally {
      this.extraWork += evaluation.extraWork - before;
    }
  }

  /** Starts a stopwatch: the returned function gives the milliseconds since then. */
  clock(): () => number {
    const startedMs = this.#monotonicMs();
    return () => this.#monotonicMs() - startedMs;
  }
}

/** A partition key that a query names, or a prefix that stands for all keys that begin with its components. */
export type NamedKey = Pick<Scope, 'partitionKey' | 'prefix'>;

/**
 * The scope of a request, narrowed by the query's conditions on the partition key, since no document elsewhere can
 * satisfy them. If the filter names several keys, they are returned beside the scope.
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
    // The prefix of the request must hold as well.
    if (prefix === undefined) return { scope: { ...only, range } };
    const isWithin = only.partitionKey !== undefined && isInScope(definition, { prefix }, only.partitionKey);
    return { scope: isWithin ? { ...only, range } : { prefix, range } };
  }
  const areWhole = keys.every((key) => key.partitionKey !== undefined);
  // A key that is recorded as a pseudonym does not show its first components.
  const areTold = areWhole || (prefix === undefined && !hasPseudonymousIds(definition));
  // A rank depends on how rare a word is among all documents, so all documents are needed.
  return areTold && program.rank === undefined ? { scope: { prefix, range }, keys } : { scope: { prefix, range } };
}

function clearFilter(
  pushdown: Pushdown,
  keys: readonly NamedKey[] | undefined,
  definition: ContainerDefinition,
): Run['mayMatch'] {
  const { ts } = pushdown;
  // Rows with pseudonyms do not contain the id and the key; only the document does.
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

function rowCondition(pushdown: Pushdown, definition: ContainerDefinition): RowCondition | undefined {
  const { ids = [], ts } = pushdown;
  const isSought = ids.length > 0 && ids.length <= MOST_IDS_SOUGHT && !hasPseudonymousIds(definition);
  if (!isSought && ts === undefined) return undefined;
  return { ids: isSought ? ids : undefined, minTs: second(ts?.min), maxTs: second(ts?.max) };
}

/** A bound in seconds, limited to what a column can hold; a query may name any number. */
const second = (bound: number | undefined): number | undefined =>
  bound === undefined ? undefined : Math.max(0, Math.min(bound, Number.MAX_SAFE_INTEGER));

function isAmong(keys: readonly NamedKey[], definition: ContainerDefinition): (key: string) => boolean {
  const whole = new Set(keys.flatMap(({ partitionKey }) => partitionKey ?? []));
  const prefixes = keys.filter(({ partitionKey }) => partitionKey === undefined);
  // Comparing each row with very many prefixes takes longer than reading its document.
  if (prefixes.length > MAX_LOOKED_UP) return () => true;
  return (key) => whole.has(key) || prefixes.some((prefix) => isInScope(definition, prefix, key));
}
