/**
 * The few functions of a test framework that the contract suites use. Vitest's fit; the suites take them as an argument,
 * so that core depends on no framework.
 */
export interface TestFramework {
  readonly describe: (name: string, body: () => void) => unknown;
  readonly it: (name: string, body: () => Promise<void>, timeoutMs?: number) => unknown;
  readonly expect: (actual: unknown, message?: string) => Matchers;
}

export interface Matchers {
  readonly not: Matchers;
  toBe(expected: unknown): void;
  toEqual(expected: unknown): void;
  toMatchObject(expected: object): void;
  toBeGreaterThan(expected: number): void;
  toBeGreaterThanOrEqual(expected: number): void;
  toBeInstanceOf(expected: unknown): void;
}

/** What a promise was rejected with. A promise that resolves is a failure. */
export async function rejectionOf(promise: Promise<unknown>): Promise<unknown> {
  let value: unknown;
  try {
    value = await promise;
  } catch (error) {
    return error ?? new Error('rejected with nothing');
  }
  throw new Error(`expected a rejection, got ${JSON.stringify(value)}`);
}

/** Lets the event loop turn so often that whatever does not wait for something has happened. */
export async function turns(count = 20): Promise<void> {
  for (let turn = 0; turn < count; turn++) {
    await new Promise<void>((resolve) => {
      setImmediate(resolve);
    });
  }
}

/** Equal byte for byte, whatever kind of Uint8Array each is. */
export function sameBytes(left: Uint8Array | undefined, right: Uint8Array | undefined): boolean {
  if (left === undefined || right === undefined) return left === right;
  return left.length === right.length && left.every((byte, index) => byte === right[index]);
}

/** Bytes that repeat from run to run and look like none in particular. */
export function sampleBytes(length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let state = 1;
  for (let index = 0; index < length; index++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[index] = state >>> 24;
  }
  return bytes;
}
