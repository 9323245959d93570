import { isAggregate } from '../functions/aggregates.ts';
import type { Expression } from './ast.ts';

/**
 * A path such as `c.a.b` in the form of policies, `/a/b`; undefined for other expressions.
 *
 * @param valueOf returns the value of a parameter. If it is given, `c[@name]` is such a path too
 */
export function policyPath(expression: Expression, valueOf?: (parameter: string) => unknown): string | undefined {
  if (expression.kind === 'identifier') return '';
  if (expression.kind !== 'member') return undefined;
  const { object, key } = expression;
  const outer = policyPath(object, valueOf);
  const name = key.kind === 'literal' ? key.value : key.kind === 'parameter' ? valueOf?.(key.name) : undefined;
  return outer === undefined || name === undefined ? undefined : `${outer}/${String(name)}`;
}

/** Whether an expression reads a part of an alias's value, which is no larger than the value. */
export const isPart = (expression: Expression): boolean => policyPath(expression) !== undefined;

/** Whether an expression calls an aggregate of its own query, not of a subquery. */
export function hasAggregate(expression: Expression): boolean {
  switch (expression.kind) {
    case 'literal':
    case 'parameter':
    case 'identifier':
    case 'subquery':
      return false;
    case 'member':
      return hasAggregate(expression.object) || hasAggregate(expression.key);
    case 'array':
      return expression.items.some(hasAggregate);
    case 'object':
      return expression.properties.some(({ value }) => hasAggregate(value));
    case 'unary':
      return hasAggregate(expression.operand);
    case 'binary':
      return hasAggregate(expression.left) || hasAggregate(expression.right);
    case 'logical':
      return expression.operands.some(hasAggregate);
    case 'in':
      return hasAggregate(expression.operand) || expression.items.some(hasAggregate);
    case 'between':
      return [expression.operand, expression.low, expression.high].some(hasAggregate);
    case 'like':
      return [expression.operand, expression.pattern].some(hasAggregate);
    case 'conditional':
      return [expression.test, expression.whenTrue, expression.otherwise].some(hasAggregate);
    case 'call':
      return (!expression.userDefined && isAggregate(expression.name)) || expression.args.some(hasAggregate);
  }
}

/** The property name that an item of a SELECT list gets without AS: the last name of its path. */
export function nameOf(expression: Expression): string | undefined {
  if (expression.kind === 'identifier') return expression.name;
  if (expression.kind !== 'member') return undefined;
  const { key } = expression;
  return key.kind === 'literal' && typeof key.value === 'string' ? key.value : undefined;
}
