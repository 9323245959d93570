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

/** The part of WebAssembly's API that is used here. The types of Node.js lack it. */
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

/** The package's types describe a CommonJS module, but it is an ES module. */
const variant = importedVariant as unknown as QuickJSSyncVariant;

/** The size of the engine's own stack. Deeply nested texts overflow the host's stack first, which the engine uses as well. */
const STACK_BYTES = 256 * 1024;
const WASM_PAGE = 64 * 1024;
const BLANK_PAGE = Buffer.alloc(WASM_PAGE);
/** The least memory that the engine's module requires. */
const INITIAL_PAGES = 256;
/** How many jobs of promises are executed before the time is checked. */
const JOBS = 1_000;

/** The changes that some work makes in the memory of an engine that was just started: offsets and bytes. */
export type Changes = readonly { readonly at: number; readonly bytes: Uint8Array }[];

/** The engine can't continue: its time or memory is used up, or it has failed. */
export class EngineStopped extends Error {
  readonly reason: 'out-of-time' | 'out-of-memory' | 'failed';

  constructor(reason: EngineStopped['reason'], detail = '') {
    super(detail);
    this.reason = reason;
  }
}

/** The script has thrown an error, or its text is no valid program. */
export class ScriptError extends Error {
  readonly thrown: QuickJSHandle;
  /** True if the script's text does not define a function. */
  isOfText = false;

  constructor(thrown: QuickJSHandle) {
    super('a script has thrown');
    this.thrown = thrown;
  }
}

/**
 * QuickJS in WebAssembly, for one run. It gets no function of the host: only texts are passed in and out. So a script has nothing by
 * which it could access anything outside of the engine.
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
    // QuickJS's own memory limit counts almost nothing in WebAssembly, so the growth of the memory is limited here. A script can't
    // continue after it has reached this limit, since calls into the engine need memory too.
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
   * @param code the compiled module of the engine. A new instance of it is made, so that nothing of another run is there
   * @param wasmMemory memory that is all zeros
   * @param changes the changes that some work has made in another engine. Applying them has the same effect as that work: an engine's whole
   *   state is in its memory, and all engines are the same after the start, except for the seed of their random numbers
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
   * Returns the memory, all zeros, for another engine. This engine can't be used any more. Allocating new memory each time is expensive for
   * the operating system, and causes many garbage collections: it took most of the time of a short script.
   *
   * @returns undefined if the memory has grown, since it can't shrink again
   */
  leaveMemory(): WasmMemory | undefined {
    if (this.#memory.buffer.byteLength > INITIAL_PAGES * WASM_PAGE) return undefined;
    for (const page of this.#pages()) if (!page.equals(BLANK_PAGE)) page.fill(0);
    return this.#memory;
  }

  /** Does some work in an engine that was just started, and returns the changes in its memory. The memory must not grow by it. */
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

  /** Sets the time limit, in milliseconds. After it, the running program is stopped at the next loop or call. */
  allow(timeMs: number): void {
    this.#until = performance.now() + timeMs;
    this.#workedMs = 0;
    this.#isInterrupted = false;
  }

  /** The computing time since {@link allow}, in milliseconds. */
  get workedMs(): number {
    return this.#workedMs;
  }

  /** Runs a program, and returns its value. */
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

  /** Runs all pending jobs of promises. Errors thrown in them have rejected promises, and are not reported here. */
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

  /** Passes a text into the engine. It ends at the first U+0000, which no JSON text contains. */
  given(text: string): QuickJSHandle {
    return this.#guard(() => this.#context.newString(text));
  }

  /** Reads a text from the engine; undefined if the value is not a text. */
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
    // Checked here too: the work may be too short for the engine to check the time.
    if (startedAt >= this.#until) throw new EngineStopped('out-of-time');
    try {
      return this.#guard(work);
    } finally {
      this.#workedMs += performance.now() - startedAt;
    }
  }

  /** Does some work. Its result is only returned if the engine was not stopped meanwhile. */
  #guard<T>(work: () => T): T {
    try {
      const result = work();
      this.#checkStopped();
      return result;
    } catch (error) {
      this.#checkStopped();
      if (error instanceof ScriptError || error instanceof EngineStopped) throw error;
      // The host's stack has overflowed, because of a text that is nested too deeply.
      if (error instanceof RangeError) throw new EngineStopped('failed', 'stack overflow');
      throw new EngineStopped('failed', error instanceof Error ? error.message : String(error));
    }
  }

  #checkStopped(): void {
    if (this.#isFull) throw new EngineStopped('out-of-memory');
    if (this.#isInterrupted) throw new EngineStopped('out-of-time');
  }
}

/** The changed bytes of a page, without their neighbours, which may differ in another engine. */
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
