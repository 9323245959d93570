import { readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { type Job, readSaid, type Said, type ThreadOptions, type ToThread } from './messages.ts';
import type { ScriptAnswer, ScriptHost, ScriptOperation } from './script.ts';

/** What a thread has beyond its time to say by itself that it is over, before it is ended. */
const GRACE_MS = 250;
/** What a thread and its engine may take to be there, which is 50 ms on a machine that is not busy. */
const START_MS = 60_000;
/** After which a thread that nobody needs is let go of. */
const IDLE_MS = 30_000;
/** Of a thread's own objects, the engine's memory not counted: several times what an engine may say at once. */
const HEAP_MIB = 256;
const YOUNG_GENERATION_MIB = 16;

/** More operations than an engine asks for by itself. */
const MOST_OPERATIONS = 20_000;

export interface PoolOptions extends Omit<ThreadOptions, 'code'> {
  readonly threads: number;
  readonly timeMs: number;
  readonly waiting: number;
  readonly now: (() => number) | undefined;
}

/** For whom something is done. */
export interface Turn {
  /** Those who have the same take turns with all others: nobody waits for all that one of them has asked for. */
  readonly of: string;
  /** Aborted when nobody wants it any more: it is `stopped` then, and its thread is for others. */
  readonly signal?: AbortSignal | undefined;
}

/** What came of a task. `failed`: by a fault of the engine or its thread. */
export type End =
  | Exclude<Said, { readonly kind: 'begun' | 'operation' }>
  | { readonly kind: 'out-of-time' | 'out-of-memory' | 'busy'; readonly workedMs: number }
  | { readonly kind: 'stopped'; readonly error: unknown; readonly workedMs: number }
  | { readonly kind: 'failed'; readonly message: string; readonly workedMs: number };

type Task = Job['task'];

/** What is used of it here: the types of Node.js have it not. */
declare const WebAssembly: { readonly Module: new (bytes: Uint8Array) => object };

let compiled: object | undefined;

/** The engine's code, once for all threads: made as it is first called, so that this takes 3 ms. */
function engineCode(): object {
  const file = import.meta.resolve('@jitl/quickjs-wasmfile-release-sync/wasm');
  compiled ??= new WebAssembly.Module(readFileSync(new URL(file)));
  return compiled;
}

const BUSY: End = { kind: 'busy', workedMs: 0 };
const stopped = (error: unknown): End => ({ kind: 'stopped', error, workedMs: 0 });

/** Who waits for a thread. */
interface Waiting {
  readonly take: (thread: Thread | End) => void;
}

/** Threads with engines. Each does one task at a time; tasks beyond that wait. */
export class ThreadPool {
  readonly #options: PoolOptions;
  readonly #idle: Thread[] = [];
  readonly #busy = new Set<Thread>();
  /** Threads that there are, those included that are on their way out. */
  #threads = 0;
  /** Who waits, by whose turn it is; whose is next, is first. */
  readonly #waiting = new Map<string, Set<Waiting>>();
  #isClosed = false;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /** Whatever comes of it is an end. */
  async perform(task: Task, { of, signal }: Turn, host?: ScriptHost): Promise<End> {
    const thread = await this.#take(of, signal);
    if (!(thread instanceof Thread)) return thread;
    const leave = (): void => thread.stop(stopped(signal!.reason));
    signal?.addEventListener('abort', leave);
    try {
      if (signal?.aborted === true) return stopped(signal.reason);
      const { timeMs, now } = this.#options;
      return await thread.perform({ task, timeMs, ...(now !== undefined && { nowMs: now() }) }, host);
    } finally {
      signal?.removeEventListener('abort', leave);
      await this.#release(thread);
    }
  }

  /** Refuses what waits and what comes. What runs goes on. */
  refuse(): void {
    this.#isClosed = true;
    for (let next = this.#next(); next !== undefined; next = this.#next()) next.take(BUSY);
  }

  async close(): Promise<void> {
    this.refuse();
    for (const thread of this.#busy) thread.stop(BUSY);
    await Promise.all([...this.#busy, ...this.#idle].map((thread) => thread.end()));
  }

  async #take(of: string, signal: AbortSignal | undefined): Promise<Thread | End> {
    if (signal?.aborted === true) return stopped(signal.reason);
    if (this.#isClosed) return BUSY;
    for (let idle = this.#idle.pop(); idle !== undefined; idle = this.#idle.pop()) {
      if (!idle.isEnding) return this.#use(idle);
      this.#threads--;
    }
    if (this.#threads < this.#options.threads) return this.#start();
    const { promise, resolve } = Promise.withResolvers<Thread | End>();
    const waiting: Waiting = { take: resolve };
    if (!this.#wait(of, waiting)) return BUSY;
    const leave = (): void => {
      this.#leave(of, waiting);
      resolve(stopped(signal!.reason));
    };
    signal?.addEventListener('abort', leave);
    try {
      return await promise;
    } finally {
      signal?.removeEventListener('abort', leave);
    }
  }

  /** @returns false where too many wait, this one's among them */
  #wait(of: string, waiting: Waiting): boolean {
    const own = this.#waiting.get(of);
    if (own === undefined) {
      this.#waiting.set(of, new Set([waiting]));
      return true;
    }
    const all = this.#waiting.values().reduce((sum, { size }) => sum + size, 0);
    if (all >= this.#options.waiting) return false;
    own.add(waiting);
    return true;
  }

  #leave(of: string, waiting: Waiting): void {
    const own = this.#waiting.get(of);
    own?.delete(waiting);
    if (own?.size === 0) this.#waiting.delete(of);
  }

  /** Takes out who is next. */
  #next(): Waiting | undefined {
    for (const [of, own] of this.#waiting) {
      const [next] = own;
      own.delete(next!);
      this.#waiting.delete(of);
      if (own.size > 0) this.#waiting.set(of, own);
      return next;
    }
    return undefined;
  }

  #start(): Thread {
    this.#threads++;
    return this.#use(
      new Thread({ kind: this.#options.kind, memoryBytes: this.#options.memoryBytes, code: engineCode() }),
    );
  }

  /** At once, and not when whoever waits for it comes to it: all that are busy are ended with the pool. */
  #use(thread: Thread): Thread {
    this.#busy.add(thread);
    return thread;
  }

  async #release(thread: Thread): Promise<void> {
    if (thread.isEnding) {
      // Not beside the next one: so many threads, and no more.
      await thread.end();
      this.#busy.delete(thread);
      this.#threads--;
      this.#next()?.take(this.#start());
      return;
    }
    const next = this.#next();
    if (next !== undefined) {
      next.take(thread);
      return;
    }
    this.#busy.delete(thread);
    this.#idle.push(thread);
    thread.idle();
  }
}

/** One worker thread. */
class Thread {
  readonly #worker: Worker;
  #ended: Promise<unknown> | undefined;
  #idleTimer: NodeJS.Timeout | undefined;
  #task: RunningTask | undefined;

  constructor(options: ThreadOptions) {
    this.#worker = new Worker(new URL('./script-thread.ts', import.meta.url), {
      // Nothing of the store's options and secrets, which its environment may hold.
      workerData: options,
      env: {},
      argv: [],
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB, maxYoungGenerationSizeMb: YOUNG_GENERATION_MIB },
    });
    this.#worker.on('message', (message: unknown) => this.#task?.hear(message));
    this.#worker.on('error', (error: Error & { code?: string }) => {
      const isOfMemory = error.code === 'ERR_WORKER_OUT_OF_MEMORY';
      this.stop(
        isOfMemory ? { kind: 'out-of-memory', workedMs: 0 } : { kind: 'failed', message: error.message, workedMs: 0 },
      );
    });
    this.#worker.on('exit', () => this.stop({ kind: 'failed', message: 'the thread ended', workedMs: 0 }));
  }

  /** Whether it can't be used any more. */
  get isEnding(): boolean {
    return this.#ended !== undefined;
  }

  async perform(job: Job, host: ScriptHost | undefined): Promise<End> {
    clearTimeout(this.#idleTimer);
    this.#worker.ref();
    let startedAt: number | undefined;
    let timer = setTimeout(() => this.stop(), START_MS);
    const task = new RunningTask(job, host, {
      begun: () => {
        clearTimeout(timer);
        startedAt = performance.now();
        timer = setTimeout(() => this.stop({ kind: 'out-of-time', workedMs: 0 }), job.timeMs + GRACE_MS);
      },
      answer: (answer) => this.#send({ answer }),
      stop: () => this.stop(),
    });
    this.#task = task;
    try {
      if (this.isEnding) return BUSY;
      this.#send(job);
      const end = await task.end;
      if (end.kind === 'busy') return end;
      const workedMs = startedAt === undefined ? 0 : performance.now() - startedAt - task.operatedMs;
      if ('workedMs' in end) return { ...end, workedMs };
      // The thread measures more exactly, without its waits. But it is not believed that it has worked longer than it had.
      const bounded = <Outcome extends { readonly workedMs: number }>(outcome: Outcome): Outcome => ({
        ...outcome,
        workedMs: Math.min(outcome.workedMs, workedMs),
      });
      return end.kind === 'script'
        ? { ...end, outcome: bounded(end.outcome) }
        : { ...end, outcome: bounded(end.outcome) };
    } finally {
      clearTimeout(timer);
      this.#task = undefined;
    }
  }

  #send(message: ToThread): void {
    this.#worker.postMessage(message);
  }

  /** Ends the thread, whatever it is at; its task, if there is one, has come to this end. */
  stop(end: End = { kind: 'failed', message: 'the engine is broken', workedMs: 0 }): void {
    void this.end();
    this.#task?.finish(end);
  }

  async end(): Promise<void> {
    this.#ended ??= this.#worker.terminate();
    await this.#ended;
  }

  /** Holds no process open until it is used again, and ends if that takes long. */
  idle(): void {
    this.#worker.unref();
    this.#idleTimer = setTimeout(() => void this.end(), IDLE_MS).unref();
  }
}

/** What a task wants of the thread that it is done on. */
interface TaskThread {
  /** Told once, when the task's time begins. */
  begun(): void;
  answer(answer: ScriptAnswer): void;
  /** Ends the thread, as it has said what it should not. */
  stop(): void;
}

/** What a thread is at, as the store sees it: operations are carried out one at a time, and it has one end. */
class RunningTask {
  readonly end: Promise<End>;
  readonly #task: Task;
  readonly #host: ScriptHost | undefined;
  readonly #thread: TaskThread;
  readonly #resolve: (end: End) => void;
  #hasBegun = false;
  #operations = 0;
  #isOperating = false;
  /** Milliseconds that the host has worked for it. */
  operatedMs = 0;
  #finished: End | undefined;

  constructor({ task }: Job, host: ScriptHost | undefined, thread: TaskThread) {
    this.#task = task;
    this.#host = host;
    this.#thread = thread;
    const { promise, resolve } = Promise.withResolvers<End>();
    this.end = promise;
    this.#resolve = resolve;
  }

  hear(message: unknown): void {
    if (this.#finished !== undefined) return;
    const said = readSaid(message, this.#task.kind === 'functions' ? this.#task.count : 0);
    if (said?.kind === 'begun' && !this.#hasBegun) {
      this.#hasBegun = true;
      this.#thread.begun();
    } else if (said?.kind === 'operation' && this.#mayOperate()) void this.#operate(this.#host!, said.operation);
    else if (said?.kind === this.#task.kind && this.#hasBegun && !this.#isOperating) this.finish(said);
    else this.#thread.stop();
  }

  finish(end: End): void {
    if (this.#finished !== undefined) return;
    this.#finished = end;
    // Nobody may take it for over as long as something is done for it.
    if (!this.#isOperating) this.#resolve(end);
  }

  #mayOperate(): boolean {
    return this.#host !== undefined && !this.#isOperating && this.#operations < MOST_OPERATIONS;
  }

  async #operate(host: ScriptHost, operation: ScriptOperation): Promise<void> {
    this.#operations++;
    this.#isOperating = true;
    const startedAt = performance.now();
    let answer: ScriptAnswer;
    try {
      answer = await host.operate(operation);
    } catch (error) {
      this.#finished = stopped(error);
      this.#resolve(this.#finished);
      this.#thread.stop();
      return;
    } finally {
      this.operatedMs += performance.now() - startedAt;
      this.#isOperating = false;
    }
    if (this.#finished === undefined) this.#thread.answer(answer);
    else this.#resolve(this.#finished);
  }
}
