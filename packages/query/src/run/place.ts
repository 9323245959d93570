import { jsonText } from '../values/json-text.ts';
import { type Json, stableKey, type Value } from '../values/values.ts';
import type { OrderStep } from './program.ts';
import { compareKeys, isLastFirst } from './sorter.ts';

/** The order of a compiled query. */
interface Ordering {
  readonly orderBy: readonly OrderStep[];
}

/** The place of a row in an ordered answer: by its ORDER BY values, and among equal ones by the document that it comes from. */
export interface OrderedPlace {
  /** The values of ORDER BY. If the row does not come from a single document, followed by its place among rows with the same values. */
  readonly keys: readonly Value[];
  /** The document's number in the order in which documents are offered. */
  readonly document?: number | undefined;
  /** The index of the row among all rows of the document, before any are left out. */
  readonly inside?: number | undefined;
}

/** The place of a row, as far as its document decides it. */
export interface RowPlace {
  /** As in {@link OrderedPlace}; for a row that belongs to a group, its {@link rowValues}. */
  readonly keys: readonly Value[];
  readonly inside: number;
  /** The row itself, if equal rows count as one. */
  readonly row?: Json;
}

/** The start of an ordered answer: at a place, or after it. */
export interface OrderedStart extends OrderedPlace {
  /** The keys, or only the leading ones if the rest would be too long. Then all rows that begin with them are at this place. */
  readonly keys: readonly Value[];
  /** If undefined, all documents with these values are at this place. */
  readonly document?: number | undefined;
  /** If undefined, all rows of the document are at this place. */
  readonly inside?: number | undefined;
  /** Whether to leave out the rows at the place itself. */
  readonly exclude: boolean;
  /** Determines the place exactly if the keys don't. */
  readonly near?: Neighbours | undefined;
}

/** Digests of the rows on both sides of a place, the nearest first. The place is found as long as one of these rows exists. */
export interface Neighbours {
  readonly before: readonly string[];
  readonly after: readonly string[];
}

/** The largest number of neighbours on either side of a place. */
export const MAX_NEIGHBOURS = 5;

/** Limit for the values of a place, in bytes of JSON. Longer ones are cut. */
const MAX_KEY_BYTES = 500;
/** If values are cut: the limit for the leading values, in bytes, and for the rest of the cut text, in characters. */
const MAX_LEADING_BYTES = 150;
const MAX_CUT_CHARACTERS = 40;
/** Limit, in bytes, for values that are used as a place among others themselves; longer ones are replaced by a digest. */
const MAX_OWN_BYTES = 200;
const NEIGHBOUR_CHARACTERS = 16;

/**
 * The place of some values among others that are all different. Short values are ordered by themselves; long ones come after these, ordered
 * by their digests. So a place is always short enough for a token, and determines exactly which values come after it.
 */
export function placeAmongOthers(values: readonly Value[]): Value[] {
  const text = values.map(stableKey).join(',');
  return hasAtMost(text, MAX_OWN_BYTES) ? [false, ...values] : [true, digestOf(text)];
}

/** Whether a row is at the start of an answer, or after it. */
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

/** The index of the first row, among some in order, that is not before the start of an answer. Pauses, since values may be large. */
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
 * The start of an answer that continues after a row: the row's place; or, if the place's values are long, their beginning and the
 * neighbours of the row. Pauses between these.
 *
 * @param given rows in order. The last one is the row after which to continue
 * @param next the rows that come after it
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

/** The first place of the rows that have the same few leading values, and the same beginning of the next value. */
function beginningOf(keys: readonly Value[], steps: readonly OrderStep[]): Pick<OrderedStart, 'keys' | 'exclude'> {
  let length = 0;
  while (hasAtMost(jsonText(keys.slice(0, length + 1)), MAX_LEADING_BYTES)) length += 1;
  const leading = keys.slice(0, length);
  const next = keys[length];
  if (typeof next !== 'string') return { keys: leading, exclude: false };
  const cut = next.slice(0, MAX_CUT_CHARACTERS);
  if (steps[length]?.descending !== true) return { keys: [...leading, cut], exclude: false };
  // In descending order these rows come after the least text that is greater than all with this beginning.
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
 * A digest of a text: 128 bits, in hexadecimal. It need not be cryptographically secure: someone who constructs two texts with the same
 * digest only loses rows of their own query.
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
