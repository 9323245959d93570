/**
 * A statement for SQLite and PostgreSQL that selects the containers with rows in a table. It reads an index once for each container,
 * however many rows there are.
 *
 * @param table must have an index that begins with the container
 */
export const containersIn = (table: string): string => `SELECT container FROM (
  WITH RECURSIVE found (container) AS (
    SELECT min(container) FROM ${table}
    UNION ALL
    SELECT (SELECT min(container) FROM ${table} WHERE container > found.container) FROM found
      WHERE found.container IS NOT NULL
  ) SELECT container FROM found
) AS containers WHERE container IS NOT NULL`;
