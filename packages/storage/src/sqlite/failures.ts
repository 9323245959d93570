/** The primary result codes of SQLite that the store distinguishes. @see https://www.sqlite.org/rescode.html */
export const sqliteCodes = {
  busy: 5,
  readOnly: 8,
  /** Any failed read or write, also because of a full disk, if that is noticed late. */
  ioError: 10,
  corrupt: 11,
  full: 13,
  cantOpen: 14,
  constraint: 19,
  notADatabase: 26,
} as const;

/** The primary result code of an error of SQLite; undefined for any other error. */
export function sqliteCodeOf(error: unknown): number | undefined {
  const { errcode } = error as { readonly errcode?: number };
  return errcode === undefined ? undefined : errcode & 0xff;
}

/** True if SQLite or the operating system reports that no space is left. */
export function isDiskFull(error: unknown): boolean {
  const { code } = error as { readonly code?: string };
  return sqliteCodeOf(error) === sqliteCodes.full || code === 'ENOSPC' || code === 'EDQUOT';
}
