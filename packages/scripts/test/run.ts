import type { Script, ScriptAnswer, ScriptHost, ScriptOperation, ScriptOutcome, ScriptRunner } from '@epitaph/scripts';

export const SELF = 'dbs/a/colls/b/';
export const ALT = 'dbs/shop/colls/carts';
/** For whom scripts are run where nobody else is there. */
export const TURN = { of: 'carts' };

/** A host that records the operations that it is asked for, and answers as the test says. */
export class Recorder implements ScriptHost {
  readonly operations: ScriptOperation[] = [];
  readonly #answer: (operation: ScriptOperation) => ScriptAnswer | Promise<ScriptAnswer>;

  constructor(answer: (operation: ScriptOperation) => ScriptAnswer | Promise<ScriptAnswer> = echo) {
    this.#answer = answer;
  }

  async operate(operation: ScriptOperation): Promise<ScriptAnswer> {
    this.operations.push(operation);
    return this.#answer(operation);
  }
}

/** Documents as they were given; of others there is nothing. */
function echo(operation: ScriptOperation): ScriptAnswer {
  if ('body' in operation) return { kind: 'done', body: operation.body };
  return operation.kind === 'list' || operation.kind === 'query' ? { kind: 'done', body: '[]' } : { kind: 'done' };
}

/** A collection's documents, in pages. */
export function pages(documents: readonly unknown[], size: number): Recorder {
  return new Recorder((operation) => {
    if (operation.kind !== 'list') return echo(operation);
    const from = Number(operation.continuation ?? 0);
    const body = JSON.stringify(documents.slice(from, from + size));
    return { kind: 'done', body, ...(from + size < documents.length && { continuation: `${from + size}` }) };
  });
}

export function script(source: string, more: Partial<Script> = {}): Script {
  const collection = { self: SELF, alt: ALT };
  return { kind: 'stored-procedure', name: 'tried', source, args: '[]', collection, logs: false, ...more };
}

export function run(
  runner: ScriptRunner,
  source: string,
  host: ScriptHost = new Recorder(),
  more: Partial<Script> = {},
): Promise<ScriptOutcome> {
  return runner.run(script(source, more), host, TURN);
}

/** The body of a script that succeeds. */
export async function bodyOf(
  runner: ScriptRunner,
  source: string,
  host?: ScriptHost,
  more?: Partial<Script>,
): Promise<unknown> {
  const outcome = await run(runner, source, host, more);
  if (outcome.kind !== 'done') throw new Error(JSON.stringify(outcome));
  return JSON.parse(outcome.body!);
}

/** The first line of the error of a script that fails. */
export async function failureOf(
  runner: ScriptRunner,
  source: string,
  host?: ScriptHost,
  more?: Partial<Script>,
): Promise<string> {
  const outcome = await run(runner, source, host, more);
  if (outcome.kind === 'done') throw new Error(`it went well: ${outcome.body}`);
  if (outcome.kind !== 'threw') return outcome.kind;
  return `${outcome.number === undefined ? '' : `${outcome.number} `}${outcome.message.split('\r\n')[0]}`;
}
