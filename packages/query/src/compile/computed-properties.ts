import { queryError } from '../errors.ts';
import { isAggregate } from '../functions/aggregates.ts';
import { clockFunctions } from '../functions/clock.ts';
import { builtIns } from '../functions/index.ts';
import type { Expression, Query } from '../language/ast.ts';
import { parseQuery } from '../language/parser.ts';
import type { ComputedProperty } from './compile.ts';
import { planQuery } from './plan.ts';

/**
 * Refuses definitions of computed properties unless each can be evaluated for a document by itself, always with the same result.
 *
 * @throws QueryError that names the property
 * @see https://learn.microsoft.com/azure/cosmos-db/nosql/query/computed-properties
 */
export function checkComputedProperties(properties: readonly ComputedProperty[], maxLength: number): void {
  const names = new Set(properties.map(({ name }) => name));
  for (const { name, query: text } of properties) {
    const query = parseQuery(text, { maxLength });
    const refuse = (why: string) => queryError('notSupported', `The computed property '${name}' ${why}.`);
    const [source, ...others] = query.from;
    if (query.selection.kind !== 'value') throw refuse('needs a query of the form SELECT VALUE … FROM c');
    if (source?.collection.kind !== 'path' || source.collection.keys.length > 0 || source.iterates) {
      throw refuse('needs a FROM clause for the whole document, such as FROM c');
    }
    if (others.length > 0) throw refuse("can't have a JOIN");
    if (hasFurtherClauses(query)) {
      throw refuse("can't have WHERE, GROUP BY, ORDER BY, TOP, DISTINCT or OFFSET LIMIT");
    }
    const odd = oddPartOf(query.selection.expression);
    if (odd !== undefined) throw refuse(`can't have ${odd}`);
    // This checks names, functions and numbers of arguments.
    const { documentProperties } = planQuery(query);
    const other = documentProperties?.find((property) => names.has(property));
    if (other !== undefined) throw refuse(`can't read the computed property '${other}'`);
  }
}

function hasFurtherClauses({ distinct, top, where, groupBy, orderBy, offset, limit }: Query): boolean {
  return (
    distinct ||
    groupBy.length > 0 ||
    orderBy.length > 0 ||
    [top, where, offset, limit].some((clause) => clause !== undefined)
  );
}

/** Names the first part of an expression that is not allowed; undefined if all parts are allowed. */
function oddPartOf(expression: Expression): string | undefined {
  if (expression.kind === 'parameter') return 'parameters';
  if (expression.kind === 'subquery') return 'subqueries';
  if (expression.kind === 'call') {
    const { name } = expression;
    if (expression.userDefined) return 'user-defined functions';
    if (isAggregate(name)) return 'aggregates';
    if (name.startsWith('ST_')) return 'spatial functions';
    if (clockFunctions.has(name) || builtIns.get(name)?.pure === false) return `${name}, whose value changes`;
  }
  for (const part of partsOf(expression)) {
    const odd = oddPartOf(part);
    if (odd !== undefined) return odd;
  }
  return undefined;
}

function partsOf(expression: Expression): readonly Expression[] {
  switch (expression.kind) {
    case 'member':
      return [expression.object, expression.key];
    case 'array':
      return expression.items;
    case 'object':
      return expression.properties.map(({ value }) => value);
    case 'unary':
      return [expression.operand];
    case 'binary':
      return [expression.left, expression.right];
    case 'logical':
      return expression.operands;
    case 'in':
      return [expression.operand, ...expression.items];
    case 'between':
      return [expression.operand, expression.low, expression.high];
    case 'like':
      return [expression.operand, expression.pattern];
    case 'conditional':
      return [expression.test, expression.whenTrue, expression.otherwise];
    case 'call':
      return expression.args;
    default:
      return [];
  }
}
