import { jsonText } from '../values/json-text.ts';
import { stableKey, type Value } from '../values/values.ts';
import type { OrderStep } from './program.ts';
import { compareKeys, isLastFirst } from './sorter.ts';

/** What a compiled query is ordered by. */
interface Ordering {
  readonly orderBy: readonly OrderStep[];
}

/** Where a row stands in an ordered answer: by its ORDER BY values, and among equal ones by what it comes from. */
export interface OrderedPlace {
  /** Behind those of ORDER BY, of rows that are of no one document: its place among others of the same. */
  readonly keys: readonly Value[];
  /** The document's number in the order in which documents are offered. */
  readonly document?: number | undefined;
  /** Which of the rows of the document it is, counted before any are left out. */
  readonly inside?: number | undefined;
}

/** Where an ordered answer begins: at a place, or after it. */
export interface OrderedStart extends OrderedPlace {
  /** Leading ones alone where they say as much as can be told; all rows that begin with them stand at this place. */
  readonly keys: readonly Value[];
  /** Undefined: all documents with these values stand at this place. */
  readonly document?: number | undefined;
  /** Undefined: all rows of the document stand at this place. */
  readonly inside?: number | undefined;
  /** Leave out what stands at the place itself. */
  readonly exclude: boolean;
  /** Tells the place exactly where the values could not. */
  readonly near?: Neighbours | undefined;
}

/** Digests of the rows on both sides of a place, the nearest first. As long as one of them is there, so is the place. */
export interface Neighbours {
  readonly before: readonly string[];
  readonly after: readonly string[];
}

/** Rows on either side of a place at most that tell it. */
export const MAX_NEIGHBOURS = 5;

/** Bytes of JSON that the values of a place have at most. */
const MAX_KEY_BYTES = 500;
/** Of those before a text that is cut, and characters of what is left of it. */
const MAX_LEADING_BYTES = 150;
const MAX_CUT_CHARACTERS = 40;
/** Bytes of values that stand for themselves among others. */
const MAX_OWN_BYTES = 200;
const NEIGHBOUR_CHARACTERS = 16;

/**
 * Where values that are all different stand among each other: in the order of the values, or, behind those, of digests of
 * them where they are long. So a place is always short enough to be told, and says exactly which of them come after.
 */
export function placeAmongOthers(values: readonly Value[]): Value[] {
  const text = values.map(stableKey).join(',');
  return hasAtMost(text, MAX_OWN_BYTES) ? [false, ...values] : [true, digestOf(text)];
}

/** Whether a row stands where an answer begins, or after it. */
export function isFromStart(order: Ordering, start: OrderedStart, { keys, document, inside }: OrderedPlace): boolean {
  const difference = compareKeys(keys, start.keys, order.orderBy);
  if (difference !== 0) return difference > 0;
  if (start.document === undefined || document === undefined) return !start.exclude;
  const sign = isLastFirst(order) ? -1 : 1;
  const further = (document - start.document) * sign;
  if (further !== 0 || start.inside === undefined || inside === undefined) {
    return start.exclude ? further > 0 : further >= 0;
  }
  const furtherInside = (inside - start.inside) * sign;
  return start.exclude ? furtherInside > 0 : furtherInside >= 0;
}

/** Index of the first of some rows, which are in order, that stands where an answer begins. Pauses: values may be large. */
export function* startAmong(
  order: Ordering,
  start: OrderedStart,
  rows: readonly OrderedPlace[],
): Generator<void, number, undefined> {
  if (start.near !== undefined) {
    const at = new Map<string, number>();
    for (const [index, row] of rows.entries()) {
      at.set(neighbour(row), index);
      yield;
    }
    const before = start.near.before.map((one) => at.get(one)).find((index) => index !== undefined);
    if (before !== undefined) return before + 1;
    const after = start.near.after.map((one) => at.get(one)).find((index) => index !== undefined);
    if (after !== undefined) return after;
  }
  const first = rows.findIndex((row) => isFromStart(order, start, row));
  return first === -1 ? rows.length : first;
}

/**
 * What has to be told to go on after a row: its place, or, where the values of that are long, what they begin with and the
 * rows around it. Pauses between these.
 *
 * @param given rows in order, of which it is the last
 * @param next rows that come after it
 */
export function* startAfter(
  { orderBy }: Ordering,
  given: readonly OrderedPlace[],
  next: readonly OrderedPlace[],
): Generator<void, OrderedStart, undefined> {
  const { keys, document, inside } = given.at(-1)!;
  if (hasAtMost(jsonText(keys), MAX_KEY_BYTES)) return { keys, document, inside, exclude: true };
  const before = yield* neighbours(given.slice(-MAX_NEIGHBOURS).toReversed());
  const after = yield* neighbours(next.slice(0, MAX_NEIGHBOURS));
  return { ...beginningOf(keys, orderBy), near: { before, after } };
}

function* neighbours(rows: readonly OrderedPlace[]): Generator<void, string[], undefined> {
  const digests: string[] = [];
  for (const row of rows) {
    yield;
    digests.push(neighbour(row));
  }
  return digests;
}

/** Where the rows begin that a few leading values, and the beginning of the next, don't tell apart. */
function beginningOf(keys: readonly Value[], steps: readonly OrderStep[]): Pick<OrderedStart, 'keys' | 'exclude'> {
  let length = 0;
  while (hasAtMost(jsonText(keys.slice(0, length + 1)), MAX_LEADING_BYTES)) length += 1;
  const leading = keys.slice(0, length);
  const next = keys[length];
  if (typeof next !== 'string') return { keys: leading, exclude: false };
  const cut = next.slice(0, MAX_CUT_CHARACTERS);
  if (steps[length]?.descending !== true) return { keys: [...leading, cut], exclude: false };
  // Downwards they begin behind the first text that is greater than all that begin so.
  const last = cut.charCodeAt(cut.length - 1);
  return last === 0xff_ff
    ? { keys: leading, exclude: false }
    : { keys: [...leading, cut.slice(0, -1) + String.fromCharCode(last + 1)], exclude: true };
}

const neighbour = ({ keys, document, inside }: OrderedPlace): string =>
  digestOf([document, inside, ...keys.map(stableKey)].join()).slice(0, NEIGHBOUR_CHARACTERS);

const utf8 = new TextEncoder();
const hasAtMost = (text: string, bytes: number): boolean => text.length <= bytes && utf8.encode(text).length <= bytes;

const SEEDS = [0x24_3f_6a_88, 0x85_a3_08_d3, 0x13_19_8a_2e, 0x03_70_73_44];
const FACTORS = [0x9e_37_79_b1, 0x85_eb_ca_77, 0xc2_b2_ae_3d, 0x27_d4_eb_2f];

/**
 * 128 bits of a text, in hexadecimal. Nothing is kept from anybody by it: who makes up two texts of the same digest loses
 * rows of a query of their own.
 */
function digestOf(text: string): string {
  return SEEDS.map((seed, lane) => {
    const factor = FACTORS[lane]!;
    let state = seed;
    for (let index = 0; index < text.length; index += 1) {
      state = Math.imul(state ^ text.charCodeAt(index), factor);
      state ^= state >>> 15;
    }
    return (Math.imul(state, factor) >>> 0).toString(16).padStart(8, '0');
  }).join('');
}
