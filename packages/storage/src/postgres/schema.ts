export interface Schema {
  /** The schema in the database that everything of it is in. */
  readonly name: string;
  /** What it is, for messages: "key vault", … */
  readonly what: string;
  /** Step n takes version n to n + 1; the first makes it all. Steps are only ever added. */
  readonly steps: readonly string[];
}
