export interface Schema {
  /** The name of the schema in the database. */
  readonly name: string;
  /** What the schema is, for messages: "key vault", … */
  readonly what: string;
  /** Step n migrates version n to n + 1. The first one, n = 0, creates the schema. Released steps never change; new ones are added. */
  readonly steps: readonly string[];
}
