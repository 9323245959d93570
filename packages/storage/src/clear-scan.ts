import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import type { ClearCondition, ClearCopy, ClearSpan, ClearValue } from '@epitaph/projections/items/clear-values.ts';
import type { ItemRow, ItemScan } from '@epitaph/projections/read-model-store.ts';

/** Items that a condition finds at most, unless it is of single values: with more it saves little, and all are sorted. */
const MOST_BIRTHS = 20_000;
/** Of each single value so many items are looked at together, and of so many values at most. */
const WINDOW = 4_096;
const MOST_POINTS = 64;

/** What an index over a container's values in clear answers. */
export interface ClearIndex {
  /** Of how many items a condition holds, counted up to a limit. */
  count(condition: ClearCondition, limit: number): MaybePromise<number>;
  /** The births after a birth of those that it holds for, in any order. */
  births(condition: ClearCondition, after: number): MaybePromise<readonly number[]>;
  /** The first births after a birth of those that have single values: up to so many for each of them, in order. */
  firstBirths(points: ClearCondition, after: number, limit: number): MaybePromise<readonly (readonly number[])[]>;
  /** How many items a partition or a prefix has, counted up to a limit. */
  countNamed(scan: ItemScan, limit: number): MaybePromise<number>;
  /** Those of some items, given by ascending births, that a scan is for, in that order and up to its limit. */
  among(births: readonly number[], scan: ItemScan): MaybePromise<ItemRow[]>;
}

/** Carries a scan out by its conditions on values in clear; undefined where that is more work than to look at all. */
export async function scanByClear(index: ClearIndex, scan: ItemScan): Promise<ItemRow[] | undefined> {
  const { clear = [], afterBirth, partitionKey, prefix } = scan;
  const isNamed = partitionKey !== undefined || prefix !== undefined;
  // Conditions hold throughout the container: where a partition has fewer items, those are looked at.
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

/** However many items have single values, the index has them in order of birth, and none need be sorted. */
async function scanPoints(index: ClearIndex, points: ClearCondition, scan: ItemScan): Promise<ItemRow[]> {
  const found: ItemRow[] = [];
  for (let after = scan.afterBirth; found.length < scan.limit;) {
    const firsts = await index.firstBirths(points, after, WINDOW);
    // Up to here nothing is left out.
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

/** A place before all copies. */
export const BEFORE_CLEAR_COPIES: ClearCopy = { path: -1, value: '', birth: -1 };

/** A copied value as bytes in the same order: databases compare bytes alike, and texts each in its own way. */
export function clearBytes(value: ClearValue): Buffer {
  return Buffer.from(value, 'utf16le').swap16();
}

/** The value that {@link clearBytes} has made bytes of. */
export function fromClearBytes(bytes: Uint8Array): ClearValue {
  return Buffer.from(bytes).swap16().toString('utf16le');
}
