import { readFile } from 'node:fs/promises';
import variant from '@jitl/quickjs-wasmfile-release-sync';
import {
  newQuickJSWASMModuleFromVariant,
  newVariant,
  type QuickJSContext,
  type QuickJSHandle,
  type QuickJSRuntime,
  type QuickJSSyncVariant,
} from 'quickjs-emscripten-core';
import { MAX_SAID } from './limits.ts';

/** What is used of it here: the types of Node.js have it not. */
declare const WebAssembly: {
  compile(bytes: Uint8Array): Promise<object>;
  readonly Memory: new (pages: { readonly initial: number; readonly maximum: number }) => object;
};

/** Of the engine's own stack. The host's, which it uses as well, is met first by texts that are nested deep: an error, too. */
const STACK_BYTES = 256 * 1024;
const WASM_PAGE = 64 * 1024;
/** What the engine's module is made for at least. */
const INITIAL_PAGES = 256;
/** What is kept back of the memory until something has to be told of a script that has taken the rest. */
const SPARE_BYTES = 1024 * 1024;
/** Jobs of promises between two glances at the clock. */
const JOBS = 1_000;

/** The file's bytes become code once for a thread, and an instance for each engine: nothing of one run is there for another. */
const compiled = readFile(new URL(import.meta.resolve('@jitl/quickjs-wasmfile-release-sync/wasm'))).then((bytes) =>
  WebAssembly.compile(bytes),
);

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
  readonly #memoryBytes: number;
  #until = Infinity;
  #isInterrupted = false;
  #workedMs = 0;

  private constructor(runtime: QuickJSRuntime, memoryBytes: number) {
    this.#runtime = runtime;
    this.#context = runtime.newContext();
    this.#memoryBytes = memoryBytes;
    runtime.setMemoryLimit(memoryBytes);
    runtime.setMaxStackSize(STACK_BYTES);
    runtime.setInterruptHandler(() => {
      if (performance.now() < this.#until) return false;
      this.#isInterrupted = true;
      return true;
    });
  }

  static async start(memoryBytes: number): Promise<Engine> {
    const wasmMemory = new WebAssembly.Memory({
      initial: INITIAL_PAGES,
      maximum: INITIAL_PAGES + Math.ceil((memoryBytes + SPARE_BYTES) / WASM_PAGE),
    });
    const silent: object = { print: () => {}, printErr: () => {} };
    const module = await newQuickJSWASMModuleFromVariant(
      newVariant(variant as unknown as QuickJSSyncVariant, {
        wasmModule: await compiled,
        wasmMemory,
        emscriptenModule: silent,
      }),
    );
    return new Engine(module.newRuntime(), memoryBytes);
  }

  /** Sets its time: after so many milliseconds what runs is ended, at the next loop or call. */
  allow(timeMs: number): void {
    this.#until = performance.now() + timeMs;
    this.#workedMs = 0;
    this.#isInterrupted = false;
  }

  /** Gives it the rest of its memory, where it has to tell of a failure. */
  allowSpareMemory(): void {
    this.#runtime.setMemoryLimit(this.#memoryBytes + SPARE_BYTES);
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
        if (this.#isInterrupted) return;
      }
    });
  }

  member(object: QuickJSHandle, name: string): QuickJSHandle {
    return this.#context.getProp(object, name);
  }

  isFunction(value: QuickJSHandle): boolean {
    return this.#context.typeof(value) === 'function';
  }

  /** Ends at the first U+0000, which no JSON text has in it. */
  given(text: string): QuickJSHandle {
    return this.#context.newString(text);
  }

  /** @returns undefined for anything but a text */
  text(value: QuickJSHandle): string | undefined {
    if (this.#context.typeof(value) !== 'string') return undefined;
    if (this.#context.getNumber(this.#context.getProp(value, 'length')) > MAX_SAID) {
      throw new EngineStopped('out-of-memory');
    }
    return this.#context.getString(value);
  }

  #work<T>(work: () => T): T {
    const startedAt = performance.now();
    // Even where what would be done is too short for the engine to ask.
    if (startedAt >= this.#until) throw new EngineStopped('out-of-time');
    try {
      const result = work();
      if (this.#isInterrupted) throw new EngineStopped('out-of-time');
      return result;
    } catch (error) {
      if (this.#isInterrupted) throw new EngineStopped('out-of-time');
      if (error instanceof ScriptError || error instanceof EngineStopped) throw error;
      // The host's stack, by texts that are nested too deep for it, or a fault of the engine. This one is used no more.
      if (error instanceof RangeError) throw new EngineStopped('failed', 'stack overflow');
      throw new EngineStopped('failed', error instanceof Error ? error.message : String(error));
    } finally {
      this.#workedMs += performance.now() - startedAt;
    }
  }
}
