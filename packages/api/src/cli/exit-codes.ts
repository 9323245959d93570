/** What the command line ends with; scripts go by it. */
export const exitCodes = {
  ok: 0,
  /** The command was carried out and found a problem, or the server said no. */
  problem: 1,
  /** The command or the configuration is wrong; nothing was done. */
  usage: 2,
  /** The server could not be reached, or one that it keeps its data on. The same may do a little later. */
  unreachable: 3,
} as const;

/** A command line that can't be understood. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}
