import { ThreadPool, type Turn } from './thread-pool.ts';
import type { FunctionCall, FunctionsOutcome, Script, ScriptHost, ScriptOutcome } from './script.ts';

export interface ScriptRunnerOptions {
  /** Threads at most for scripts, and as many for functions; started when needed, and let go of after some idle time. Default 2. */
  readonly threads?: number;
  /** Bytes that an engine may take. Default 64 MB. */
  readonly memoryBytes?: number;
  /** Milliseconds that a script may work and wait, all in all. Default 5,000. Waiting for a free thread does not count. */
  readonly timeMs?: number;
  /** Runs that wait for a thread at most; more are refused as `busy`, unless none of theirs waits. Default 1,000. */
  readonly waiting?: number;
  /** The time that scripts and functions are told, in milliseconds. Default the machine's. */
  readonly now?: () => number;
}

const DEFAULT_THREADS = 2;
const DEFAULT_MEMORY_BYTES = 64 * 1024 * 1024;
const DEFAULT_TIME_MS = 5_000;
const DEFAULT_WAITING = 1_000;

/**
 * Runs clients' scripts, each in an engine of its own (QuickJS in WebAssembly), on threads of their own. A thread that does not come to an
 * end in time is ended from outside, and so is one that says what it should not.
 */
export class ScriptRunner {
  readonly #scripts: ThreadPool;
  /** Apart, as a script may wait for a query that calls functions. */
  readonly #functions: ThreadPool;

  constructor(options: ScriptRunnerOptions = {}) {
    const { threads = DEFAULT_THREADS, memoryBytes = DEFAULT_MEMORY_BYTES } = options;
    const { timeMs = DEFAULT_TIME_MS, waiting = DEFAULT_WAITING } = options;
    const limits = { threads, memoryBytes, timeMs, waiting, now: options.now };
    this.#scripts = new ThreadPool({ kind: 'scripts', ...limits });
    this.#functions = new ThreadPool({ kind: 'functions', ...limits });
  }

  /**
   * Runs one script to its end; what it asks of the collection goes to `host`. Whatever comes of it is an
   * outcome. When it resolves, the host is doing nothing for it any more.
   */
  async run(script: Script, host: ScriptHost, turn: Turn): Promise<ScriptOutcome> {
    const end = await this.#scripts.perform({ kind: 'script', script }, turn, host);
    switch (end.kind) {
      case 'script':
        return end.outcome;
      case 'failed':
        return { kind: 'threw', message: end.message, log: '', workedMs: end.workedMs };
      case 'functions':
        throw new Error(`a script came to the end of ${end.kind}`);
      case 'stopped':
        return { ...end, log: '' };
      default:
        return { kind: end.kind, log: '', workedMs: end.workedMs };
    }
  }

  /**
   * Calls user-defined functions, in the order of the calls and all in one engine, which is theirs alone. The first that throws ends it.
   *
   * @param functions the source of each by its name; those that are not called are not looked at
   */
  async evaluate(
    functions: ReadonlyMap<string, string>,
    calls: readonly FunctionCall[],
    turn: Turn,
  ): Promise<FunctionsOutcome> {
    const places = new Map<string, number>();
    for (const { name } of calls) if (!places.has(name)) places.set(name, places.size);
    const sources = Array.from(places.keys(), (name) => {
      const source = functions.get(name);
      if (source === undefined) throw new Error(`there is no function ${name}`);
      return [name, source] as const;
    });
    const texts = calls.map(({ name, args }) => callText(places.get(name)!, args));
    const task = { kind: 'functions', sources, calls: `[${texts.join(',')}]`, count: calls.length } as const;
    const end = await this.#functions.perform(task, turn);
    switch (end.kind) {
      case 'functions':
        return end.outcome;
      case 'failed':
        return { kind: 'threw', name: calls[0]?.name ?? '', message: end.message, workedMs: end.workedMs };
      case 'script':
        throw new Error(`functions came to the end of ${end.kind}`);
      case 'stopped':
        return end;
      default:
        return { kind: end.kind, workedMs: end.workedMs };
    }
  }

  /** Refuses scripts that wait and that come, as `busy`. Those that run go on, and may have functions called. */
  refuse(): void {
    this.#scripts.refuse();
  }

  /** Ends what runs, as `busy`, and all threads. */
  async close(): Promise<void> {
    await Promise.all([this.#scripts.close(), this.#functions.close()]);
  }
}

/** JSON of a call: the place of the function, the arguments, and which of them are undefined, which JSON has no word for. */
function callText(place: number, args: readonly (string | undefined)[]): string {
  const missing = args.flatMap((argument, index) => (argument === undefined ? [index] : []));
  return `[${place},[${args.map((argument) => argument ?? 'null').join(',')}],[${missing.join(',')}]]`;
}
