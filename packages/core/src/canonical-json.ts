/**
 * JSON with the properties of every object sorted by name and no blanks, so that equal values have the same text. As
 * RFC 8785 defines it, for values that JSON.parse returns; a bigint is written with all its digits.
 */
export function canonicalJson(value: unknown): string {
  // One call of JSON.stringify is several times as fast as building the text piece by piece.
  const ordered = inOrder(value);
  return ordered === unordered ? spelledOut(value) : JSON.stringify(ordered);
}

const unordered = Symbol('JSON.stringify can not write it in that order');

/** A copy with all properties sorted by name, if objects can keep them in that order. */
function inOrder(value: unknown): unknown {
  if (typeof value === 'bigint') return unordered;
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) {
    const members = value.map(inOrder);
    return members.includes(unordered) ? unordered : members;
  }
  const copy: Record<string, unknown> = {};
  for (const name of Object.keys(value).sort()) {
    // An object always puts names that are numbers first, and `__proto__` can't be set by assignment.
    if ((name >= '0' && name < ':') || name === '__proto__') return unordered;
    const member = inOrder((value as Readonly<Record<string, unknown>>)[name]);
    if (member === unordered) return unordered;
    copy[name] = member;
  }
  return copy;
}

function spelledOut(value: unknown): string {
  if (typeof value === 'bigint') return String(value);
  if (Array.isArray(value)) return `[${value.map(spelledOut).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const object = value as Readonly<Record<string, unknown>>;
  const parts: string[] = [];
  for (const name of Object.keys(object).toSorted()) {
    if (object[name] !== undefined) parts.push(`${JSON.stringify(name)}:${spelledOut(object[name])}`);
  }
  return `{${parts.join(',')}}`;
}
