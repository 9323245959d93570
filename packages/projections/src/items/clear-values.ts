/**
 * A scalar of a document as a text whose order, by UTF-16 code units, is that of the query language's comparisons:
 * a store compares such texts and need not know what they stand for. The first character is the type.
 */
export type ClearValue = string;

/** One copied value. */
export interface ClearEntry {
  /** Which of the container's clear paths it is the value of, from 0. */
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

/** Holds for an item that has a value in one of these. */
export type ClearCondition = readonly ClearSpan[];

/** Characters of a text that are copied: more is left to the document. */
const MAX_CHARACTERS = 128;

/** What could not be read. Whoever looks for anything has to look at such an item itself. */
const UNKNOWN = '0';
const NULL = '1';
const FALSE = '2';
const TRUE = '3';
const NUMBER = '4';
const TEXT = '5';
const NUMBERS_END = `${NUMBER}\uffff`;
const TEXTS_END = '6';

/** The copy of a value; undefined for one that is no scalar, which no comparison with a scalar finds. */
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

/** The entries of an item whose content could not be read, in a container with that many clear paths. */
export function unknownEntries(paths: number): ClearEntry[] {
  return Array.from({ length: paths }, (_, path) => ({ path, value: UNKNOWN }));
}

/**
 * The condition that every item satisfies whose value at a path compares so with a constant; items whose value is not
 * known satisfy it, too. As texts are copied in part, others may as well.
 *
 * @param values one, or for `in` any number of scalars
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

/** The first value that compares with a value: comparisons are within a type, and false comes before true. */
function firstOf(value: ClearValue): ClearValue {
  return value === TRUE ? FALSE : value[0]!;
}

function lastOf(value: ClearValue): ClearValue {
  if (value === FALSE) return TRUE;
  if (value === NULL || value === TRUE) return value;
  return value.startsWith(NUMBER) ? NUMBERS_END : TEXTS_END;
}

const bits = new DataView(new ArrayBuffer(8));

/** Four characters in the order of the numbers: the bits, with the sign's turned, and all turned below zero. */
function sortableNumber(value: number): string {
  // There are two zeros, which are equal.
  bits.setFloat64(0, value === 0 ? 0 : value);
  const isNegative = bits.getUint8(0) >= 128;
  const units = [0, 2, 4, 6].map((at) => bits.getUint16(at) ^ (isNegative ? 0xff_ff : at === 0 ? 0x80_00 : 0));
  return String.fromCharCode(...units);
}
