import { fork, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Figures, MeasuredWindow } from './timing.ts';

/** One side of a comparison. It runs in a process of its own, and executes its works on request. */
export interface Contender {
  readonly works: Readonly<Record<string, (argument: number) => Promise<Figures> | Figures>>;
  close(): Promise<void> | void;
}

export type ContenderOptions = Readonly<Record<string, string | number | boolean>>;

/** What a bench's module exports for each contender. */
export type ContenderFactory = (options: ContenderOptions) => Promise<Contender>;

export type FromParent = { readonly id: number; readonly work: string; readonly argument: number };
export type FromChild =
  | { readonly kind: 'ready' }
  | { readonly kind: 'figures'; readonly id: number; readonly figures: Figures }
  | { readonly kind: 'failed'; readonly id: number; readonly message: string }
  | { readonly kind: 'closed'; readonly windows: readonly MeasuredWindow[] };

/** The message that asks a contender to close. All other messages are names of works. */
export const CLOSE = 'close';

export interface StartOptions {
  /** URL of the module that exports the contender. */
  readonly module: string;
  readonly factory: string;
  readonly options: ContenderOptions;
  /** Arguments for the child's Node.js, for example `--cpu-prof`. */
  readonly execArgv: readonly string[];
}

/** A contender's process, as the comparing process sees it. */
export class RunningContender {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, { resolve: (figures: Figures) => void; reject: (error: Error) => void }>();
  readonly #ready = Promise.withResolvers<void>();
  readonly #exited = Promise.withResolvers<void>();
  #nextId = 1;
  #windows: readonly MeasuredWindow[] = [];

  private constructor(child: ChildProcess) {
    this.#child = child;
    child.on('message', (message) => this.#receive(message as FromChild));
    child.on('error', (error) => this.#fail(error));
    child.on('exit', (code, signal) => {
      this.#exited.resolve();
      this.#fail(new Error(`the contender's process ended with ${signal ?? code}`));
    });
  }

  /** Starts the process and waits until the contender is open. */
  static async start({ module, factory, options, execArgv }: StartOptions): Promise<RunningContender> {
    const host = fileURLToPath(new URL('./contender-host.ts', import.meta.url));
    const child = fork(host, [module, factory, JSON.stringify(options)], {
      execArgv: [...execArgv],
      // Peers print to standard output, which is ignored: results come as messages.
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    const contender = new RunningContender(child);
    await contender.#ready.promise;
    return contender;
  }

  get pid(): number {
    return this.#child.pid!;
  }

  /** The measured periods, known once the contender is closed. */
  get windows(): readonly MeasuredWindow[] {
    return this.#windows;
  }

  call(work: string, argument = 0): Promise<Figures> {
    const id = this.#nextId++;
    return new Promise<Figures>((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#child.send({ id, work, argument } satisfies FromParent);
    });
  }

  async close(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.connected) {
      this.#child.send({ id: 0, work: CLOSE, argument: 0 } satisfies FromParent);
    }
    await this.#exited.promise;
  }

  #receive(message: FromChild): void {
    switch (message.kind) {
      case 'ready':
        this.#ready.resolve();
        return;
      case 'closed':
        this.#windows = message.windows;
        this.#child.disconnect();
        return;
      case 'figures':
        this.#waiting.get(message.id)?.resolve(message.figures);
        this.#waiting.delete(message.id);
        return;
      case 'failed':
        if (message.id === 0) this.#ready.reject(new Error(message.message));
        this.#waiting.get(message.id)?.reject(new Error(message.message));
        this.#waiting.delete(message.id);
        return;
    }
  }

  #fail(error: Error): void {
    this.#ready.reject(error);
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}
