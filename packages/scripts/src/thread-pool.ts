import { readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { type Job, readSaid, type Said, type ThreadOptions, type ToThread } from './messages.ts';
import type { ScriptAnswer, ScriptHost, ScriptOperation } from './script.ts';

/** How long after its time limit a thread may still report the end by itself, before it is terminated. */
const GRACE_MS = 250;
/** How long a thread and its engine may take to start. It takes 50 ms on an idle machine. */
const START_MS = 60_000;
/** How long a thread may be idle before it is terminated. */
const IDLE_MS = 30_000;
/** The heap of a thread, without the engine's memory: several times the size of the largest message of an engine. */
const HEAP_MIB = 256;
const YOUNG_GENERATION_MIB = 16;

/** The most operations that a task may request. It is more than an intact engine requests. */
const MOST_OPERATIONS = 20_000;

export interface PoolOptions extends Omit<ThreadOptions, 'code'> {
  readonly threads: number;
  readonly timeMs: number;
  readonly waiting: number;
  readonly now: (() => number) | undefined;
}

/** On whose behalf a task runs. */
export interface Turn {
  /** Tasks wait in one queue for each value of `of`, and the queues take turns. So a long queue doesn't hold up the others. */
  readonly of: string;
  /** Aborted when the task's result is no longer needed. The task ends as `stopped`, and others get its thread. */
  readonly signal?: AbortSignal | undefined;
}

/** How a task ended. `failed`: by a fault of the engine or its thread. */
export type End =
  | Exclude<Said, { readonly kind: 'begun' | 'operation' }>
  | { readonly kind: 'out-of-time' | 'out-of-memory' | 'busy'; readonly workedMs: number }
  | { readonly kind: 'stopped'; readonly error: unknown; readonly workedMs: number }
  | { readonly kind: 'failed'; readonly message: string; readonly workedMs: number };

type Task = Job['task'];

/** The part of WebAssembly's API that is used here. The types of Node.js lack it. */
declare const WebAssembly: { readonly Module: new (bytes: Uint8Array) => object };

let compiled: object | undefined;

/** The engine's compiled module, shared by all threads. It is compiled at the first call, which takes 3 ms. */
function engineCode(): object {
  const file = import.meta.resolve('@jitl/quickjs-wasmfile-release-sync/wasm');
  compiled ??= new WebAssembly.Module(readFileSync(new URL(file)));
  return compiled;
}

const BUSY: End = { kind: 'busy', workedMs: 0 };
const stopped = (error: unknown): End => ({ kind: 'stopped', error, workedMs: 0 });

/** A task that waits for a thread. */
interface Waiting {
  readonly take: (thread: Thread | End) => void;
}

/** Threads with engines. Each thread executes one task at a time. Tasks wait while all threads are busy. */
export class ThreadPool {
  readonly #options: PoolOptions;
  readonly #idle: Thread[] = [];
  readonly #busy = new Set<Thread>();
  /** The number of threads, including those that are terminating. */
  #threads = 0;
  /** The waiting tasks, by {@link Turn.of}. The queue whose turn is next comes first. */
  readonly #waiting = new Map<string, Set<Waiting>>();
  #isClosed = false;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /** Executes a task. It never rejects: any failure is an end, too. */
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

  /** Refuses waiting and new tasks. Running tasks continue. */
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

  /** @returns false if too many tasks wait, and at least one of them is in the same queue */
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

  /** Removes the next waiting task, and moves its queue to the end. */
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

  /** Counts a thread as busy at once, before the task that waits for it resumes: {@link close} terminates all busy threads. */
  #use(thread: Thread): Thread {
    this.#busy.add(thread);
    return thread;
  }

  async #release(thread: Thread): Promise<void> {
    if (thread.isEnding) {
      // The next thread is started after this one has ended, so that there are never more threads than configured.
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
      // The thread gets none of the store's options and secrets, which the environment may contain.
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

  /** True if the thread can't be used any more. */
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
      const sentAt = performance.now();
      this.#send(job);
      const end = await task.end;
      if (end.kind === 'busy') return end;
      const msSince = (at: number) => performance.now() - at - task.operatedMs;
      if ('workedMs' in end) return { ...end, workedMs: startedAt === undefined ? 0 : msSince(startedAt) };
      // The thread measures more exactly, without its waits. But it is not trusted: it can't have worked longer than since the job was
      // sent. When it began is heard only later, if this thread is busy.
      const outcome = { ...end.outcome, workedMs: Math.min(end.outcome.workedMs, msSince(sentAt)) };
      return { ...end, outcome } as typeof end;
    } finally {
      clearTimeout(timer);
      this.#task = undefined;
    }
  }

  #send(message: ToThread): void {
    this.#worker.postMessage(message);
  }

  /** Terminates the thread at once. Its task, if there is one, gets this end. */
  stop(end: End = { kind: 'failed', message: 'the engine is broken', workedMs: 0 }): void {
    void this.end();
    this.#task?.finish(end);
  }

  async end(): Promise<void> {
    this.#ended ??= this.#worker.terminate();
    await this.#ended;
  }

  /** Lets the process exit while the thread is idle, and terminates the thread if it is idle for long. */
  idle(): void {
    this.#worker.unref();
    this.#idleTimer = setTimeout(() => void this.end(), IDLE_MS).unref();
  }
}

/** What a task needs of the thread that executes it. */
interface TaskThread {
  /** Called once, when the task's time begins. */
  begun(): void;
  answer(answer: ScriptAnswer): void;
  /** Terminates the thread, because it has sent an invalid message. */
  stop(): void;
}

/** A thread's current task, on the store's side. Its operations are executed one at a time, and it ends once. */
class RunningTask {
  readonly end: Promise<End>;
  readonly #task: Task;
  readonly #host: ScriptHost | undefined;
  readonly #thread: TaskThread;
  readonly #resolve: (end: End) => void;
  #hasBegun = false;
  #operations = 0;
  #isOperating = false;
  /** How long the host has worked on the task's operations, in milliseconds. */
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
    // The end is reported only after the running operation is done: then the host does nothing for the task any more.
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
