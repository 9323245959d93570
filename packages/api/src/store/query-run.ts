import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { hasPseudonymousIds } from '@epitaph/core/item/pseudonym.ts';
import { isInScope, type Scope } from '@epitaph/core/partition-key/scope.ts';
import { TURN_MS } from '@epitaph/core/turn.ts';
import type { ItemRow } from '@epitaph/projections/read-model-store.ts';
import { type Evaluation, type EvaluationContext, type Json, Memory, type QueryPlan } from '@epitaph/query';
import { partitionKeysIn } from '../cosmos/partition-key.ts';
import { MOST_QUERY_BYTES } from './heap.ts';
import type { Moment } from './parts.ts';
import { IsSlow, SWIFT_MS } from './slow-lane.ts';
import type { QueryRequest } from './api/queries-api.ts';

/** Partition keys at most that a query names and that are looked up one by one. */
export const MAX_LOOKED_UP = 100;
/** Documents that are worked on before it is known how long they take. */
const FIRST_DOCUMENTS = 1;

/** Which of its rows a query gives: from a number on, up to but not including another. */
export interface Bounds {
  readonly from: number;
  readonly to: number;
}

/** How many documents, or groups, are worked on in one turn. */
export class PieceSize {
  size = FIRST_DOCUMENTS;

  /** The last piece took so long. */
  took(ms: number): void {
    if (ms > TURN_MS) this.size = Math.max(1, Math.floor((this.size * TURN_MS) / ms));
    else if (ms < TURN_MS / 4) this.size *= 4;
  }
}

/** One page's run of a query, with what it took. */
export class Run {
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

/** A partition key that a query names, or those that begin with some components. */
export type NamedKey = Pick<Scope, 'partitionKey' | 'prefix'>;

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

export const isWhole = ({ partitionKey, prefix, range }: Scope): boolean =>
  partitionKey === undefined && prefix === undefined && range === undefined;

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
