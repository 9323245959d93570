/** The exit codes of the command line. Scripts depend on them. */
export const exitCodes = {
  ok: 0,
  /** The command was carried out and found a problem, or the server refused it. */
  problem: 1,
  /** The command or the configuration is wrong; nothing was done. */
  usage: 2,
  /** The server, or one on which it keeps its data, could not be reached. The same command may work a little later. */
  unreachable: 3,
} as const;

/** The command line is wrong. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}
