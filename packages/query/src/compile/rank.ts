import { queryError, type SourceLocation } from '../errors.ts';
import { termsOf } from '../functions/full-text.ts';
import type { Expression, Query } from '../language/ast.ts';
import type { Node } from '../run/node.ts';
import type { RankComponent, RankStep } from '../run/ranking.ts';
import { checkArguments } from './call.ts';
import type { Scope } from './scope.ts';

/** The functions of the query's compiler that are needed for its rank. */
interface ScoreCompiler {
  expression: (expression: Expression, scope: Scope) => Node;
  /** Whether a larger score is better. */
  isSimilarity: (expression: Expression, scope: Scope) => boolean;
}

/** Compiles ORDER BY RANK. It has one score, or RRF of several scores, whose last argument may be their weights. */
export function compileRank(query: Query, at: SourceLocation, scope: Scope, compiler: ScoreCompiler): RankStep {
  const [item, ...others] = query.orderBy;
  if (item === undefined || others.length > 0 || item.direction !== undefined) {
    throw queryError('syntax', 'ORDER BY RANK needs exactly one score, without a direction.', at);
  }
  if (scope.grouping !== undefined) {
    throw queryError('notSupported', 'ORDER BY RANK can’t be used with GROUP BY or aggregates.', at);
  }
  const { expression } = item;
  const isFused = expression.kind === 'call' && !expression.userDefined && expression.name === 'RRF';
  const args = isFused ? expression.args : [expression];
  const last = args.at(-1);
  const weighted = isFused && (last?.kind === 'array' || last?.kind === 'parameter');
  const scores = weighted ? args.slice(0, -1) : args;
  if (isFused) checkArguments(expression.name, scores.length, 2, Number.POSITIVE_INFINITY, at);
  const components = scores.map((score) => rankComponent(score, scope, compiler));
  return {
    components,
    weights: weighted ? weightsIn(last, components.length, scope, compiler) : components.map(() => 1),
  };
}

export const isVectorDistance = (expression: Expression): boolean =>
  expression.kind === 'call' && !expression.userDefined && expression.name === 'VECTORDISTANCE';

function rankComponent(expression: Expression, scope: Scope, compiler: ScoreCompiler): RankComponent {
  const { at } = expression;
  if (isVectorDistance(expression)) {
    const { run } = compiler.expression(expression, scope);
    return { kind: 'value', run, descending: compiler.isSimilarity(expression, scope) };
  }
  if (expression.kind !== 'call' || expression.userDefined || expression.name !== 'FULLTEXTSCORE') {
    throw queryError('invalidValue', 'ORDER BY RANK needs FullTextScore, VectorDistance, or RRF of these.', at);
  }
  const [text, ...given] = expression.args;
  checkArguments(expression.name, expression.args.length, 2, Number.POSITIVE_INFINITY, at);
  const nodes = given.map((argument) => compiler.expression(argument, scope));
  const terms = nodes.every((node) => node.constant !== undefined)
    ? termsOf(nodes.map((node) => node.constant?.value))
    : undefined;
  if (terms === undefined) throw queryError('invalidValue', 'The terms of FullTextScore have to be strings.', at);
  return { kind: 'text', text: compiler.expression(text as Expression, scope).run, terms };
}

function weightsIn(expression: Expression, count: number, scope: Scope, compiler: ScoreCompiler): number[] {
  const value = compiler.expression(expression, scope).constant?.value;
  if (!Array.isArray(value) || value.length !== count || !value.every((weight) => typeof weight === 'number')) {
    throw queryError('invalidValue', `The weights of RRF have to be ${count} numbers.`, expression.at);
  }
  return value;
}
