/** SQLite's primary result codes that are told apart. @see https://www.sqlite.org/rescode.html */
export const sqliteCodes = {
  busy: 5,
  readOnly: 8,
  /** Any read or write that failed: of a full disk too, where that is noticed late. */
  ioError: 10,
  corrupt: 11,
  full: 13,
  cantOpen: 14,
  constraint: 19,
  notADatabase: 26,
} as const;

/** SQLite's primary result code of what it threw; undefined for any other error. */
export function sqliteCodeOf(error: unknown): number | undefined {
  const { errcode } = error as { readonly errcode?: number };
  return errcode === undefined ? undefined : errcode & 0xff;
}

/** True for an error of SQLite, or of a call of the system, that found no space left. */
export function isDiskFull(error: unknown): boolean {
  const { code } = error as { readonly code?: string };
  return sqliteCodeOf(error) === sqliteCodes.full || code === 'ENOSPC' || code === 'EDQUOT';
}
