/** The count of one second, with the time of the first event in it. */
interface Counted {
  readonly atMs: number;
  count: number;
}

const WINDOW_MS = 60_000;
const SLICE_MS = 1_000;

/** The average number of events per second over the last minute. Keeps one count for each second of that minute, and no more. */
export class RecentRate {
  readonly #monotonicMs: () => number;
  readonly #counted: Counted[] = [];

  constructor(monotonicMs: () => number) {
    this.#monotonicMs = monotonicMs;
  }

  /** How many counts it keeps. */
  get size(): number {
    return this.#counted.length;
  }

  add(count: number): void {
    if (count === 0) return;
    const atMs = this.#monotonicMs();
    const last = this.#counted.at(-1);
    if (last !== undefined && atMs - last.atMs < SLICE_MS) last.count += count;
    else this.#counted.push({ atMs, count });
    this.#forget(atMs);
  }

  get perSecond(): number {
    const nowMs = this.#monotonicMs();
    this.#forget(nowMs);
    const [first] = this.#counted;
    if (first === undefined) return 0;
    const spanMs = Math.max(SLICE_MS, nowMs - first.atMs);
    return (this.#counted.reduce((sum, { count }) => sum + count, 0) * 1000) / spanMs;
  }

  #forget(nowMs: number): void {
    const kept = this.#counted.findIndex(({ atMs }) => atMs >= nowMs - WINDOW_MS);
    this.#counted.splice(0, kept === -1 ? this.#counted.length : kept);
  }
}
