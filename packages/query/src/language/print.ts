import { jsonText } from '../values/json-text.ts';
import type { Expression, Query } from './ast.ts';

const PLAIN_NAME = /^[A-Za-z_]\w*$/;

/** Caches the text of each expression, since it is part of the texts of all expressions around it, which may be hundreds. */
const printed = new WeakMap<Expression, string>();

/** Prints an expression in a form that every parser of the language accepts. The text is the same for `c.a` and `c["a"]`. */
export function printExpression(expression: Expression): string {
  let text = printed.get(expression);
  if (text === undefined) {
    text = print(expression);
    printed.set(expression, text);
  }
  return text;
}

function print(expression: Expression): string {
  switch (expression.kind) {
    case 'literal':
      return expression.value === undefined ? 'undefined' : jsonText(expression.value);
    case 'parameter':
    case 'identifier':
      return expression.name;
    case 'member': {
      const whole = printExpression(expression.object);
      // `1.a` can't be parsed, and `-1["a"]` would be parsed as another expression.
      const object = expression.object.kind === 'literal' ? `(${whole})` : whole;
      const { key } = expression;
      const plain = key.kind === 'literal' && typeof key.value === 'string' && PLAIN_NAME.test(key.value);
      return plain ? `${object}.${key.value}` : `${object}[${printExpression(key)}]`;
    }
    case 'array':
      return `[${printList(expression.items)}]`;
    case 'object':
      return `{${expression.properties
        .map(({ name, value }) => `${JSON.stringify(name)}: ${printExpression(value)}`)
        .join(', ')}}`;
    case 'unary':
      return `(${expression.operator} ${printExpression(expression.operand)})`;
    case 'binary':
      return `(${printExpression(expression.left)} ${expression.operator} ${printExpression(expression.right)})`;
    case 'logical':
      return `(${expression.operands.map(printExpression).join(` ${expression.operator} `)})`;
    case 'in':
      return `(${printExpression(expression.operand)} IN (${printList(expression.items)}))`;
    case 'between':
      return `(${printExpression(expression.operand)} BETWEEN ${printExpression(expression.low)} AND ${printExpression(expression.high)})`;
    case 'like': {
      const escape = expression.escape === undefined ? '' : ` ESCAPE ${JSON.stringify(expression.escape)}`;
      return `(${printExpression(expression.operand)} LIKE ${printExpression(expression.pattern)}${escape})`;
    }
    case 'conditional':
      return `(${printExpression(expression.test)} ? ${printExpression(expression.whenTrue)} : ${printExpression(expression.otherwise)})`;
    case 'call':
      return `${expression.userDefined ? 'udf.' : ''}${expression.name}(${printList(expression.args)})`;
    case 'subquery': {
      const form = expression.form === 'scalar' ? '' : expression.form.toUpperCase();
      return `${form}(${printQuery(expression.query)})`;
    }
  }
}

function printList(expressions: readonly Expression[]): string {
  return expressions.map(printExpression).join(', ');
}

function printAlias(alias: string): string {
  return PLAIN_NAME.test(alias) ? alias : JSON.stringify(alias);
}

/** Prints a query, including `orderBy`, `offset` and `limit`. */
export function printQuery(query: Query): string {
  const count = (value: Query['top']): string =>
    value === undefined ? '' : value.kind === 'literal' ? String(value.value) : value.name;
  const parts = ['SELECT'];
  if (query.distinct) parts.push('DISTINCT');
  if (query.top !== undefined) parts.push('TOP', count(query.top));
  if (query.selection.kind === 'star') parts.push('*');
  else if (query.selection.kind === 'value') {
    parts.push('VALUE', printExpression(query.selection.expression));
  } else {
    parts.push(
      query.selection.items
        .map(
          ({ expression, alias }) =>
            printExpression(expression) + (alias === undefined ? '' : ` AS ${printAlias(alias)}`),
        )
        .join(', '),
    );
  }
  const sources = query.from.map(({ collection, alias, iterates }) => {
    const source =
      collection.kind === 'query'
        ? `(${printQuery(collection.query)})`
        : collection.root + collection.keys.map((key) => `[${JSON.stringify(key)}]`).join('');
    if (iterates) return `${alias ?? ''} IN ${source}`;
    return alias === undefined ? source : `${source} AS ${alias}`;
  });
  if (sources.length > 0) parts.push('FROM', sources.join(' JOIN '));
  if (query.where !== undefined) parts.push('WHERE', printExpression(query.where));
  if (query.groupBy.length > 0) parts.push('GROUP BY', printList(query.groupBy));
  if (query.orderBy.length > 0) {
    parts.push(
      query.orderByRank === undefined ? 'ORDER BY' : 'ORDER BY RANK',
      query.orderBy
        .map(
          ({ expression, direction }) => printExpression(expression) + (direction === undefined ? '' : ` ${direction}`),
        )
        .join(', '),
    );
  }
  if (query.offset !== undefined) parts.push('OFFSET', count(query.offset), 'LIMIT', count(query.limit));
  return parts.join(' ');
}
