import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { countIndexedPaths } from './indexed-paths.ts';

/**
 * What an operation costs in request units: a model of the published figures (a point read of 1 KB costs 1, a write
 * of 1 KB about 5.3, 100 KB ten times as much), not the service's own formula. It is documented in
 * docs/request-units.md; a test keeps the two equal.
 */
const kilobytes = (bytes: number): number => Math.max(1, Math.ceil(bytes / 1024));

/** Request units as they are reported: rounded to a hundredth. */
export const rounded = (units: number): number => Math.round(units * 100) / 100;

/** Units of work on documents in a request unit. A million units of work take some milliseconds. */
const WORK_PER_UNIT = 50_000;
/** Units of work for parsing a query's text, beyond the usual length. */
export const workOfText = (sql: string): number => 20 * Math.max(0, sql.length - 4096);
/** Half a request unit for each millisecond, as for scripts. */
export const workOfFunctions = (workedMs: number): number => 0.5 * WORK_PER_UNIT * workedMs;
const ofWork = (extraWork: number): number => extraWork / WORK_PER_UNIT;

/** What a query costs for the documents that it examines, even if it fails. */
const ofDocuments = (examined: number): number => examined * 0.05;

export const charge = {
  /** A read that found its item: 1 for the first kilobyte, and a unit for each 11 more. */
  pointRead: (bytes: number): number => rounded(1 + (kilobytes(bytes) - 1) / 11),
  /** A create, upsert, replace or patch: by the size of the stored document, and by its indexed paths. */
  write: (bytes: number, indexedPaths: number): number =>
    rounded(5.09 + (kilobytes(bytes) - 1) * 0.45 + indexedPaths * 0.1),
  /** A delete, by a client or by TTL: by the size of the document. */
  delete: (bytes: number): number => rounded(5.29 + (kilobytes(bytes) - 1) * 0.45),
  /**
   * A page of a query: for its start, for the documents that it examines, for the bytes that it returns, and for its work
   * on documents beyond what every document needs.
   */
  query: (examined: number, bytes: number, extraWork = 0): number =>
    rounded(2.25 + ofDocuments(examined) + (kilobytes(bytes) - 1) * 0.35 + ofWork(extraWork)),
  /** A page of the change feed: similar to reading its items. */
  changeFeed: (items: number, bytes: number): number => rounded(1 + items * 0.05 + (kilobytes(bytes) - 1) / 11),
  /** A run of a script, without its operations: by the milliseconds that it works. */
  script: (workedMs: number): number => rounded(1 + workedMs * 0.5),
  /** Databases, containers and everything else that is not in a container; taken from no budget. */
  metadata: 1,
  /** A read that ended in an error or found nothing new. */
  refusedRead: 1,
  /** A query that ended in an error, after it had examined this many documents and done this much extra work on them. */
  refusedQuery: (examined: number, extraWork: number): number => rounded(1 + ofDocuments(examined) + ofWork(extraWork)),
  /** The work of a query after its last answer. */
  restOfQuery: (examined: number, extraWork: number): number => rounded(ofDocuments(examined) + ofWork(extraWork)),
  /** A write that was refused, after the item was read. */
  refusedWrite: 1.24,
  /** An operation that was refused with 429 before anything was done; taken from no budget. */
  throttled: 0.38,
} as const;

/** The cost of a write that stored this document (JSON text) in a container of this definition. */
export function chargeOfWrite(
  definition: ContainerDefinition,
  json: string,
  document: Readonly<Record<string, unknown>> = JSON.parse(json) as Readonly<Record<string, unknown>>,
): number {
  return charge.write(Buffer.byteLength(json), countIndexedPaths(definition, document));
}
