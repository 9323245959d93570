import { getHeapStatistics } from 'node:v8';

/** Bytes that the heap of this process may have. */
const heapBytes = getHeapStatistics().heap_size_limit;

/** Bytes of heap that leave room to work beside all caches of a store. */
const AMPLE_BYTES = 1.25 * 1024 * 1024 * 1024;

/** What a cache may hold in the heap that there is, of what it may where there is enough. */
export const inThisHeap = (most: number): number =>
  Math.max(1, Math.floor(Math.min(1, heapBytes / AMPLE_BYTES) * most));

/** What of it is set aside for what is young; the rest is for what stays. */
const YOUNG_BYTES = 192 * 1024 * 1024;

/** Bytes that one query may hold, of which two may do so at once. */
export const MOST_QUERY_BYTES = Math.min(1024 * 1024 * 1024, Math.max(heapBytes - YOUNG_BYTES, heapBytes / 4) / 5);
