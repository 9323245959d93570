import type { Random } from './random.ts';

/** What some containers keep in clear of their items. */
export const CLEAR_PATHS = ['/v', '/s', '/o/n', '/w'];

const PATHS = [['v'], ['s'], ['o', 'n'], ['w'], ['ttl']] as const;
const NUMBERS = [-1, 0, 1, 2, 2.5, 1e12];
const TEXTS = ['', 'open', 'opened', 'shut', '1'];
const OTHERS = [true, false, null];

type Scalar = string | number | boolean | null;
type Path = (typeof PATHS)[number];
export type Document = Readonly<Record<string, unknown>>;

/** Stands in each document, with the number of its write, where it would be found in any file that has it in clear. */
const MARK = 'Wren-Skerry-';
const DIGITS = 6;

/** The properties that a write gives a document, besides its names. `v` and `w` differ in every write. */
export function fieldsOf(random: Random, v: number): Document {
  const o = random.pick([
    undefined,
    {},
    5,
    null,
    [{ n: 1 }],
    { n: anyValue(random) },
    { n: anyValue(random) },
    { n: anyValue(random) },
  ]);
  const s = random.chance(0.85) ? anyValue(random) : undefined;
  return { ...markOf(v), ...(s === undefined ? {} : { s }), ...(o === undefined ? {} : { o }) };
}

export function markOf(v: number): { readonly v: number; readonly w: string } {
  return { v, w: `${MARK}${String(v).padStart(DIGITS, '0')}` };
}

/** Most often one of few scalars. */
export function anyValue(random: Random): unknown {
  return random.chance(0.15) ? random.pick([[], ['open'], [1], {}, { n: 1 }]) : anyScalar(random);
}

function anyScalar(random: Random): Scalar {
  return random.pick(random.pick<readonly Scalar[]>([NUMBERS, TEXTS, TEXTS, OTHERS]));
}

export function valueAt(document: Document, path: readonly string[]): unknown {
  let value: unknown = document;
  for (const name of path) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
    value = (value as Document)[name];
  }
  return value;
}

/** How many of a document's values are kept in clear: scalars alone. */
export function clearValues(document: Document): number {
  const values = CLEAR_PATHS.map((path) => valueAt(document, path.slice(1).split('/')));
  return values.filter(isScalar).length;
}

/** The numbers of the writes whose marks stand in some bytes, as UTF-8 or, whichever end is first, as UTF-16. */
export function marksIn(bytes: Buffer): Set<number> {
  const found = new Set<number>();
  for (const [wanted, width] of [
    [Buffer.from(MARK), 1],
    [Buffer.from(MARK, 'utf16le').subarray(0, -1), 2],
  ] as const) {
    for (let at = bytes.indexOf(wanted); at >= 0; at = bytes.indexOf(wanted, at + 1)) {
      const digits = Array.from({ length: DIGITS }, (_, index) => bytes[at + (MARK.length + index) * width] ?? 0);
      found.add(Number(String.fromCharCode(...digits)));
    }
  }
  return found;
}

/** The condition of a query on each document. */
export type Condition =
  | { readonly kind: 'compare'; readonly path: Path; readonly op: keyof typeof COMPARES; readonly to: Scalar }
  | { readonly kind: 'in'; readonly path: Path; readonly list: readonly Scalar[] }
  | { readonly kind: 'between'; readonly path: Path; readonly low: Scalar; readonly high: Scalar }
  | { readonly kind: 'and'; readonly parts: readonly Condition[] }
  | { readonly kind: 'or'; readonly parts: readonly Condition[] };

const COMPARES = {
  '=': (order: number): boolean => order === 0,
  '<': (order: number): boolean => order < 0,
  '<=': (order: number): boolean => order <= 0,
  '>': (order: number): boolean => order > 0,
  '>=': (order: number): boolean => order >= 0,
};

/** @param values some that are at hand, so that not all that is asked for is nowhere */
export function anyCondition(random: Random, documents: readonly Document[], depth = 2): Condition {
  const kind = random.weighted({ compare: 6, in: 2, between: 2, and: depth === 0 ? 0 : 3, or: depth === 0 ? 0 : 3 });
  if (kind === 'and' || kind === 'or') {
    const parts = Array.from({ length: random.int(2, 3) }, () => anyCondition(random, documents, depth - 1));
    return { kind, parts };
  }
  const path = random.pick(PATHS);
  const scalar = () => {
    const own = documents.length > 0 && random.chance(0.6) ? valueAt(random.pick(documents), path) : undefined;
    return isScalar(own) ? own : anyScalar(random);
  };
  if (kind === 'in') return { kind, path, list: Array.from({ length: random.int(1, 3) }, () => scalar()) };
  if (kind === 'between') return { kind, path, low: scalar(), high: scalar() };
  return { kind, path, op: random.pick(['=', '=', '<', '<=', '>', '>='] as const), to: scalar() };
}

function isScalar(value: unknown): value is Scalar {
  return value === null || ['string', 'number', 'boolean'].includes(typeof value);
}

/** The condition as a query has it; its constants go to the parameters. */
export function toSql(condition: Condition, parameters: { name: string; value: unknown }[]): string {
  const constant = (value: Scalar) => {
    const name = `@c${parameters.length}`;
    parameters.push({ name, value });
    return name;
  };
  switch (condition.kind) {
    case 'and':
    case 'or':
      return `(${condition.parts.map((part) => toSql(part, parameters)).join(` ${condition.kind.toUpperCase()} `)})`;
    case 'compare':
      return `c.${condition.path.join('.')} ${condition.op} ${constant(condition.to)}`;
    case 'in':
      return `c.${condition.path.join('.')} IN (${condition.list.map(constant).join(', ')})`;
    case 'between':
      return `c.${condition.path.join('.')} BETWEEN ${constant(condition.low)} AND ${constant(condition.high)}`;
  }
}

export function matches(condition: Condition, document: Document): boolean {
  if (condition.kind === 'and') return condition.parts.every((part) => matches(part, document));
  if (condition.kind === 'or') return condition.parts.some((part) => matches(part, document));
  const value = valueAt(document, condition.path);
  const order = (to: Scalar) => (isScalar(value) ? orderOf(value, to) : undefined);
  if (condition.kind === 'in') return condition.list.some((one) => order(one) === 0);
  if (condition.kind === 'between') {
    const [low, high] = [order(condition.low), order(condition.high)];
    return low !== undefined && high !== undefined && low >= 0 && high <= 0;
  }
  const found = order(condition.to);
  return found !== undefined && COMPARES[condition.op](found);
}

/** Below zero, zero or above; undefined for scalars of different types, which do not compare. */
function orderOf(left: Scalar, right: Scalar): number | undefined {
  if (left === null || right === null) return left === right ? 0 : undefined;
  if (typeof left !== typeof right) return undefined;
  return left < right ? -1 : left > right ? 1 : 0;
}
