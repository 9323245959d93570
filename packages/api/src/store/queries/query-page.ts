import { Refusal } from '@epitaph/core/errors.ts';
import { type KeyRange, WHOLE_RANGE } from '@epitaph/core/partition-key/effective-partition-key.ts';
import type { Scope } from '@epitaph/core/partition-key/scope.ts';
import {
  isOfMany,
  type Json,
  jsonText,
  type OrderedStart,
  orderText,
  type QueryParameter,
  type QueryPlan,
} from '@epitaph/query';
import type { Continuation, QueryPage, QueryRequest } from '../api/queries-api.ts';
import { MAX_PAGE_CHARACTERS } from '../document-limits.ts';
import type { Run } from './query-run.ts';
import { tokenDigest } from './token-digest.ts';

export type Answer = Pick<QueryPage, 'rows' | 'texts' | 'continuation'>;

/** The rows of a page, as values and as text, limited in number and in characters. */
export class Page {
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

  /** Adds a row unless it would exceed the number or the text of a page. The first row is added whatever its size. */
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

/** The request's continuation, which must be of the kind that this query returns. */
export function continuationOf<Kind extends Continuation['kind']>(
  { continuation }: QueryRequest,
  kind: Kind,
): Extract<Continuation, { readonly kind: Kind }> | undefined {
  if (continuation === undefined) return undefined;
  if (continuation.kind !== kind) throw invalidContinuation();
  return continuation as Extract<Continuation, { readonly kind: Kind }>;
}

/** The order of a query's rows, short enough for a token; undefined for document order. */
function orderOf(plan: QueryPlan, { parameters }: QueryRequest): string | undefined {
  const text = orderText(plan, parameters as readonly QueryParameter[]);
  return text === undefined ? undefined : tokenDigest(text);
}

/** @throws Refusal bad-request for a token that names another order; tokens of earlier versions name none */
export function checkOrder(plan: QueryPlan, request: QueryRequest): void {
  const { continuation } = request;
  const by = continuation === undefined || continuation.kind === 'after' ? undefined : continuation.by;
  if (by === undefined || by === orderOf(plan, request)) return;
  throw new Refusal('bad-request', 'Invalid Continuation Token: it belongs to a query with another ORDER BY.');
}

/** The continuation with the order in which it is a place. */
export function inOrder(continuation: Continuation, plan: QueryPlan, request: QueryRequest): Continuation {
  if (continuation.kind === 'after') return continuation;
  const by = orderOf(plan, request);
  return by === undefined ? continuation : { ...continuation, by };
}

const invalidContinuation = (): Refusal => new Refusal('bad-request', 'Invalid Continuation Token');

/** The range of partition keys in which a continuation counts its rows. */
export const countedIn = ({ range }: Scope): KeyRange => range ?? WHOLE_RANGE;

export const isPartOf = (range: KeyRange | undefined, whole: KeyRange): range is KeyRange =>
  range !== undefined &&
  range.min >= whole.min &&
  range.max <= whole.max &&
  (range.min !== whole.min || range.max !== whole.max);

/** Where a client resumes an ordered answer. */
export function resumeOf({ request: { resume }, plan }: Run): OrderedStart | undefined {
  if (resume === undefined) return undefined;
  if (plan.orderBy.length === 0 || resume.keys.length !== plan.orderBy.length) {
    throw new Refusal('bad-request', 'The resume filter must have one value for each expression of ORDER BY.');
  }
  return {
    keys: resume.keys as (Json | undefined)[],
    document: resume.birth,
    inside: resume.inside,
    exclude: resume.exclude,
  };
}

/** The place at which the page before this one ended, read from its token. */
export function startOfToken(plan: QueryPlan, last: Extract<Continuation, { readonly kind: 'sorted' }>): OrderedStart {
  const { keys, birth, inside, include, near } = last;
  const isWhole = isOfMany(plan) ? keys.length > plan.orderBy.length : keys.length === plan.orderBy.length;
  if (near === undefined && (!isWhole || isOfMany(plan) !== (birth === undefined))) throw invalidContinuation();
  // A token from a version that did not record places within documents. In descending order, rows of equal values came
  // in another order then.
  const hasOtherTies = birth !== undefined && inside === undefined && plan.orderBy.some(({ descending }) => descending);
  if (hasOtherTies) throw invalidContinuation();
  const values = keys.map(([value]) => value as Json | undefined);
  return { keys: values, document: birth, inside, exclude: include !== true, near };
}

/** How many rows TOP or LIMIT still allows. */
export const rowsLeft = ({ top, limit }: QueryPlan, given: number): number =>
  Math.max(0, (top ?? limit ?? Number.POSITIVE_INFINITY) - given);

export const differences = (numbers: readonly number[]): number[] =>
  numbers.map((number, index) => number - (numbers[index - 1] ?? 0));

export function birthsOf(between: readonly number[]): number[] {
  let birth = 0;
  return between.map((difference) => (birth += difference));
}
