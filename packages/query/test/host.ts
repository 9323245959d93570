import { type Json, jsonText, parseJson, type UserFunctionCall, type UserFunctions } from '../src/index.ts';
import { rows } from './run.ts';

export type UserFunction = (...args: (Json | undefined)[]) => Json | undefined;

/** Runs user-defined functions later, like an engine on another thread, and remembers the calls. */
export class Host implements UserFunctions {
  readonly asked: (readonly UserFunctionCall[])[] = [];
  readonly names: ReadonlySet<string>;
  readonly #find: (name: string) => UserFunction;

  constructor(names: Iterable<string>, find: (name: string) => UserFunction) {
    this.names = new Set(names);
    this.#find = find;
  }

  static of(functions: Readonly<Record<string, UserFunction>>): Host {
    return new Host(Object.keys(functions), (name) => functions[name]!);
  }

  async call(calls: readonly UserFunctionCall[]): Promise<readonly (string | undefined)[]> {
    await Promise.resolve();
    this.asked.push(calls);
    return calls.map(({ name, args }) => {
      const given = args.map((arg) => (arg === undefined ? undefined : parseJson(arg)));
      const result = this.#find(name)(...given);
      return result === undefined ? undefined : jsonText(result);
    });
  }

  /** The calls that were made, as text. */
  get calls(): string[] {
    return this.asked.flat().map(({ name, args }) => `${name}(${args.map(String).join()})`);
  }
}

const CALL = /\b([A-Za-z]\w*)\(/g;
const NO_FUNCTIONS = new Set(
  'EXISTS ARRAY IN AND OR NOT VALUE FROM BETWEEN COUNT SUM MIN MAX AVG MAKELIST MAKESET'.split(' '),
);

/** A query that calls user-defined functions instead of the built-in ones. */
export const withUserFunctions = (sql: string): string =>
  sql.replaceAll(CALL, (text, name: string) => (NO_FUNCTIONS.has(name) ? text : `udf.${text}`));

/** A host for such a query: each built-in function under its own name, in any case. */
export function builtInHost(sql: string): Host {
  const names = Array.from(sql.matchAll(CALL), ([, name]) => name!);
  return new Host(names, (name) => (...args) => {
    const parameters = args.map((value, index) => ({ name: `@${index}`, ...(value === undefined ? {} : { value }) }));
    return rows(`SELECT VALUE ${name}(${parameters.map((one) => one.name).join()})`, [], parameters)[0];
  });
}
