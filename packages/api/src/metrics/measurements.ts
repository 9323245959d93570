/** Upper bounds of a histogram's buckets, in seconds. One more bucket takes everything longer. */
export const BUCKET_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10] as const;
const BUCKET_MS = BUCKET_SECONDS.map((seconds) => seconds * 1000);

/** Counts durations in buckets with fixed bounds. A measurement costs a few comparisons and additions, and no memory. */
export class Histogram {
  readonly #counts = new Float64Array(BUCKET_MS.length + 1);
  #sumMs = 0;

  observe(milliseconds: number): void {
    let bucket = 0;
    while (bucket < BUCKET_MS.length && milliseconds > BUCKET_MS[bucket]!) bucket += 1;
    this.#counts[bucket]! += 1;
    this.#sumMs += milliseconds;
  }

  get sumSeconds(): number {
    return this.#sumMs / 1000;
  }

  /** For each bound, the number of durations up to it; the last element is the number of all. */
  cumulative(): number[] {
    let sum = 0;
    return Array.from(this.#counts, (count) => (sum += count));
  }
}

/** Kinds of item operations whose durations are measured separately. */
export const operationKinds = [
  'read',
  'create',
  'upsert',
  'replace',
  'patch',
  'delete',
  'batch',
  'list',
  'query',
  'change-feed',
  'explain',
] as const;
export type OperationKind = (typeof operationKinds)[number];

export type Plane = 'data' | 'management';

/** Classes of answers. 429 is separate from the other refusals, because clients wait and retry after it. */
export type StatusClass = '2xx' | '3xx' | '4xx' | '429' | '5xx';

/** Measurements since the start of the process. Times are in milliseconds. */
export class Measurements {
  readonly operations = Object.fromEntries(operationKinds.map((kind) => [kind, new Histogram()])) as Readonly<
    Record<OperationKind, Histogram>
  >;
  readonly appends = new Histogram();
  appendConflicts = 0;
  appendFaults = 0;
  readonly applies = new Histogram();
  projectedEvents = 0;
  readonly purgeSteps: Readonly<Record<'record' | 'erase', Histogram>> = {
    record: new Histogram(),
    erase: new Histogram(),
  };
  /** Faults that the purge met in its work. */
  purgeFaults = 0;
  /** Documents that were found decoded in memory, and documents that were not. */
  documentHits = 0;
  documentMisses = 0;
  readonly #requests = new Map<string, number>();

  /** @param operation one of a fixed set, since each value is kept for as long as the process runs */
  countRequest(plane: Plane, operation: string, status: number): void {
    const key = `${plane} ${statusClass(status)} ${operation}`;
    this.#requests.set(key, (this.#requests.get(key) ?? 0) + 1);
  }

  requests(): {
    readonly plane: string;
    readonly status: string;
    readonly operation: string;
    readonly count: number;
  }[] {
    return Array.from(this.#requests, ([key, count]) => {
      const [plane, status, ...operation] = key.split(' ') as [string, string, ...string[]];
      return { plane, status, operation: operation.join(' '), count };
    });
  }
}

function statusClass(status: number): StatusClass {
  if (status === 429) return '429';
  return status < 300 ? '2xx' : status < 400 ? '3xx' : status < 500 ? '4xx' : '5xx';
}
