import type { SourceLocation } from '../errors.ts';
import type { Expression } from './ast.ts';

/** The location of parts of queries that are made here, and so have no place in a text. */
export const NOWHERE: SourceLocation = { start: 0, end: 0 };

export const ZERO: Expression = { kind: 'literal', value: 0, at: NOWHERE };
export const UNDEFINED: Expression = { kind: 'literal', value: undefined, at: NOWHERE };
export const NULL: Expression = { kind: 'literal', value: null, at: NOWHERE };

/** A name, or a text that is printed unchanged. */
export const verbatim = (name: string): Expression => ({ kind: 'identifier', name, at: NOWHERE });
export const call = (name: string, ...args: readonly Expression[]): Expression => ({
  kind: 'call',
  name,
  userDefined: false,
  args,
  at: NOWHERE,
});
export const member = (of: Expression, name: string): Expression => ({
  kind: 'member',
  object: of,
  key: { kind: 'literal', value: name, at: NOWHERE },
  at: NOWHERE,
});
export const object = (properties: readonly (readonly [string, Expression])[]): Expression => ({
  kind: 'object',
  properties: properties.map(([name, value]) => ({ name, value })),
  at: NOWHERE,
});
export const isZero = (left: Expression): Expression => ({
  kind: 'binary',
  operator: '=',
  left,
  right: ZERO,
  at: NOWHERE,
});
export const choice = (test: Expression, whenTrue: Expression, otherwise: Expression): Expression => ({
  kind: 'conditional',
  test,
  whenTrue,
  otherwise,
  at: NOWHERE,
});
