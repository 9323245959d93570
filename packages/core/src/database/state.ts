/** Everything a database's stream says at a moment. */
export interface DatabaseState {
  readonly status: 'live' | 'deleted';
  readonly rid: string;
  readonly name: string;
  readonly etag: string;
  readonly createdAtMs: number;
  readonly deletedAtMs: number | null;
}
