/** So much time has passed since a command was given its own that nothing may be recorded by it. */
export class DecidedTooLate extends Error {
  override readonly name = 'DecidedTooLate';
}
