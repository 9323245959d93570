import type { Expression } from '../language/ast.ts';
import type { Json, Value } from '../values/values.ts';

export type ComparisonOperator = '=' | '<' | '<=' | '>' | '>=' | 'in';

/** A comparison of a path of the document with constants. `values` has one entry, unless the operator is `in`. */
export interface PathComparison {
  path: string[];
  op: ComparisonOperator;
  values: Json[];
}

/** `c.path = constant`. */
export interface PathEquality {
  path: string[];
  value: Json;
}

/**
 * Conditions that a store can check without evaluating the query. Every document with a row in the answer satisfies each of them, so
 * documents that fail one may be left out.
 */
export interface Pushdown {
  /** `c.id` is one of these. Empty: no document can match. */
  ids?: string[];
  /** Every `c.path = constant`. */
  equals: PathEquality[];
  /** In one of these lists, all equalities hold. From `(c.id = 1 AND c.pk = 2) OR (c.id = 3 AND c.pk = 4)`. */
  alternatives?: PathEquality[][];
  /** `c._ts` is a whole number of seconds in this range, both ends included. */
  ts?: { min?: number; max?: number };
  /** All comparisons found, including those of `ids`, `equals` and `ts`. */
  paths: PathComparison[];
  /** Whether `ids` and `ts` are equivalent to the whole WHERE, or there is no WHERE: a document passes exactly if they hold. */
  complete: boolean;
}

/** What the plan knows about an expression: it may be a path of the document, or a constant. */
export interface Facts {
  documentPath(expression: Expression): string[] | undefined;
  constant(expression: Expression): { readonly value: Value } | undefined;
}

const MIRRORED: Readonly<Record<string, ComparisonOperator>> = {
  '=': '=',
  '<': '>',
  '<=': '>=',
  '>': '<',
  '>=': '<=',
};

function isPrimitive(value: Value): value is null | boolean | number | string {
  return value === null || typeof value === 'boolean' || typeof value === 'number' || typeof value === 'string';
}

function comparison(
  path: string[] | undefined,
  op: ComparisonOperator | undefined,
  values: readonly Value[] | undefined,
): PathComparison | undefined {
  if (path === undefined || op === undefined || values === undefined) return undefined;
  const primitives = values.filter(isPrimitive);
  return primitives.length === values.length ? { path, op, values: primitives } : undefined;
}

function constants(expressions: readonly Expression[], facts: Facts): Value[] | undefined {
  const values: Value[] = [];
  for (const expression of expressions) {
    const found = facts.constant(expression);
    if (found === undefined) return undefined;
    values.push(found.value);
  }
  return values;
}

/** The comparisons that a condition consists of; undefined if it has other parts. */
function comparisonsOf(condition: Expression, facts: Facts): PathComparison[] | undefined {
  const single = (found: PathComparison | undefined): PathComparison[] | undefined =>
    found === undefined ? undefined : [found];
  switch (condition.kind) {
    case 'binary': {
      const { left, right, operator } = condition;
      const mirrored = MIRRORED[operator];
      if (mirrored === undefined) return undefined;
      const op = operator as ComparisonOperator;
      return single(
        comparison(facts.documentPath(left), op, constants([right], facts)) ??
          comparison(facts.documentPath(right), mirrored, constants([left], facts)),
      );
    }
    case 'in':
      return single(comparison(facts.documentPath(condition.operand), 'in', constants(condition.items, facts)));
    case 'between': {
      const path = facts.documentPath(condition.operand);
      const low = comparison(path, '>=', constants([condition.low], facts));
      const high = comparison(path, '<=', constants([condition.high], facts));
      return low === undefined || high === undefined ? undefined : [low, high];
    }
    case 'call': {
      if (condition.userDefined || condition.name !== 'ARRAY_CONTAINS' || condition.args.length !== 2) return undefined;
      const [array, needle] = condition.args as [Expression, Expression];
      const values = facts.constant(array)?.value;
      return single(comparison(facts.documentPath(needle), 'in', Array.isArray(values) ? values : undefined));
    }
    case 'logical': {
      const parts = condition.operands.map((operand) => comparisonsOf(operand, facts));
      if (condition.operator === 'AND') {
        return parts.every((part) => part !== undefined) ? parts.flat() : undefined;
      }
      return single(alternatives(parts));
    }
    default:
      return undefined;
  }
}

/** Combines alternatives of the same path to one comparison: `c.a = 1 OR c.a IN (2, 3)`. */
function alternatives(parts: readonly (readonly PathComparison[] | undefined)[]): PathComparison | undefined {
  let path: string[] | undefined;
  const values: Json[] = [];
  for (const part of parts) {
    const only = part?.length === 1 ? part[0] : undefined;
    if (only === undefined || (only.op !== '=' && only.op !== 'in')) return undefined;
    if (path !== undefined && JSON.stringify(path) !== JSON.stringify(only.path)) return undefined;
    path = only.path;
    for (const value of only.values) values.push(value);
  }
  return path === undefined ? undefined : { path, op: 'in', values };
}

/** The conditions that must all be true for a condition to be true. */
export function conjuncts(condition: Expression): readonly Expression[] {
  return condition.kind === 'logical' && condition.operator === 'AND'
    ? condition.operands.flatMap(conjuncts)
    : [condition];
}

function equalities(comparisons: readonly PathComparison[]): PathEquality[] {
  return comparisons.flatMap(({ op, path, values: [value] }) =>
    op === '=' && value !== undefined ? [{ path, value }] : [],
  );
}

/** The equalities in each alternative of a disjunction. Their other parts are left to the evaluation. */
function equalAlternatives(condition: Expression, facts: Facts): PathEquality[][] | undefined {
  if (condition.kind !== 'logical' || condition.operator !== 'OR') return undefined;
  return condition.operands.map((operand) =>
    equalities(conjuncts(operand).flatMap((part) => comparisonsOf(part, facts) ?? [])),
  );
}

function narrowIds(pushdown: Pushdown, found: PathComparison): boolean {
  if (found.op !== '=' && found.op !== 'in') return false;
  const wanted = new Set(found.values.filter((value) => typeof value === 'string'));
  pushdown.ids = pushdown.ids === undefined ? [...wanted] : pushdown.ids.filter((id) => wanted.has(id));
  return true;
}

/** Narrows the range of `_ts` by a bound. It is rounded inwards, since `_ts` is in whole seconds. */
function narrowTs(pushdown: Pushdown, found: PathComparison): boolean {
  const [value] = found.values;
  if (found.op === 'in' || typeof value !== 'number') return false;
  const range = pushdown.ts ?? {};
  if (found.op === '>' || found.op === '>=' || found.op === '=') {
    const min = found.op === '>' ? Math.floor(value) + 1 : Math.ceil(value);
    range.min = Math.max(range.min ?? min, min);
  }
  if (found.op === '<' || found.op === '<=' || found.op === '=') {
    const max = found.op === '<' ? Math.ceil(value) - 1 : Math.floor(value);
    range.max = Math.min(range.max ?? max, max);
  }
  pushdown.ts = range;
  return true;
}

/** Finds the conditions on the document's paths in the conjuncts of a WHERE clause. */
export function findPushdown(where: Expression | undefined, facts: Facts): Pushdown {
  const pushdown: Pushdown = { equals: [], paths: [], complete: true };
  for (const conjunct of where === undefined ? [] : conjuncts(where)) {
    const comparisons = comparisonsOf(conjunct, facts);
    if (comparisons === undefined) {
      // `WHERE true`, which generators of queries write, excludes no document.
      if (facts.constant(conjunct)?.value !== true) pushdown.complete = false;
      const alternatives = equalAlternatives(conjunct, facts);
      if (alternatives !== undefined) pushdown.alternatives ??= alternatives;
      continue;
    }
    for (const equality of equalities(comparisons)) pushdown.equals.push(equality);
    for (const found of comparisons) {
      pushdown.paths.push(found);
      const [name] = found.path;
      const decided =
        found.path.length === 1 &&
        ((name === 'id' && narrowIds(pushdown, found)) || (name === '_ts' && narrowTs(pushdown, found)));
      if (!decided) pushdown.complete = false;
    }
  }
  return pushdown;
}
