/**
 * A scalar of a document as a text. The order of these texts, by UTF-16 code units, is that of the query language's
 * comparisons, so a store only compares texts and need not know what they stand for. The first character is the type.
 */
export type ClearValue = string;

/** One copied value. */
export interface ClearEntry {
  /** Index of the container's clear path that the value is from. */
  readonly path: number;
  readonly value: ClearValue;
}

/** A copied value of the item with that birth. */
export interface ClearCopy extends ClearEntry {
  readonly birth: number;
}

/** All values of a path from one to another, both included. */
export interface ClearSpan {
  readonly path: number;
  readonly from: ClearValue;
  readonly to: ClearValue;
}

/** Satisfied by an item with a value in one of these spans. */
export type ClearCondition = readonly ClearSpan[];

/** How many characters of a string are copied. The rest is only in the document. */
const MAX_CHARACTERS = 128;

/** A value that could not be read. Every search must look at the item itself. */
const UNKNOWN = '0';
const NULL = '1';
const FALSE = '2';
const TRUE = '3';
const NUMBER = '4';
const TEXT = '5';
const NUMBERS_END = `${NUMBER}\uffff`;
const TEXTS_END = '6';

/** The copy of a value. Undefined for a value that is no scalar, because no comparison with a scalar can be true for it. */
export function clearValue(value: unknown): ClearValue | undefined {
  switch (typeof value) {
    case 'boolean':
      return value ? TRUE : FALSE;
    case 'number':
      return NUMBER + sortableNumber(value);
    case 'string':
      return TEXT + value.slice(0, MAX_CHARACTERS);
    default:
      return value === null ? NULL : undefined;
  }
}

/** The entries of an item whose content could not be read, in a container with this many clear paths. */
export function unknownEntries(paths: number): ClearEntry[] {
  return Array.from({ length: paths }, (_, path) => ({ path, value: UNKNOWN }));
}

/**
 * A condition that is satisfied by every item whose value at a path compares with a constant in this way. Items whose
 * value is not known satisfy it, too. Because only the beginning of long strings is copied, other items may satisfy it
 * as well.
 *
 * @param values one scalar, or any number of them for `in`
 */
export function clearCondition(
  path: number,
  op: '=' | '<' | '<=' | '>' | '>=' | 'in',
  values: readonly unknown[],
): ClearCondition {
  const spans = values.flatMap((value) => {
    const text = clearValue(value);
    if (text === undefined) return [];
    const from = op === '<' || op === '<=' ? firstOf(text) : text;
    const to = op === '>' || op === '>=' ? lastOf(text) : text;
    return [{ path, from, to }];
  });
  return [...spans, { path, from: UNKNOWN, to: UNKNOWN }];
}

/** The lowest copy that is compared with a value: comparisons are within a type, and false comes before true. */
function firstOf(value: ClearValue): ClearValue {
  return value === TRUE ? FALSE : value[0]!;
}

function lastOf(value: ClearValue): ClearValue {
  if (value === FALSE) return TRUE;
  if (value === NULL || value === TRUE) return value;
  return value.startsWith(NUMBER) ? NUMBERS_END : TEXTS_END;
}

const bits = new DataView(new ArrayBuffer(8));

/** Four characters in the order of numbers: the bits, with the sign bit inverted, or with all bits inverted below zero. */
function sortableNumber(value: number): string {
  // 0 and -0 are equal, so they must have the same text.
  bits.setFloat64(0, value === 0 ? 0 : value);
  const isNegative = bits.getUint8(0) >= 128;
  const units = [0, 2, 4, 6].map((at) => bits.getUint16(at) ^ (isNegative ? 0xff_ff : at === 0 ? 0x80_00 : 0));
  return String.fromCharCode(...units);
}
