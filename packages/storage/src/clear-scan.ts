import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import type { ClearCondition, ClearCopy, ClearSpan, ClearValue } from '@epitaph/projections/items/clear-values.ts';
import type { ItemRow, ItemScan } from '@epitaph/projections/read-model-store.ts';

/** The items of a condition are sorted by birth only if there are at most this many: with more, the index saves little. */
const MOST_BIRTHS = 20_000;
/** For a condition of single values: how many items are read at a time for each value, and how many values there may be. */
const WINDOW = 4_096;
const MOST_POINTS = 64;

/** An index of a container's values in clear. */
export interface ClearIndex {
  /** The number of items that satisfy a condition, counted up to a limit. */
  count(condition: ClearCondition, limit: number): MaybePromise<number>;
  /** The births, after a given one, of the items that satisfy the condition, in any order. */
  births(condition: ClearCondition, after: number): MaybePromise<readonly number[]>;
  /** For each of some single values: the births, after a given one, of the first items that have it, up to the limit, in order. */
  firstBirths(points: ClearCondition, after: number, limit: number): MaybePromise<readonly (readonly number[])[]>;
  /** The number of items of a partition or a prefix of partition keys, counted up to a limit. */
  countNamed(scan: ItemScan, limit: number): MaybePromise<number>;
  /** The items among the given births that a scan selects, up to its limit. The births are ascending, and so are the results. */
  among(births: readonly number[], scan: ItemScan): MaybePromise<ItemRow[]>;
}

/** Executes a scan by its conditions on values in clear; undefined if an ordinary scan is less work. */
export async function scanByClear(index: ClearIndex, scan: ItemScan): Promise<ItemRow[] | undefined> {
  const { clear = [], afterBirth, partitionKey, prefix } = scan;
  const isNamed = partitionKey !== undefined || prefix !== undefined;
  // The index is of the whole container. If the partition has fewer items than a condition finds, scanning them is less work.
  const most = isNamed ? await index.countNamed(scan, MOST_BIRTHS) : MOST_BIRTHS;
  let births: Set<number> | undefined;
  for (const condition of clear) {
    if ((await index.count(condition, most + 1)) > most) continue;
    const found = new Set(await index.births(condition, afterBirth));
    births = births?.intersection(found) ?? found;
  }
  if (births !== undefined) return index.among(inOrder(births), scan);
  if (isNamed) return undefined;
  const points = clear.find((condition) => condition.length <= MOST_POINTS && condition.every(isPoint));
  return points === undefined ? undefined : scanPoints(index, points, scan);
}

/** Scans by single values. The index has the items of each value in order of birth, so nothing needs sorting, however many there are. */
async function scanPoints(index: ClearIndex, points: ClearCondition, scan: ItemScan): Promise<ItemRow[]> {
  const found: ItemRow[] = [];
  for (let after = scan.afterBirth; found.length < scan.limit;) {
    const firsts = await index.firstBirths(points, after, WINDOW);
    // Up to this birth the windows of all values are complete.
    const through = Math.min(...firsts.filter(({ length }) => length === WINDOW).map((births) => births.at(-1)!));
    const births = new Set(firsts.flat().filter((birth) => birth <= through));
    found.push(...(await index.among(inOrder(births), { ...scan, limit: scan.limit - found.length })));
    if (through === Number.POSITIVE_INFINITY) break;
    after = through;
  }
  return found;
}

const isPoint = ({ from, to }: ClearSpan): boolean => from === to;
const inOrder = (births: ReadonlySet<number>): number[] => [...births].toSorted((left, right) => left - right);

/** A place before the first copy. */
export const BEFORE_CLEAR_COPIES: ClearCopy = { path: -1, value: '', birth: -1 };

/** A value as bytes that sort in the same order. All databases compare bytes in the same way, but texts differently. */
export function clearBytes(value: ClearValue): Buffer {
  return Buffer.from(value, 'utf16le').swap16();
}

/** The inverse of {@link clearBytes}. */
export function fromClearBytes(bytes: Uint8Array): ClearValue {
  return Buffer.from(bytes).swap16().toString('utf16le');
}
