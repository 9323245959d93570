import type { Expression } from '../language/ast.ts';
import { printExpression } from '../language/print.ts';
import type { AggregateStep } from '../run/program.ts';

/** The names that a query can see: its own aliases, then those of the queries around it. */
export class Scope {
  readonly parent: Scope | undefined;
  readonly slots = new Map<string, number>();
  /** Set while the projection of a grouped query is compiled, which may only read keys and aggregates. */
  grouping: GroupingScope | undefined;

  constructor(parent: Scope | undefined) {
    this.parent = parent;
  }
}

export interface GroupingScope {
  /** The index of each GROUP BY expression by its text. */
  readonly keys: ReadonlyMap<string, number>;
  /** Lengths of these texts. */
  readonly lengths: ReadonlySet<number>;
  readonly aggregates: AggregateStep[];
}

/** The index of a GROUP BY expression that is equal to this one, in the nearest enclosing grouped query. */
export function groupKeyOf(expression: Expression, scope: Scope): number | undefined {
  if (expression.kind === 'literal' || expression.kind === 'parameter') return undefined;
  let text: string | undefined;
  for (let current: Scope | undefined = scope; current !== undefined; current = current.parent) {
    if (current.grouping === undefined || current.grouping.keys.size === 0) continue;
    text ??= printExpression(expression);
    // Looking up a long concatenated text takes time, so its length is checked first.
    const index = current.grouping.lengths.has(text.length) ? current.grouping.keys.get(text) : undefined;
    if (index !== undefined) return index;
  }
  return undefined;
}
