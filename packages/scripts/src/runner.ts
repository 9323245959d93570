import { ThreadPool, type Turn } from './thread-pool.ts';
import type { FunctionCall, FunctionsOutcome, Script, ScriptHost, ScriptOutcome } from './script.ts';

export interface ScriptRunnerOptions {
  /** The most threads for scripts, and as many for functions. They are started on demand, and end after some idle time. Default 2. */
  readonly threads?: number;
  /** The most memory of an engine, in bytes. Default 64 MiB. */
  readonly memoryBytes?: number;
  /** The time limit of a script in milliseconds, including its waits for operations, but not the wait for a thread. Default 5,000. */
  readonly timeMs?: number;
  /**
   * The most runs that wait for a thread. Further runs are refused as `busy`, unless no other run with the same
   * {@link Turn.of} waits. Default 1,000.
   */
  readonly waiting?: number;
  /** The current time for scripts and functions, in milliseconds since 1970. By default it is the machine's time. */
  readonly now?: () => number;
}

const DEFAULT_THREADS = 2;
const DEFAULT_MEMORY_BYTES = 64 * 1024 * 1024;
const DEFAULT_TIME_MS = 5_000;
const DEFAULT_WAITING = 1_000;

/**
 * Runs clients' scripts on separate threads, each script in an engine of its own (QuickJS in WebAssembly). A thread that exceeds its time
 * limit, or that sends an invalid message, is terminated.
 */
export class ScriptRunner {
  readonly #scripts: ThreadPool;
  /** Separate from the scripts' threads, which may all be taken by scripts that wait for a query that calls functions. */
  readonly #functions: ThreadPool;

  constructor(options: ScriptRunnerOptions = {}) {
    const { threads = DEFAULT_THREADS, memoryBytes = DEFAULT_MEMORY_BYTES } = options;
    const { timeMs = DEFAULT_TIME_MS, waiting = DEFAULT_WAITING } = options;
    const limits = { threads, memoryBytes, timeMs, waiting, now: options.now };
    this.#scripts = new ThreadPool({ kind: 'scripts', ...limits });
    this.#functions = new ThreadPool({ kind: 'functions', ...limits });
  }

  /**
   * Runs one script to its end. The script's operations on the collection are executed by `host`. Failures of the script are outcomes, too.
   * When the promise resolves, the host is not working on any of the script's operations any more.
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
   * Calls user-defined functions one after the other, in the given order, in one engine that is used for nothing else. The first call that
   * throws ends the evaluation.
   *
   * @param functions the source of each function by its name. Functions that are not called are ignored
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

  /** Refuses waiting and new scripts as `busy`. Running scripts continue, and their queries may still call functions. */
  refuse(): void {
    this.#scripts.refuse();
  }

  /** Ends all running scripts and functions as `busy`, and terminates all threads. */
  async close(): Promise<void> {
    await Promise.all([this.#scripts.close(), this.#functions.close()]);
  }
}

/** A call as JSON: the index of the function, the arguments, and the indexes of undefined arguments, which JSON can't express. */
function callText(place: number, args: readonly (string | undefined)[]): string {
  const missing = args.flatMap((argument, index) => (argument === undefined ? [index] : []));
  return `[${place},[${args.map((argument) => argument ?? 'null').join(',')}],[${missing.join(',')}]]`;
}
