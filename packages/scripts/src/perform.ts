import type { QuickJSHandle } from 'quickjs-emscripten-core';
import { type Changes, Engine, EngineStopped, ScriptError } from './engine.ts';
import * as limits from './limits.ts';
import { type Job, readOperation, readScriptOutcome, type Said, type ThreadOptions } from './messages.ts';
import { basics, functionWorld, scriptWorld } from './prelude.ts';
import type { FunctionsOutcome, Script, ScriptAnswer, ScriptOperation, ScriptOutcome } from './script.ts';

/** The file name that Cosmos DB's stack traces have for a script. */
const SCRIPT_FILE = 'script.js';
/** The prelude removes its own lines from stack traces by this name. */
const PRELUDE_FILE = 'prelude.js';

type Ask = (operation: ScriptOperation) => Promise<ScriptAnswer>;

/** Takes the prelude out of the global object of the engine, so that no script can see it there. */
const TAKE_PRELUDE = '(function () { const { prelude } = globalThis; delete globalThis.prelude; return prelude; })()';

/** How long an engine may take to return its log after its time limit, in milliseconds. */
const LAST_WORDS_MS = 50;

/** Executes a job. The world must be new, and must not be used for another job. */
export async function perform({ task, timeMs, nowMs }: Job, world: World, ask: Ask): Promise<Said> {
  world.engine.allow(timeMs);
  if (nowMs !== undefined) world.setTime(nowMs);
  switch (task.kind) {
    case 'script':
      return { kind: 'script', outcome: await runScript(world, task.script, timeMs, ask) };
    case 'functions':
      return { kind: 'functions', outcome: callFunctions(world, task) };
  }
}

/** The error that ended a script or a function. */
interface Thrown {
  readonly kind: 'threw';
  readonly message: string;
  readonly number?: number;
}

const NOT_TOLD: Thrown = { kind: 'threw', message: 'Exception = an error that cannot be told' };

/** The error's number if a text does not define a function. Source: `SubStatusCodes.ScriptCompileError` of the .NET client. */
const SCRIPT_COMPILE_ERROR = 0xffff;

/** QuickJS's message for a function declaration without a name. */
const NAME_EXPECTED = 'function name expected';

/** Calls a function in the engine that takes and returns texts. It disposes the arguments' handles, so the caller can't use them again. */
type Members = (member: string, ...args: QuickJSHandle[]) => string;

/** An engine with its prelude. */
export class World {
  readonly engine: Engine;
  readonly #basics: QuickJSHandle;
  readonly #define: QuickJSHandle;

  private constructor(engine: Engine) {
    this.engine = engine;
    const prelude = engine.run(TAKE_PRELUDE, PRELUDE_FILE);
    this.#basics = engine.member(prelude, 'basics');
    this.#define = engine.member(prelude, 'define');
  }

  /**
   * Makes one world after another. Parsing the prelude takes longer than all other steps, so only the first world does it.
   *
   * @returns a function that makes a world. It reuses the memory of a former world, if it is given one
   */
  static maker({ code, memoryBytes, kind }: ThreadOptions): (former?: World) => Promise<World> {
    const definition = kind === 'scripts' ? scriptWorld : functionWorld;
    const prelude = `globalThis.prelude = { basics: (${basics.toString()})(${JSON.stringify(limits)}), define: (${definition.toString()}) };`;
    let changes: Changes | undefined;
    return async (former) => {
      const memory = former?.engine.leaveMemory() ?? Engine.newMemory(memoryBytes);
      const engine = await Engine.start(code, memory, changes);
      changes ??= engine.changesBy(() => engine.run(prelude, PRELUDE_FILE).dispose());
      return new World(engine);
    };
  }

  members(settings: object = {}): Members {
    const made = this.engine.call(this.#define, this.#basics, this.engine.given(JSON.stringify(settings)));
    return (member, ...args) => {
      const f = this.engine.member(made, member);
      const value = this.engine.call(f, ...args);
      const text = this.engine.text(value);
      // A value stays in the engine's memory until its handle is disposed. After a failure that doesn't matter: the engine is discarded.
      for (const handle of [f, value, ...args]) handle.dispose();
      return text ?? '';
    };
  }

  setTime(nowMs: number): void {
    this.engine.call(this.engine.member(this.#basics, 'setTime'), this.engine.given(`${nowMs}`));
  }

  /**
   * The function that a script's text defines. The text may be:
   *
   * - an expression; a function declaration can be read as one, too;
   * - anything that may follow `var x =`, as in Cosmos DB, so a semicolon and further statements may follow the expression;
   * - a program whose value is a function, or that declares functions, of which the first is taken.
   */
  functionOf(source: string): QuickJSHandle {
    try {
      return this.#functionOf(source);
    } catch (error) {
      if (error instanceof ScriptError) error.isOfText = true;
      throw error;
    }
  }

  #functionOf(source: string): QuickJSHandle {
    const expression = this.#tried(`(${source}\n)`);
    if (expression.value !== undefined) return expression.value;
    const initializer = this.#tried(`(function () { var __script = ${source}\n; return __script; })()`);
    if (initializer.value !== undefined) return initializer.value;
    this.engine.call(this.engine.member(this.#basics, 'remember'));
    const program = this.#tried(source);
    if (program.value !== undefined) return program.value;
    // A function without a name is no valid program. The error of the initializer says what is really wrong in it.
    if (program.error !== undefined && this.#messageOf(program.error) === NAME_EXPECTED) throw initializer.error!;
    if (program.error !== undefined) throw program.error;
    return this.engine.call(this.engine.member(this.#basics, 'declared'));
  }

  /** The function that is the program's value, or the error that it has thrown. Neither, if the value is no function. */
  #tried(program: string): { readonly value?: QuickJSHandle; readonly error?: ScriptError } {
    try {
      const value = this.engine.run(program, SCRIPT_FILE);
      return this.engine.isFunction(value) ? { value } : {};
    } catch (error) {
      if (error instanceof ScriptError) return { error };
      throw error;
    }
  }

  #messageOf({ thrown }: ScriptError): string | undefined {
    return this.engine.text(this.engine.member(thrown, 'message'));
  }

  /** The outcome for an error that was thrown in the engine or by it. */
  failureOf(error: unknown): Thrown | { readonly kind: 'out-of-time' | 'out-of-memory' } {
    if (error instanceof ScriptError) {
      try {
        const text = this.engine.text(this.engine.call(this.engine.member(this.#basics, 'describe'), error.thrown));
        const thrown = readThrown(text) ?? NOT_TOLD;
        return error.isOfText && thrown.kind === 'threw' ? { number: SCRIPT_COMPILE_ERROR, ...thrown } : thrown;
      } catch (next) {
        return next instanceof ScriptError ? NOT_TOLD : this.failureOf(next);
      }
    }
    if (!(error instanceof EngineStopped)) throw error;
    if (error.reason !== 'failed') return { kind: error.reason };
    return { kind: 'threw', message: `Exception = InternalError: ${error.message}`.slice(0, limits.MAX_MESSAGE) };
  }
}

async function runScript(world: World, script: Script, timeMs: number, ask: Ask): Promise<ScriptOutcome> {
  const { engine } = world;
  let api: Members | undefined;
  try {
    const { kind, collection, args, request, response, logs } = script;
    api = world.members({ kind, collection, args, request, response, logs, timeMs });
    api('begin', world.functionOf(script.source));
    engine.runJobs();
    for (let next = parsed(api('next')); next !== null; next = parsed(api('next'))) {
      const operation = readOperation({ ...next, body: api('body') });
      if (operation === undefined || !hasJson(operation)) throw new EngineStopped('failed', 'the engine is broken');
      const { body = '', ...answer } = { body: undefined, ...(await ask(operation)) };
      api('answer', engine.given(JSON.stringify(answer)), engine.given(body));
      engine.runJobs();
    }
    const outcome = parsed(api('end'));
    const read = readScriptOutcome({ ...(outcome as object), workedMs: engine.workedMs });
    if (read === undefined || (read.kind === 'done' && !isJson(read.body ?? '1', read.requestBody ?? '1')))
      throw new EngineStopped('failed', 'the engine is broken');
    return read;
  } catch (error) {
    const failure = world.failureOf(error);
    const { workedMs } = engine;
    return { ...failure, log: failure.kind === 'out-of-time' ? lastWords(engine, api) : '', workedMs };
  }
}

/** The log of a script that was stopped at its time limit. */
function lastWords(engine: Engine, api: Members | undefined): string {
  try {
    engine.allow(LAST_WORDS_MS);
    return (api?.('log') ?? '').slice(0, limits.MAX_LOG);
  } catch {
    return '';
  }
}

function callFunctions(world: World, task: Job['task'] & { kind: 'functions' }): FunctionsOutcome {
  const { engine } = world;
  let name = '';
  try {
    const api = world.members();
    for (const [next, source] of task.sources) {
      name = next;
      api('add', world.functionOf(source));
    }
    const outcome = parsed(api('call', engine.given(task.calls))) as { results?: unknown; place?: number } | undefined;
    if (outcome?.place !== undefined) {
      name = task.sources[outcome.place]?.[0] ?? '';
      const thrown = readThrown(JSON.stringify(outcome));
      if (thrown?.kind === 'threw') {
        return { ...thrown, name, workedMs: engine.workedMs };
      }
      return { kind: 'out-of-memory', workedMs: engine.workedMs };
    }
    const results = resultsOf(outcome?.results, task.count);
    if (results === undefined) throw new EngineStopped('failed', 'the engine is broken');
    return { kind: 'done', results, workedMs: engine.workedMs };
  } catch (error) {
    const failure = world.failureOf(error);
    const { workedMs } = engine;
    if (failure.kind !== 'threw') return { ...failure, workedMs };
    return { ...failure, name, workedMs };
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isJson(...texts: readonly string[]): boolean {
  return texts.every((text) => parsed(text) !== undefined);
}

/** Whether the texts of an operation are valid JSON. This is checked nowhere else before they are used as JSON. */
function hasJson(operation: ScriptOperation): boolean {
  if ('body' in operation) return isJson(operation.body);
  return operation.kind !== 'query' || Array.isArray(parsed(operation.parameters));
}

function resultsOf(value: unknown, count: number): (string | undefined)[] | undefined {
  if (!Array.isArray(value) || value.length !== count) return undefined;
  const results: (string | undefined)[] = [];
  for (const result of value as unknown[]) {
    if (result !== null && (typeof result !== 'string' || !isJson(result))) return undefined;
    results.push(result ?? undefined);
  }
  return results;
}

function readThrown(text: string | undefined): Thrown | { readonly kind: 'out-of-memory' } | undefined {
  const outcome = readScriptOutcome({ ...(parsed(text ?? '') as object | undefined), log: '', workedMs: 0 });
  if (outcome?.kind === 'out-of-memory') return { kind: 'out-of-memory' };
  if (outcome?.kind !== 'threw') return undefined;
  const { kind, message, number } = outcome;
  return { kind, message, ...(number !== undefined && { number }) };
}
