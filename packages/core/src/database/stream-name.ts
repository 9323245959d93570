/** The stream of one database, named by its rid. */
export function databaseStream(rid: string): string {
  return `database-${rid}`;
}

/** The rid in a database's stream name, or undefined for a stream of another kind. */
export function parseDatabaseStream(stream: string): string | undefined {
  return stream.startsWith('database-') ? stream.slice('database-'.length) : undefined;
}
