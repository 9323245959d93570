/** Seconds of its rate that a budget can hold unspent for users, and as many again for the purge. */
const HELD_SECONDS = 1;
/** Seconds of its rate that refused operations are asked to wait for one another at most. */
const MOST_QUEUED_SECONDS = 5;
/** Operations that the average of what they cost mostly goes by. */
const LATEST_OPERATIONS = 16;

/**
 * The request units of one provisioned container or database: a bucket that fills by the rate, second by second, and
 * beside it one for what users left over, which only the purge takes from. An operation runs while the balance is
 * positive and is charged afterwards, so the balance may go below zero once and has to be worked off first.
 *
 * Works on the monotonic clock: a manual clock that stands still starves nobody, and a jump grants nothing.
 */
export class Budget {
  #rate: number;
  #balance: number;
  #leftOver = 0;
  /** What those will spend that were refused lately and will come again. */
  #queued = 0;
  /** What the latest operations cost on average; unknown before the first. */
  #typical: number | undefined;
  #filledAtMs: number;

  constructor(requestUnitsPerSecond: number, nowMs: number) {
    this.#rate = requestUnitsPerSecond;
    this.#balance = requestUnitsPerSecond * HELD_SECONDS;
    this.#filledAtMs = nowMs;
  }

  /** Brings the budget to another rate, from now on. */
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
   * Milliseconds until a user's operation may run; 0 for now. Each that is refused is sent behind those that were refused
   * before it: told the same time, all would come at once, and all but one in vain. By what the latest operations have
   * cost: told too little of those before them, all that wait would come too early, and be sent to the end again.
   *
   * @param expected request units that it is taken to cost while nothing is known of others
   */
  waitMs(nowMs: number, expected = 0): number {
    this.#fill(nowMs);
    if (this.#balance > 0) return 0;
    // Exactly nothing is not positive either: a millisecond brings something.
    const waitMs = Math.max(1, Math.ceil(((this.#queued - this.#balance) * 1000) / this.#rate));
    this.#queued = Math.min(this.#queued + (this.#typical ?? expected), this.#rate * MOST_QUEUED_SECONDS);
    return waitMs;
  }

  spend(requestUnits: number): void {
    this.#balance -= requestUnits;
  }

  /** Spends what an operation has cost that is done, less what was spent ahead for it. */
  settle(requestUnits: number, spentAhead: number): void {
    this.spend(requestUnits - spentAhead);
    this.#typical ??= requestUnits;
    this.#typical += (requestUnits - this.#typical) / LATEST_OPERATIONS;
  }

  /** What users may spend at once; below zero for what was spent ahead. */
  balance(nowMs: number): number {
    this.#fill(nowMs);
    return this.#balance;
  }

  /** What users left over of the last second, less what the purge took of it. */
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
    // First what was spent ahead is worked off, then the time of those that wait comes.
    this.#queued = Math.max(0, this.#queued - Math.max(0, Math.min(brought, balance)));
    this.#balance = Math.min(balance, most);
    // Only what overflows was left over by everybody.
    this.#leftOver = Math.min(this.#leftOver + Math.max(0, balance - most), most);
  }
}
