/** A rule of this code itself was broken. No input of a client can cause it. */
export class InvariantViolation extends Error {
  override readonly name = 'InvariantViolation';
}

/**
 * Asserts a rule that must hold whatever the input. Assertions stay on in production: a store that breaks its own rules
 * must stop and report it, not go on and erase.
 *
 * @throws {InvariantViolation} when the condition is false
 */
export function invariant(condition: unknown, message: string): asserts condition {
  if (!condition) throw new InvariantViolation(message);
}

/** For the end of a switch over a closed union: the compiler refuses a case that was forgotten. */
export function unreachable(value: never): never {
  throw new InvariantViolation(`unexpected value ${JSON.stringify(value)}`);
}
