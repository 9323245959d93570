import importedVariant from '@jitl/quickjs-wasmfile-release-sync';
import {
  newQuickJSWASMModuleFromVariant,
  newVariant,
  type QuickJSContext,
  type QuickJSHandle,
  type QuickJSRuntime,
  type QuickJSSyncVariant,
  type QuickJSWASMModule,
} from 'quickjs-emscripten-core';
import { MAX_SAID } from './limits.ts';

/** What is used of it here: the types of Node.js have it not. */
declare const WebAssembly: {
  readonly Memory: {
    new (pages: { readonly initial: number; readonly maximum: number }): WasmMemory;
    readonly prototype: WasmMemory;
  };
};

interface WasmMemory {
  readonly buffer: ArrayBuffer;
  grow: (pages: number) => number;
}

/** Its types are those of a module in CommonJS, which it is not. */
const variant = importedVariant as unknown as QuickJSSyncVariant;

/** Of the engine's own stack. The host's, which it uses as well, is met first by texts that are nested deep: an error, too. */
const STACK_BYTES = 256 * 1024;
const WASM_PAGE = 64 * 1024;
const BLANK_PAGE = Buffer.alloc(WASM_PAGE);
/** What the engine's module is made for at least. */
const INITIAL_PAGES = 256;
/** Jobs of promises between two glances at the clock. */
const JOBS = 1_000;

/** What work in an engine that had just been started has changed in its memory: bytes, and where they are. */
export type Changes = readonly { readonly at: number; readonly bytes: Uint8Array }[];

/** The engine can't go on: its time is up, or it is broken. */
export class EngineStopped extends Error {
  readonly reason: 'out-of-time' | 'out-of-memory' | 'failed';

  constructor(reason: EngineStopped['reason'], detail = '') {
    super(detail);
    this.reason = reason;
  }
}

/** The script has thrown, or its text is no program. */
export class ScriptError extends Error {
  readonly thrown: QuickJSHandle;
  /** True where its text does not come to a function. */
  isOfText = false;

  constructor(thrown: QuickJSHandle) {
    super('a script has thrown');
    this.thrown = thrown;
  }
}

/**
 * QuickJS in WebAssembly, for one run. It is given no function of the host: texts go in, texts come out. So there is nothing in it by
 * which a script could reach further.
 */
export class Engine {
  readonly #runtime: QuickJSRuntime;
  readonly #context: QuickJSContext;
  readonly #memory: WasmMemory;
  #until = Infinity;
  #isInterrupted = false;
  #isFull = false;
  #workedMs = 0;

  private constructor(module: QuickJSWASMModule, memory: WasmMemory) {
    this.#memory = memory;
    this.#runtime = module.newRuntime();
    this.#context = this.#runtime.newContext();
    this.#runtime.setMaxStackSize(STACK_BYTES);
    this.#runtime.setInterruptHandler(() => {
      if (performance.now() >= this.#until) this.#isInterrupted = true;
      return this.#isInterrupted || this.#isFull;
    });
    // The engine's own limit counts next to nothing in WebAssembly. And a script can't go on after it has met this one: the calls into
    // the engine have to find memory, too.
    const { grow } = WebAssembly.Memory.prototype;
    memory.grow = (pages) => {
      try {
        return grow.call(memory, pages);
      } catch (error) {
        this.#isFull = true;
        throw error;
      }
    };
  }

  /**
   * @param code of the engine, compiled: an instance of it is made, so that nothing of another run is there
   * @param wasmMemory blank
   * @param changes what some work has come to in another engine, and comes to in this one without being done: all that an engine knows is
   *   in its memory, and in that all are alike when they have just been started, but for where their random numbers begin
   */
  static async start(code: object, wasmMemory: WasmMemory, changes: Changes = []): Promise<Engine> {
    const silent: object = { print: () => {}, printErr: () => {} };
    const options = { wasmModule: code as never, wasmMemory, emscriptenModule: silent };
    const engine = new Engine(await newQuickJSWASMModuleFromVariant(newVariant(variant, options)), wasmMemory);
    const memory = new Uint8Array(wasmMemory.buffer);
    for (const { at, bytes } of changes) memory.set(bytes, at);
    return engine;
  }

  static newMemory(memoryBytes: number): WasmMemory {
    const maximum = INITIAL_PAGES + Math.ceil(memoryBytes / WASM_PAGE);
    return new WebAssembly.Memory({ initial: INITIAL_PAGES, maximum });
  }

  /**
   * Its memory, blank, for another engine; this one can't be used any more. Memory that is new each time is work for the system, and has
   * the garbage collected all the time: it took most of what a short script did.
   *
   * @returns undefined where it has grown, as it can't become smaller again
   */
  leaveMemory(): WasmMemory | undefined {
    if (this.#memory.buffer.byteLength > INITIAL_PAGES * WASM_PAGE) return undefined;
    for (const page of this.#pages()) if (!page.equals(BLANK_PAGE)) page.fill(0);
    return this.#memory;
  }

  /** What some work in an engine that has just been started changes in its memory, which must not grow by it. */
  changesBy(work: () => void): Changes {
    const pages = this.#pages();
    const before = pages.map((page) => (page.equals(BLANK_PAGE) ? BLANK_PAGE : Buffer.alloc(WASM_PAGE, page)));
    work();
    return pages.flatMap((page, index) => (page.equals(before[index]!) ? [] : changesIn(page, before[index]!)));
  }

  #pages(): Buffer[] {
    const { buffer } = this.#memory;
    return Array.from({ length: INITIAL_PAGES }, (_, index) => Buffer.from(buffer, index * WASM_PAGE, WASM_PAGE));
  }

  /** Sets its time: after so many milliseconds what runs is ended, at the next loop or call. */
  allow(timeMs: number): void {
    this.#until = performance.now() + timeMs;
    this.#workedMs = 0;
    this.#isInterrupted = false;
  }

  /** Milliseconds that it has computed since. */
  get workedMs(): number {
    return this.#workedMs;
  }

  /** What a program comes to. */
  run(program: string, file: string): QuickJSHandle {
    return this.#work(() => {
      const result = this.#context.evalCode(program, file, { type: 'global' });
      if (result.error !== undefined) throw new ScriptError(result.error);
      return result.value;
    });
  }

  call(f: QuickJSHandle, ...args: readonly QuickJSHandle[]): QuickJSHandle {
    return this.#work(() => {
      const result = this.#context.callFunction(f, this.#context.undefined, ...args);
      if (result.error !== undefined) throw new ScriptError(result.error);
      return result.value;
    });
  }

  /** All that promises have to do. What is thrown there has become a promise's own, and is nobody else's. */
  runJobs(): void {
    this.#work(() => {
      while (this.#runtime.hasPendingJob()) {
        this.#runtime.executePendingJobs(JOBS);
        if (performance.now() >= this.#until) this.#isInterrupted = true;
        if (this.#isInterrupted || this.#isFull) return;
      }
    });
  }

  member(object: QuickJSHandle, name: string): QuickJSHandle {
    return this.#guard(() => this.#context.getProp(object, name));
  }

  isFunction(value: QuickJSHandle): boolean {
    return this.#context.typeof(value) === 'function';
  }

  /** Ends at the first U+0000, which no JSON text has in it. */
  given(text: string): QuickJSHandle {
    return this.#guard(() => this.#context.newString(text));
  }

  /** @returns undefined for anything but a text */
  text(value: QuickJSHandle): string | undefined {
    return this.#guard(() => {
      if (this.#context.typeof(value) !== 'string') return undefined;
      const length = this.#context.getProp(value, 'length').consume((handle) => this.#context.getNumber(handle));
      if (length > MAX_SAID) throw new EngineStopped('out-of-memory');
      return this.#context.getString(value);
    });
  }

  #work<T>(work: () => T): T {
    const startedAt = performance.now();
    // Even where what would be done is too short for the engine to ask.
    if (startedAt >= this.#until) throw new EngineStopped('out-of-time');
    try {
      return this.#guard(work);
    } finally {
      this.#workedMs += performance.now() - startedAt;
    }
  }

  /** What comes of it counts only where the engine was not stopped on the way. */
  #guard<T>(work: () => T): T {
    try {
      const result = work();
      this.#checkStopped();
      return result;
    } catch (error) {
      this.#checkStopped();
      if (error instanceof ScriptError || error instanceof EngineStopped) throw error;
      // The host's stack, by texts that are nested too deep for it.
      if (error instanceof RangeError) throw new EngineStopped('failed', 'stack overflow');
      throw new EngineStopped('failed', error instanceof Error ? error.message : String(error));
    }
  }

  #checkStopped(): void {
    if (this.#isFull) throw new EngineStopped('out-of-memory');
    if (this.#isInterrupted) throw new EngineStopped('out-of-time');
  }
}

/** No more than has changed: what is beside it may be another engine's own. */
function changesIn(page: Buffer, before: Buffer): { at: number; bytes: Uint8Array }[] {
  const [now, then] = [wordsOf(page), wordsOf(before)];
  const changes: { at: number; bytes: Uint8Array }[] = [];
  for (let word = 0; word < now.length; word++) {
    const first = word;
    while (word < now.length && now[word] !== then[word]) word++;
    if (word === first) continue;
    const start = first * now.BYTES_PER_ELEMENT;
    const bytes = Uint8Array.from(page.subarray(start, word * now.BYTES_PER_ELEMENT));
    changes.push({ at: page.byteOffset + start, bytes });
  }
  return changes;
}

const wordsOf = ({ buffer, byteOffset, byteLength }: Buffer): Uint32Array =>
  new Uint32Array(buffer, byteOffset, byteLength / Uint32Array.BYTES_PER_ELEMENT);
