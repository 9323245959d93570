import { getHeapStatistics } from 'node:v8';

/** Bytes that the heap of this process may have. */
const heapBytes = getHeapStatistics().heap_size_limit;

/** Bytes of heap that leave room to work beside all caches of a store. */
const AMPLE_BYTES = 1.25 * 1024 * 1024 * 1024;

/** What a cache may hold in the heap that there is, of what it may where there is enough. */
export const inThisHeap = (most: number): number =>
  Math.max(1, Math.floor(Math.min(1, heapBytes / AMPLE_BYTES) * most));

/** Rows that one query may hold, if they are no larger than documents of a few kilobytes when parsed. */
export const MAX_BUFFERED_ROWS = Math.min(1_000_000, Math.floor(heapBytes / 6144));
