import { type MessagePort, Worker } from 'node:worker_threads';
import { UnusableFile } from './database.ts';
import { type Job, type JobOutcome, StorageFault, Writer, type WriterCore } from './writer.ts';

/**
 * V8's young generation in a writer's thread, in MiB. A larger one collects more garbage before it is freed, and then the memory of a
 * rebuild grows with the amount of data; see docs/benchmarks.md, P9.
 */
const YOUNG_GENERATION_MIB = 16;

/**
 * Threads whose writers have closed their files, by the URL of their program. Starting a thread takes 60 ms of processor time, mostly
 * Node's own. A process that opens one store after another, as tests do, would need that for each. One thread of each program is kept,
 * and does not keep the process from ending.
 */
const spares = new Map<string, Worker>();

/** Runs the core in a separate thread, so that neither fsync nor a checkpoint blocks the event loop. */
export class ThreadWriter extends Writer {
  readonly #thread: URL;
  readonly #worker: Worker;
  readonly #onLost: (error: StorageFault) => void;
  #isEnding = false;
  #waiting: { resolve: (outcomes: JobOutcome[]) => void; reject: (error: unknown) => void } | undefined;
  #dead: StorageFault | undefined;

  private constructor(thread: URL, worker: Worker, onLost: (error: StorageFault) => void) {
    super();
    this.#thread = thread;
    this.#worker = worker;
    this.#onLost = onLost;
    worker.on('message', (outcomes: JobOutcome[]) => {
      const waiting = this.#waiting;
      this.#waiting = undefined;
      waiting?.resolve(outcomes);
    });
    worker.on('error', (error: Error) => this.#die(error.message));
    worker.on('exit', () => this.#die('it ended'));
  }

  /**
   * Starts a thread, or takes a spare one, and waits until it has opened its files.
   *
   * @param options the options of the core in the thread
   * @param onLost called if the thread has ended by itself. Its last jobs may be written or not; no later job will be
   * @throws {UnusableFile} if the core's constructor does
   */
  static start(thread: URL, options: unknown, onLost: (error: StorageFault) => void = () => {}): Promise<ThreadWriter> {
    return new Promise((resolve, reject) => {
      const worker = takeThread(thread);
      worker.once('error', reject);
      worker.once('message', (answer: StartAnswer) => {
        worker.off('error', reject);
        if (answer === 'ready') {
          resolve(new ThreadWriter(thread, worker, onLost));
        } else {
          leaveThread(thread, worker);
          reject(new UnusableFile(answer.unusable));
        }
      });
      worker.postMessage({ options } satisfies Start<unknown>);
    });
  }

  protected override run(jobs: readonly Job[]): Promise<JobOutcome[]> {
    if (this.#dead !== undefined) return Promise.reject(this.#dead);
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      const packed = pack(jobs);
      this.#worker.postMessage(packed, [packed.bytes]);
    });
  }

  protected override async closeCore(): Promise<void> {
    if (this.#dead !== undefined) return;
    this.#isEnding = true;
    await new Promise<void>((resolve) => {
      this.#worker.once('exit', () => resolve());
      this.#worker.removeAllListeners('message').once('message', (_: 'closed') => {
        leaveThread(this.#thread, this.#worker);
        resolve();
      });
      this.#worker.postMessage('close');
    });
  }

  #die(reason: string): void {
    if (this.#dead !== undefined) return;
    this.#dead = new StorageFault({
      fault: `a thread that writes to the data folder has ended (${reason}); nothing can be written until the store is restarted`,
    });
    this.#waiting?.reject(this.#dead);
    this.#waiting = undefined;
    if (!this.#isEnding) this.#onLost(this.#dead);
  }
}

/** Removes the listeners of this module only: Node.js has listeners of its own. */
function listenNoMore(worker: Worker): void {
  for (const event of ['message', 'error', 'exit']) worker.removeAllListeners(event);
}

function takeThread(thread: URL): Worker {
  const spare = spares.get(thread.href);
  if (spare === undefined) {
    return new Worker(thread, { resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MIB } });
  }
  spares.delete(thread.href);
  listenNoMore(spare);
  spare.ref();
  return spare;
}

/** Keeps a thread as a spare. Its files must be closed. */
function leaveThread(thread: URL, worker: Worker): void {
  listenNoMore(worker);
  const forget = () => {
    if (spares.get(thread.href) === worker) spares.delete(thread.href);
  };
  worker.on('error', forget).on('exit', forget);
  if (spares.has(thread.href)) {
    void worker.terminate();
    return;
  }
  worker.unref();
  spares.set(thread.href, worker);
}

/** Jobs in a message to a thread. All their blobs are in one buffer, which is transferred without another copy. */
interface PackedJobs {
  readonly jobs: readonly Job[];
  readonly bytes: ArrayBuffer;
  /** The number of blobs of each job, followed by the length of each blob. */
  readonly lengths: readonly number[];
}

function pack(jobs: readonly Job[]): PackedJobs {
  const lengths: number[] = jobs.map((job) => job.blobs?.length ?? 0);
  let total = 0;
  for (const { blobs } of jobs) {
    if (blobs === undefined) continue;
    for (const blob of blobs) {
      lengths.push(blob.length);
      total += blob.length;
    }
  }
  const bytes = new ArrayBuffer(total);
  const whole = new Uint8Array(bytes);
  let offset = 0;
  const bare = jobs.map((job) => {
    if (job.blobs === undefined) return job;
    for (const blob of job.blobs) {
      whole.set(blob, offset);
      offset += blob.length;
    }
    const { blobs: _, ...rest } = job;
    return rest;
  });
  return { jobs: bare, bytes, lengths };
}

function unpack({ jobs, bytes, lengths }: PackedJobs): Job[] {
  let next = jobs.length;
  let offset = 0;
  return jobs.map((job, index) => {
    const count = lengths[index]!;
    if (count === 0) return job;
    const blobs: Uint8Array[] = [];
    for (let taken = 0; taken < count; taken++) {
      const length = lengths[next++]!;
      blobs.push(new Uint8Array(bytes, offset, length));
      offset += length;
    }
    return { ...job, blobs };
  });
}

/** The first message to a thread for each store. */
interface Start<Options> {
  readonly options: Options;
}

/** The thread's answer to it. An error would lose its class between threads, so only its message is sent. */
type StartAnswer = 'ready' | { readonly unusable: string };

/** The thread's side of {@link ThreadWriter}: executes each group as it arrives, and answers it by one message. */
export function serveWriter<Options>(port: MessagePort, open: (options: Options) => WriterCore): void {
  let core: WriterCore | undefined;
  const answerStart = (options: Options): StartAnswer => {
    try {
      core = open(options);
      return 'ready';
    } catch (error) {
      if (!(error instanceof UnusableFile)) throw error;
      return { unusable: error.message };
    }
  };
  port.on('message', (message: Start<Options> | PackedJobs | 'close') => {
    if (message === 'close') {
      core?.close();
      core = undefined;
      port.postMessage('closed');
    } else if ('options' in message) {
      port.postMessage(answerStart(message.options));
    } else {
      port.postMessage(core!.execute(unpack(message)));
    }
  });
}
