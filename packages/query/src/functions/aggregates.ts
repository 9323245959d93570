import { bytesOf, type Memory, textBytes } from '../values/memory.ts';
import { compareValues, finite, numberOf, stableKey } from '../values/values.ts';
import type { Json, Value } from '../values/values.ts';

/** The state of one aggregate over the rows of one group. */
export interface Accumulator {
  add(value: Value): void;
  result(): Value;
}

export type AggregateName = 'COUNT' | 'COUNTIF' | 'SUM' | 'AVG' | 'MIN' | 'MAX' | 'MAKELIST' | 'MAKESET';

/** The names of aggregates in query plans. */
export const aggregateTypes: Readonly<Record<AggregateName, string>> = {
  COUNT: 'Count',
  COUNTIF: 'CountIf',
  SUM: 'Sum',
  AVG: 'Average',
  MIN: 'Min',
  MAX: 'Max',
  MAKELIST: 'MakeList',
  MAKESET: 'MakeSet',
};

export function isAggregate(name: string): name is AggregateName {
  return Object.hasOwn(aggregateTypes, name);
}

class Count implements Accumulator {
  readonly #counts: (value: Value) => boolean;
  #count = 0;

  constructor(counts: (value: Value) => boolean) {
    this.#counts = counts;
  }

  add(value: Value): void {
    if (this.#counts(value)) this.#count += 1;
  }

  result(): Value {
    return this.#count;
  }
}

/**
 * SUM and AVG: undefined values are skipped, and any other value that is not a number makes the result undefined. Without values the sum is
 * 0, and the average is undefined.
 */
class Sum implements Accumulator {
  readonly #average: boolean;
  #sum = 0;
  #count = 0;
  #spoilt = false;

  constructor(average: boolean) {
    this.#average = average;
  }

  add(value: Value): void {
    if (value === undefined) return;
    const number = numberOf(value);
    if (number === undefined) {
      this.#spoilt = true;
      return;
    }
    this.#sum += number;
    this.#count += 1;
  }

  result(): Value {
    if (this.#spoilt || (this.#average && this.#count === 0)) return undefined;
    return finite(this.#average ? this.#sum / this.#count : this.#sum);
  }
}

/** MIN and MAX, by the order of ORDER BY. An array or an object makes the result undefined. */
class Extreme implements Accumulator {
  readonly #sign: 1 | -1;
  readonly #memory: Memory;
  #best: Value = undefined;
  #bestBytes = 0;
  #spoilt = false;

  constructor(sign: 1 | -1, memory: Memory) {
    this.#sign = sign;
    this.#memory = memory;
  }

  add(value: Value): void {
    if (value === undefined) return;
    if (typeof value === 'object' && value !== null) {
      this.#spoilt = true;
    } else if (this.#best === undefined || compareValues(value, this.#best) * this.#sign < 0) {
      this.#memory.release(this.#bestBytes);
      this.#bestBytes = typeof value === 'string' ? this.#memory.hold(textBytes(value)) : 0;
      this.#best = value;
    }
  }

  result(): Value {
    return this.#spoilt ? undefined : this.#best;
  }
}

class List implements Accumulator {
  readonly #values: Json[] = [];
  readonly #seen: Set<string> | undefined;
  readonly #memory: Memory;

  constructor(distinct: boolean, memory: Memory) {
    this.#seen = distinct ? new Set() : undefined;
    this.#memory = memory;
  }

  add(value: Value): void {
    if (value === undefined) return;
    if (this.#seen !== undefined) {
      const key = stableKey(value);
      if (this.#seen.has(key)) return;
      this.#memory.hold(textBytes(key));
      this.#seen.add(key);
    }
    this.#memory.hold(bytesOf(value));
    this.#values.push(value);
  }

  result(): Value {
    return this.#values;
  }
}

/** Makes an accumulator, which counts the values that it keeps in the given memory. */
export function createAccumulator(name: AggregateName, memory: Memory): Accumulator {
  switch (name) {
    case 'COUNT':
      return new Count((value) => value !== undefined);
    case 'COUNTIF':
      return new Count((value) => value === true);
    case 'SUM':
      return new Sum(false);
    case 'AVG':
      return new Sum(true);
    case 'MIN':
      return new Extreme(1, memory);
    case 'MAX':
      return new Extreme(-1, memory);
    case 'MAKELIST':
      return new List(false, memory);
    case 'MAKESET':
      return new List(true, memory);
  }
}
