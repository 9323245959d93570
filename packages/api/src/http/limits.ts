import { MAX_DOCUMENT_BYTES, MAX_DOCUMENT_DEPTH } from '../store/document-limits.ts';
import { inThisHeap } from '../store/heap.ts';

/** Limits that keep one request from harming the others. Sizes in bytes, times in milliseconds. */
export interface Limits {
  /** A document as JSON text. */
  readonly itemBytes: number;
  /** Any request body. Larger than a document, so that a document that is too large gets an answer that says so. */
  readonly bodyBytes: number;
  /** From this size on, or when a request does not give its size, a body counts as large. */
  readonly largeBodyBytes: number;
  /** Bytes of large bodies that may be under way at once. Only bytes that have arrived count. */
  readonly largeBodyBytesInFlight: number;
  /** Requests that may be worked on at once. */
  readonly requestsInFlight: number;
  readonly connections: number;
  /** Requests that a client may send on one connection without waiting for the answer to an earlier one. */
  readonly pipelinedRequests: number;
  /** Pages of feeds and queries that may be worked on at once. Each may hold some of the largest documents. */
  readonly pagesInFlight: number;
  /** Bytes of all answers together that clients have not read yet. */
  readonly unsentBytes: number;
  /** How long a client may read nothing of an answer. */
  readonly unsentTimeoutMs: number;
  /** All headers of a request together with its target. */
  readonly headerBytes: number;
  readonly targetCharacters: number;
  /** How deep arrays and objects may nest. */
  readonly jsonDepth: number;
  readonly queryCharacters: number;
  /** The most rows of a page, and their number when the client leaves it to the server. */
  readonly pageItems: number;
  readonly defaultPageItems: number;
  /**
   * How long a script may run, including what it waits for. Source: Cosmos DB, "Service quotas" (5 seconds for a stored
   * procedure).
   */
  readonly scriptMs: number;
  /** From the first byte of a request to the last byte of its body. */
  readonly requestTimeoutMs: number;
  /**
   * How long a connection may be idle. Longer than clients keep one, so that the clients close it: a request on a
   * connection that is being closed fails, and clients do not repeat a write that may have been done.
   *
   * @source 90 s in Go (`IdleConnTimeout` of `http.DefaultTransport`) and Rust (`pool_idle_timeout` of reqwest), two
   *   minutes in .NET before 6 (`PooledConnectionIdleTimeout`), less elsewhere
   */
  readonly keepAliveTimeoutMs: number;
  /** How long a connection must have been without a request before it is closed to make room for others. */
  readonly leftBehindMs: number;
}

export const defaultLimits: Limits = {
  itemBytes: MAX_DOCUMENT_BYTES,
  bodyBytes: 4 * 1024 * 1024,
  largeBodyBytes: 64 * 1024,
  largeBodyBytesInFlight: 256 * 1024 * 1024,
  requestsInFlight: 1000,
  connections: 10_000,
  pipelinedRequests: 16,
  pagesInFlight: inThisHeap(64),
  unsentBytes: 256 * 1024 * 1024,
  unsentTimeoutMs: 30_000,
  headerBytes: 32 * 1024,
  targetCharacters: 16 * 1024,
  jsonDepth: MAX_DOCUMENT_DEPTH,
  queryCharacters: 256 * 1024,
  pageItems: 10_000,
  defaultPageItems: 1000,
  scriptMs: 5_000,
  requestTimeoutMs: 30_000,
  keepAliveTimeoutMs: 130_000,
  leftBehindMs: 10_000,
};

/** Files that the store has open itself, and some more that it may open. */
export const OWN_FILES = 100;

/**
 * The most connections when `openFiles` files may be open. There is always one, because otherwise no request could be
 * answered.
 */
export function connectionsBeside(openFiles: number): number {
  return Math.max(1, Math.min(defaultLimits.connections, openFiles - OWN_FILES));
}

/** Seconds after which a client that was refused because of overload should come again. */
export const RETRY_AFTER_SECONDS = 1;
