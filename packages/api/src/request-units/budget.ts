/** Seconds of its rate that a budget can hold unspent for users, and as many again for the purge. */
const HELD_SECONDS = 1;
/** The queue of refused operations holds at most this many seconds of the rate. */
const MOST_QUEUED_SECONDS = 5;
/** The average cost is mostly that of this many latest operations. */
const LATEST_OPERATIONS = 16;

/**
 * The request units of one provisioned container or database: a bucket that fills at the provisioned rate, and a second
 * bucket for what users leave over, from which only the purge takes. An operation may run while the balance is positive,
 * and is charged afterwards. So the balance may become negative, and must then be positive again before the next one.
 *
 * Uses the monotonic clock, so that a manual clock that stands still refuses nobody, and a clock that jumps grants nothing.
 */
export class Budget {
  #rate: number;
  #balance: number;
  #leftOver = 0;
  /** Expected cost of the operations that were refused lately and will be sent again. */
  #queued = 0;
  /** Average cost of the latest operations; undefined before the first. */
  #typical: number | undefined;
  #filledAtMs: number;

  constructor(requestUnitsPerSecond: number, nowMs: number) {
    this.#rate = requestUnitsPerSecond;
    this.#balance = requestUnitsPerSecond * HELD_SECONDS;
    this.#filledAtMs = nowMs;
  }

  /** Changes the rate from now on. */
  provision(requestUnitsPerSecond: number, nowMs: number): void {
    if (requestUnitsPerSecond === this.#rate) return;
    this.#fill(nowMs);
    this.#rate = requestUnitsPerSecond;
    const most = requestUnitsPerSecond * HELD_SECONDS;
    this.#balance = Math.min(this.#balance, most);
    this.#leftOver = Math.min(this.#leftOver, most);
    this.#queued = Math.min(this.#queued, requestUnitsPerSecond * MOST_QUEUED_SECONDS);
  }

  /**
   * Milliseconds until a user's operation may run; 0 if it may run now. A refused operation waits until after those that were refused
   * before it. If all had the same waiting time, they would return together and all but one would be refused again. The queue is estimated
   * from the average cost of the latest operations: if the estimate were too low, all of them would return too early.
   *
   * @param expected the operation's cost while no other operation's cost is known
   */
  waitMs(nowMs: number, expected = 0): number {
    this.#fill(nowMs);
    if (this.#balance > 0) return 0;
    // A balance of exactly zero is not positive either, and is after a millisecond.
    const waitMs = Math.max(1, Math.ceil(((this.#queued - this.#balance) * 1000) / this.#rate));
    this.#queued = Math.min(this.#queued + (this.#typical ?? expected), this.#rate * MOST_QUEUED_SECONDS);
    return waitMs;
  }

  spend(requestUnits: number): void {
    this.#balance -= requestUnits;
  }

  /** Charges the cost of a finished operation, less the part that was set aside at its start. */
  settle(requestUnits: number, spentAhead: number): void {
    this.spend(requestUnits - spentAhead);
    this.#typical ??= requestUnits;
    this.#typical += (requestUnits - this.#typical) / LATEST_OPERATIONS;
  }

  /** The request units that users may spend at once; negative if more was spent than there was. */
  balance(nowMs: number): number {
    this.#fill(nowMs);
    return this.#balance;
  }

  /** The request units that users did not spend in the last second, less those that the purge has spent of them. */
  leftOver(nowMs: number): number {
    this.#fill(nowMs);
    return this.#leftOver;
  }

  spendLeftOver(requestUnits: number): void {
    this.#leftOver -= requestUnits;
  }

  #fill(nowMs: number): void {
    const elapsedMs = nowMs - this.#filledAtMs;
    if (elapsedMs <= 0) return;
    this.#filledAtMs = nowMs;
    const most = this.#rate * HELD_SECONDS;
    const brought = (elapsedMs * this.#rate) / 1000;
    const balance = this.#balance + brought;
    // A negative balance is filled first. Only the rest shortens the queue.
    this.#queued = Math.max(0, this.#queued - Math.max(0, Math.min(brought, balance)));
    this.#balance = Math.min(balance, most);
    // Only what exceeds the users' bucket is left over.
    this.#leftOver = Math.min(this.#leftOver + Math.max(0, balance - most), most);
  }
}
