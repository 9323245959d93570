/**
 * What an operation costs in request units: a model of the published figures (a point read of 1 KB costs 1, a write
 * of 1 KB about 5.3, more with the size), not the service's own sum.
 */
const kilobytes = (bytes: number): number => Math.max(1, Math.ceil(bytes / 1024));

const rounded = (units: number): number => Math.round(units * 100) / 100;

export const charge = {
  /** A read that found what it looked for or not; 100 KB cost 10. */
  pointRead: (bytes: number): number => rounded(1 + (kilobytes(bytes) - 1) / 11),
  /** Any write of one item; deletes are charged like writes of what they delete. */
  write: (bytes: number): number => rounded(5.29 + (kilobytes(bytes) - 1) * 0.48),
  /** A page of a query: for starting it, for the documents looked at, for the bytes given back. */
  query: (examined: number, bytes: number): number => rounded(2.25 + examined * 0.05 + (kilobytes(bytes) - 1) * 0.35),
  /** Databases, containers and everything else that is not in a container. */
  metadata: 1,
  /** Whatever ended in an error. */
  refused: 1,
} as const;
