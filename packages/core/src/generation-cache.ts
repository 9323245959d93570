/**
 * A bounded cache in two generations: what is used stays in the young one, and when that is full the old one is
 * dropped whole. Evicting the oldest entry of a Map one by one costs tens of microseconds each once the Map is
 * large, because it walks over the slots of those deleted before.
 */
export class GenerationCache<Key, Value> {
  readonly #limit: number;
  readonly #weigh: (value: Value) => number;
  #young = new Map<Key, Value>();
  #old = new Map<Key, Value>();
  #youngWeight = 0;

  /** @param limit how much both generations may weigh together; each entry weighs 1 unless `weigh` says otherwise */
  constructor(limit: number, weigh: (value: Value) => number = () => 1) {
    this.#limit = limit;
    this.#weigh = weigh;
  }

  get(key: Key): Value | undefined {
    const young = this.#young.get(key);
    if (young !== undefined) return young;
    const old = this.#old.get(key);
    if (old !== undefined) {
      this.#old.delete(key);
      this.set(key, old);
    }
    return old;
  }

  set(key: Key, value: Value): void {
    const before = this.#young.get(key);
    if (before !== undefined) this.#youngWeight -= this.#weigh(before);
    this.#young.set(key, value);
    this.#youngWeight += this.#weigh(value);
    this.#old.delete(key);
    if (this.#youngWeight > this.#limit / 2) {
      this.#old = this.#young;
      this.#young = new Map();
      this.#youngWeight = 0;
    }
  }

  delete(key: Key): void {
    const young = this.#young.get(key);
    if (young !== undefined) {
      this.#young.delete(key);
      this.#youngWeight -= this.#weigh(young);
    }
    this.#old.delete(key);
  }

  clear(): void {
    this.#young.clear();
    this.#old.clear();
    this.#youngWeight = 0;
  }
}
