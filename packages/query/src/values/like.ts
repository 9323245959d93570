import { queryError } from '../errors.ts';
import { containsText } from './text-search.ts';

/** The largest number of comparisons for one text. A pattern that needs more comes from a document, and is not meant as a pattern. */
const MAX_COMPARISONS = 10_000_000;

type Step =
  | { readonly kind: 'many' }
  | { readonly kind: 'one' }
  | { readonly kind: 'character'; readonly character: string }
  | { readonly kind: 'set'; readonly negated: boolean; readonly ranges: readonly Range[] };

/** A range of characters: the first and the last one. */
type Range = readonly [string, string];

/** Reads `[abc]`, `[a-z]` or `[^…]` after its opening bracket. `lastClose` is the index of the last closing bracket in the pattern. */
function readSet(pattern: string, start: number, lastClose: number): { step: Step; end: number } | undefined {
  const negated = pattern[start] === '^';
  let index = negated ? start + 1 : start;
  // Checked first: otherwise a pattern with many brackets that are never closed would be searched to its end for each of them.
  if (index + 1 > lastClose) return undefined;
  const close = pattern.indexOf(']', index + 1);
  const ranges: Range[] = [];
  while (index < close) {
    const from = pattern[index] as string;
    const to = pattern[index + 2];
    if (pattern[index + 1] === '-' && index + 2 < close && to !== undefined) {
      ranges.push([from, to]);
      index += 3;
    } else {
      ranges.push([from, from]);
      index += 1;
    }
  }
  return { step: { kind: 'set', negated, ranges: inOrder(ranges) }, end: close + 1 };
}

/** The same characters as ranges that are sorted and don't overlap, for binary search. */
function inOrder(ranges: readonly Range[]): readonly Range[] {
  const merged: [string, string][] = [];
  for (const [from, to] of ranges.filter(([first, last]) => first <= last).toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    const last = merged.at(-1);
    if (last === undefined || from > last[1]) merged.push([from, to]);
    else if (to > last[1]) last[1] = to;
  }
  return merged;
}

function isIn(ranges: readonly Range[], character: string): boolean {
  let low = 0;
  let high = ranges.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const [from, to] = ranges[middle]!;
    if (character > to) low = middle + 1;
    else if (character < from) high = middle;
    else return true;
  }
  return false;
}

function readPattern(pattern: string, escape: string | undefined): Step[] {
  const steps: Step[] = [];
  const lastClose = pattern.lastIndexOf(']');
  let index = 0;
  while (index < pattern.length) {
    const character = pattern[index] as string;
    index += 1;
    const next = pattern[index];
    if (character === escape && next !== undefined) {
      steps.push({ kind: 'character', character: next });
      index += 1;
    } else if (character === '%') {
      if (steps.at(-1)?.kind !== 'many') steps.push({ kind: 'many' });
    } else if (character === '_') {
      steps.push({ kind: 'one' });
    } else {
      const set = character === '[' ? readSet(pattern, index, lastClose) : undefined;
      steps.push(set?.step ?? { kind: 'character', character });
      if (set !== undefined) index = set.end;
    }
  }
  return steps;
}

function matchesOne(step: Step, character: string): boolean {
  switch (step.kind) {
    case 'character':
      return step.character === character;
    case 'one':
      return true;
    case 'set':
      return isIn(step.ranges, character) !== step.negated;
    case 'many':
      return false;
  }
}

/**
 * Compiles the pattern of LIKE: `%`, `_`, `[…]`, `[^…]` and an escape character. After a mismatch, matching continues at the last `%`
 * only, so a match takes at most pattern × text steps for any pattern.
 */
export function compileLike(pattern: string, escape?: string): (text: string) => boolean {
  const steps = readPattern(pattern, escape);
  const literal = (part: readonly Step[]): string | undefined =>
    part.every((step) => step.kind === 'character') ? part.map((step) => step.character).join('') : undefined;
  const opens = steps[0]?.kind === 'many';
  const closes = steps.length > 1 && steps.at(-1)?.kind === 'many';
  const inner = literal(steps.slice(opens ? 1 : 0, closes ? -1 : undefined));
  if (inner !== undefined) {
    if (opens && closes) return (text) => containsText(text, inner);
    if (opens) return (text) => text.endsWith(inner);
    if (closes) return (text) => text.startsWith(inner);
    return (text) => text === inner;
  }
  return (text) => matchSteps(steps, text);
}

function matchSteps(steps: readonly Step[], text: string): boolean {
  let step = 0;
  let index = 0;
  let retryStep = -1;
  let retryIndex = 0;
  let comparisons = 0;
  while (index < text.length) {
    comparisons += 1;
    if (comparisons > MAX_COMPARISONS) {
      throw queryError('tooComplex', 'A LIKE would take too many comparisons: its pattern and the text are too long.');
    }
    const current = steps[step];
    if (current?.kind === 'many') {
      step += 1;
      retryStep = step;
      retryIndex = index;
    } else if (current !== undefined && matchesOne(current, text[index] as string)) {
      step += 1;
      index += 1;
    } else if (retryStep !== -1) {
      retryIndex += 1;
      step = retryStep;
      index = retryIndex;
    } else {
      return false;
    }
  }
  while (steps[step]?.kind === 'many') step += 1;
  return step === steps.length;
}
