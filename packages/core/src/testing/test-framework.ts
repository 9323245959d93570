/**
 * The few functions of a test framework that the contract suites use. Vitest provides them. The suites take them as an
 * argument, so that core depends on no framework.
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

/** The error that a promise is rejected with. Fails if the promise resolves. */
export async function rejectionOf(promise: Promise<unknown>): Promise<unknown> {
  let value: unknown;
  try {
    value = await promise;
  } catch (error) {
    return error ?? new Error('rejected with nothing');
  }
  throw new Error(`expected a rejection, got ${JSON.stringify(value)}`);
}

/** Lets the event loop turn so many times that everything that can happen without waiting has happened. */
export async function turns(count = 20): Promise<void> {
  for (let turn = 0; turn < count; turn++) {
    await new Promise<void>((resolve) => {
      setImmediate(resolve);
    });
  }
}

/** True if both have the same bytes, whatever kind of Uint8Array each of them is. */
export function sameBytes(left: Uint8Array | undefined, right: Uint8Array | undefined): boolean {
  if (left === undefined || right === undefined) return left === right;
  return left.length === right.length && left.every((byte, index) => byte === right[index]);
}

/** Bytes that look random and are the same in each run. */
export function sampleBytes(length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let state = 1;
  for (let index = 0; index < length; index++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[index] = state >>> 24;
  }
  return bytes;
}
