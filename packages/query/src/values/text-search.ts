/*
 * Searches texts in texts. In the worst case, the time of JavaScript's own functions is the product of both lengths: "aaa…" and
 * "baaa…", of a megabyte each, take minutes. If more comparisons than this are possible, the algorithm of Knuth, Morris and Pratt is
 * used, whose time is the sum of both lengths.
 */
const FEW_COMPARISONS = 128 * 1024 * 1024;

/** A text, read forwards or backwards. */
interface Reading {
  readonly length: number;
  readonly at: (index: number) => number;
}

const forwards = (text: string): Reading => ({ length: text.length, at: (index) => text.charCodeAt(index) });
const backwards = (text: string): Reading => ({
  length: text.length,
  at: (index) => text.charCodeAt(text.length - 1 - index),
});

/** For each prefix of the sought text: the length of its longest proper prefix that is also its suffix. */
function bordersOf({ length, at }: Reading): Int32Array {
  const borders = new Int32Array(length);
  let border = 0;
  for (let index = 1; index < length; index += 1) {
    while (border > 0 && at(index) !== at(border)) border = borders[border - 1]!;
    if (at(index) === at(border)) border += 1;
    borders[index] = border;
  }
  return borders;
}

function find(text: Reading, sought: Reading, borders: Int32Array, from: number): number {
  let same = 0;
  for (let index = from; index < text.length; index += 1) {
    const code = text.at(index);
    while (same > 0 && code !== sought.at(same)) same = borders[same - 1]!;
    if (code === sought.at(same)) same += 1;
    if (same === sought.length) return index - same + 1;
  }
  return -1;
}

const isQuick = (text: string, sought: string, times = 1): boolean =>
  sought.length < 2 || text.length * sought.length * times <= FEW_COMPARISONS;

/** Like `indexOf` of strings. */
export function placeOf(text: string, sought: string, from = 0): number {
  if (isQuick(text, sought)) return text.indexOf(sought, from);
  const reading = forwards(sought);
  return find(forwards(text), reading, bordersOf(reading), from);
}

/** Like `lastIndexOf` of strings. */
export function lastPlaceOf(text: string, sought: string): number {
  if (isQuick(text, sought)) return text.lastIndexOf(sought);
  const reading = backwards(sought);
  const found = find(backwards(text), reading, bordersOf(reading), 0);
  return found === -1 ? -1 : text.length - found - sought.length;
}

/**
 * Like `includes` of strings.
 *
 * @param times how many such searches one piece of work makes
 */
export function containsText(text: string, sought: string, times = 1): boolean {
  if (isQuick(text, sought, times)) return text.includes(sought);
  const reading = forwards(sought);
  return find(forwards(text), reading, bordersOf(reading), 0) !== -1;
}

/** Like `split` of strings. The separator must not be empty. */
export function splitText(text: string, separator: string): string[] {
  if (isQuick(text, separator)) return text.split(separator);
  const reading = forwards(separator);
  const borders = bordersOf(reading);
  const parts: string[] = [];
  let start = 0;
  for (;;) {
    const place = find(forwards(text), reading, borders, start);
    if (place === -1) break;
    parts.push(text.slice(start, place));
    start = place + separator.length;
  }
  parts.push(text.slice(start));
  return parts;
}
