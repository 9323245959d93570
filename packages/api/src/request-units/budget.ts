/** Seconds of its rate that a budget can hold unspent for users, and as many again for the purge. */
const HELD_SECONDS = 1;

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
  }

  /** Milliseconds until a user's operation may run; 0 for now. */
  waitMs(nowMs: number): number {
    this.#fill(nowMs);
    // Exactly nothing is not positive either: a millisecond brings something.
    return this.#balance > 0 ? 0 : Math.max(1, Math.ceil((-this.#balance * 1000) / this.#rate));
  }

  spend(requestUnits: number): void {
    this.#balance -= requestUnits;
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
    const balance = this.#balance + (elapsedMs * this.#rate) / 1000;
    this.#balance = Math.min(balance, most);
    // Only what overflows was left over by everybody.
    this.#leftOver = Math.min(this.#leftOver + Math.max(0, balance - most), most);
  }
}
