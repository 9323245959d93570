/** So much time has passed between a command's own time and its append that nothing may be recorded for it. */
export class DecidedTooLate extends Error {
  override readonly name = 'DecidedTooLate';
}
