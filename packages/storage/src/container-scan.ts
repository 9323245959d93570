/**
 * A statement for the containers that have rows in a table, for SQLite and PostgreSQL: by one look into an index for
 * each of them, however many rows there are.
 *
 * @param table of which an index begins with the container
 */
export const containersIn = (table: string): string => `SELECT container FROM (
  WITH RECURSIVE found (container) AS (
    SELECT min(container) FROM ${table}
    UNION ALL
    SELECT (SELECT min(container) FROM ${table} WHERE container > found.container) FROM found
      WHERE found.container IS NOT NULL
  ) SELECT container FROM found
) AS containers WHERE container IS NOT NULL`;
