import { queryError, type SourceLocation } from '../errors.ts';
import type { Expression, Query, SubqueryForm } from '../language/ast.ts';
import { runProgram } from '../run/execute.ts';
import type { Compiled } from '../run/frame.ts';
import type { Program } from '../run/program.ts';
import { BYTES_PER_CHARACTER, bytesOf } from '../values/memory.ts';
import type { Json, Value } from '../values/values.ts';

/** For ALL(…), which is true if NOT of its filter is true for no row. So a row whose filter is undefined does not make it false. */
export function withNegatedFilter(query: Query, at: SourceLocation): Query {
  const operand: Expression = query.where ?? { kind: 'literal', value: true, at };
  return { ...query, where: { kind: 'unary', operator: 'NOT', operand, at } };
}

export function subqueryRunner(program: Program, form: SubqueryForm, at: SourceLocation): Compiled {
  switch (form) {
    case 'exists':
    case 'all':
      return (frame) => {
        const { made } = frame.work;
        const isEmpty = runProgram(program, frame, () => false);
        frame.work.keepOf(made, 0);
        return isEmpty === (form === 'all');
      };
    case 'array':
      return (frame) => {
        const { made } = frame.work;
        const rows: Json[] = [];
        let bytes = 0;
        runProgram(program, frame, (row) => {
          const rowBytes = bytesOf(row);
          frame.work.lookThrough(rowBytes / BYTES_PER_CHARACTER);
          frame.memory.hold(rowBytes);
          bytes += rowBytes;
          rows.push(row);
          return true;
        });
        frame.work.keepOf(made, bytes / BYTES_PER_CHARACTER);
        return rows;
      };
    case 'first':
    case 'last':
      return (frame) => {
        let found: Value;
        runProgram(program, frame, (row) => {
          found = row;
          return form === 'last';
        });
        return found;
      };
    default:
      return (frame) => {
        let found: Value;
        runProgram(program, frame, (row) => {
          if (found !== undefined) {
            throw queryError(
              'cardinality',
              'Cardinality of a scalar subquery result set cannot be greater than one.',
              at,
            );
          }
          found = row;
          return true;
        });
        return found;
      };
  }
}
