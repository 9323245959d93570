/**
 * A bounded cache in two generations. Entries in use stay in the young one; when that is full, the old one is dropped
 * as a whole. Evicting the oldest entries of a Map one by one costs tens of microseconds each once the Map is large,
 * because the Map walks over the slots of all entries deleted before.
 *
 * An entry of the young generation hides an entry of the old one under the same key. The hidden entry is not removed,
 * because that would cost each write another look-up, and it is dropped with its generation anyway.
 */
export class GenerationCache<Key, Value> {
  readonly #limit: number;
  readonly #weigh: ((value: Value) => number) | undefined;
  #young = new Map<Key, Value>();
  #old = new Map<Key, Value>();
  /** Weight of the young generation, if entries are weighed. */
  #weight = 0;

  /** @param limit how much both generations may weigh together; each entry weighs 1 unless `weigh` says otherwise */
  constructor(limit: number, weigh?: (value: Value) => number) {
    this.#limit = limit;
    this.#weigh = weigh;
  }

  get(key: Key): Value | undefined {
    const young = this.#young.get(key);
    if (young !== undefined) return young;
    const old = this.#old.get(key);
    if (old !== undefined) this.set(key, old);
    return old;
  }

  set(key: Key, value: Value): void {
    if (this.#weigh !== undefined) this.#weight += this.#weigh(value) - this.#weightOf(this.#young.get(key));
    this.#young.set(key, value);
    const youngWeight = this.#weigh === undefined ? this.#young.size : this.#weight;
    if (youngWeight > this.#limit / 2) {
      this.#old = this.#young;
      this.#young = new Map();
      this.#weight = 0;
    }
  }

  delete(key: Key): void {
    if (this.#weigh !== undefined) this.#weight -= this.#weightOf(this.#young.get(key));
    this.#young.delete(key);
    this.#old.delete(key);
  }

  clear(): void {
    this.#young.clear();
    this.#old.clear();
    this.#weight = 0;
  }

  #weightOf(value: Value | undefined): number {
    return value === undefined ? 0 : this.#weigh!(value);
  }
}
