import { getHeapStatistics } from 'node:v8';

/** The heap limit of this process, in bytes. */
const heapBytes = getHeapStatistics().heap_size_limit;

/** Bytes of heap that leave room to work beside all full caches of a store. */
const AMPLE_BYTES = 1.25 * 1024 * 1024 * 1024;

/** The limit of a cache in this process's heap, given its limit in an ample heap. */
export const inThisHeap = (most: number): number =>
  Math.max(1, Math.floor(Math.min(1, heapBytes / AMPLE_BYTES) * most));

/** The part of the heap for young objects; the rest is for those that stay. */
const YOUNG_BYTES = 192 * 1024 * 1024;

/** Bytes that one query may hold in memory. Two queries may do so at once. */
export const MOST_QUERY_BYTES = Math.min(1024 * 1024 * 1024, Math.max(heapBytes - YOUNG_BYTES, heapBytes / 4) / 5);
