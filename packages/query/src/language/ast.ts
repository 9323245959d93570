import type { SourceLocation } from '../errors.ts';
import type { Value } from '../values/values.ts';

export type UnaryOperator = '-' | '+' | '~' | 'NOT';

export type BinaryOperator =
  | '+'
  | '-'
  | '*'
  | '/'
  | '%'
  | '&'
  | '|'
  | '^'
  | '<<'
  | '>>'
  | '>>>'
  | '||'
  | '='
  | '!='
  | '<'
  | '<='
  | '>'
  | '>='
  | '??';

/** The result of a subquery in an expression: its one row, whether it has rows, all rows, … */
export type SubqueryForm = 'scalar' | 'exists' | 'array' | 'all' | 'first' | 'last';

export type Expression =
  | { readonly kind: 'literal'; readonly value: Value; readonly at: SourceLocation }
  | { readonly kind: 'parameter'; readonly name: string; readonly at: SourceLocation }
  | { readonly kind: 'identifier'; readonly name: string; readonly at: SourceLocation }
  | {
      readonly kind: 'member';
      readonly object: Expression;
      /** A string literal for `c.a` and `c["a"]`, which are the same. */
      readonly key: Expression;
      readonly at: SourceLocation;
    }
  | { readonly kind: 'array'; readonly items: readonly Expression[]; readonly at: SourceLocation }
  | {
      readonly kind: 'object';
      readonly properties: readonly { readonly name: string; readonly value: Expression }[];
      readonly at: SourceLocation;
    }
  | {
      readonly kind: 'unary';
      readonly operator: UnaryOperator;
      readonly operand: Expression;
      readonly at: SourceLocation;
    }
  | {
      readonly kind: 'binary';
      readonly operator: BinaryOperator;
      readonly left: Expression;
      readonly right: Expression;
      readonly at: SourceLocation;
    }
  | {
      /** All operands in one list, so that a long generated chain of conditions does not become a deep tree. */
      readonly kind: 'logical';
      readonly operator: 'AND' | 'OR';
      readonly operands: readonly Expression[];
      readonly at: SourceLocation;
    }
  | {
      readonly kind: 'in';
      readonly operand: Expression;
      readonly items: readonly Expression[];
      readonly at: SourceLocation;
    }
  | {
      readonly kind: 'between';
      readonly operand: Expression;
      readonly low: Expression;
      readonly high: Expression;
      readonly at: SourceLocation;
    }
  | {
      readonly kind: 'like';
      readonly operand: Expression;
      readonly pattern: Expression;
      readonly escape: string | undefined;
      readonly at: SourceLocation;
    }
  | {
      readonly kind: 'conditional';
      readonly test: Expression;
      readonly whenTrue: Expression;
      readonly otherwise: Expression;
      readonly at: SourceLocation;
    }
  | {
      readonly kind: 'call';
      /** In upper case; a user-defined function keeps its case. */
      readonly name: string;
      readonly userDefined: boolean;
      readonly args: readonly Expression[];
      readonly at: SourceLocation;
    }
  | {
      readonly kind: 'subquery';
      readonly form: SubqueryForm;
      readonly query: Query;
      readonly at: SourceLocation;
    };

export interface SelectItem {
  readonly expression: Expression;
  readonly alias: string | undefined;
}

export type Selection =
  | { readonly kind: 'star'; readonly at: SourceLocation }
  | { readonly kind: 'value'; readonly expression: Expression }
  | { readonly kind: 'list'; readonly items: readonly SelectItem[] };

/** The input of a source: a path from an alias or from the container, or a subquery. */
export type Collection =
  | {
      readonly kind: 'path';
      readonly root: string;
      readonly keys: readonly (string | number)[];
      readonly at: SourceLocation;
    }
  | { readonly kind: 'query'; readonly query: Query; readonly at: SourceLocation };

/** One member of FROM: `collection AS alias`, or `alias IN collection` when it iterates. */
export interface FromSource {
  readonly collection: Collection;
  readonly alias: string | undefined;
  readonly iterates: boolean;
}

/** The number after TOP, OFFSET or LIMIT. */
export type RowCount =
  | { readonly kind: 'literal'; readonly value: number; readonly at: SourceLocation }
  | { readonly kind: 'parameter'; readonly name: string; readonly at: SourceLocation };

export interface OrderByItem {
  readonly expression: Expression;
  readonly direction: 'ASC' | 'DESC' | undefined;
}

/** A parsed query. Names, functions and parameters are not resolved yet; planQuery does that. */
export interface Query {
  readonly distinct: boolean;
  readonly top: RowCount | undefined;
  readonly selection: Selection;
  /** Empty when there is no FROM. */
  readonly from: readonly FromSource[];
  readonly where: Expression | undefined;
  readonly groupBy: readonly Expression[];
  readonly orderBy: readonly OrderByItem[];
  /** The location of `ORDER BY RANK`, if there is one. */
  readonly orderByRank: SourceLocation | undefined;
  readonly offset: RowCount | undefined;
  readonly limit: RowCount | undefined;
}
