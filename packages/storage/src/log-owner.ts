/** Whose an event log on a server is: a data folder's or a database's that has the keys. */
export interface LogOwner {
  /** Made up once, and anew by each restore, because what was restored from may still be there. */
  readonly id: string;
  /** Where the keys were when they got the log, for messages. */
  readonly name: string;
}

/** An event log that says whose it is. */
export interface OwnedLog {
  /** Where it is, for messages. */
  readonly name: string;
  /**
   * Puts on record whose the log is: where nobody has it yet, and with `takeOver` from whoever has it.
   *
   * @returns whose it is then
   */
  claim(owner: LogOwner, takeOver: boolean): Promise<LogOwner>;
}

/**
 * Claims a log for some keys. Two of them on one log would each write what the other can't read, and end what it has.
 *
 * @param takeOver true for the end of a restore, from which on these keys are the ones that go with the log
 * @returns why these keys don't go with it, or undefined when they do
 */
export async function refusalOfLog(log: OwnedLog, owner: LogOwner, takeOver: boolean): Promise<string | undefined> {
  const found = await log.claim(owner, takeOver);
  if (found.id === owner.id) return undefined;
  return `The event log on ${log.name} belongs to the keys of ${found.name}, and not to those of ${owner.name}. Start with the ones that it belongs to. If they are lost, or an older copy of the log was put back, call epitaph restore with the newest keys that there are; docs/backup-and-restore.md says how.`;
}
