/** The owner of an event log on a server: the data folder or the database that has the keys. */
export interface LogOwner {
  /** A random id. Each restore makes a new one, because the original of the backup may still exist. */
  readonly id: string;
  /** The place of the keys at the time when they claimed the log, for messages. */
  readonly name: string;
}

/** An event log that records its owner. */
export interface OwnedLog {
  /** The server's address, for messages. */
  readonly name: string;
  /**
   * Records the owner of the log, if it has none yet. With `takeOver` it also replaces another owner.
   *
   * @returns the owner after the call
   */
  claim(owner: LogOwner, takeOver: boolean): Promise<LogOwner>;
}

/**
 * Claims a log for a store's keys. Two stores on one log could not read each other's items, and would end them.
 *
 * @param takeOver true at the end of a restore: from then on the log belongs to these keys
 * @returns a message if the log belongs to other keys, otherwise undefined
 */
export async function refusalOfLog(log: OwnedLog, owner: LogOwner, takeOver: boolean): Promise<string | undefined> {
  const found = await log.claim(owner, takeOver);
  if (found.id === owner.id) return undefined;
  return `The event log on ${log.name} belongs to the keys of ${found.name}, not to those of ${owner.name}. Start with the keys that it belongs to. If they are lost, or if the log was restored from an older copy, run epitaph restore with the newest keys that you have; docs/backup-and-restore.md says how.`;
}
