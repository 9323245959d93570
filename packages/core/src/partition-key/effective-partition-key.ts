import type { ContainerDefinition } from '../container/definition.ts';
import { GenerationCache } from '../generation-cache.ts';
import { murmurHash128SecondHalfFirst, murmurHash32 } from './murmur-hash.ts';

/**
 * Where a partition key lies between "" and "FF": upper-case hex digits that are compared as text. Clients compute it
 * from the key to find the range of a container that the key belongs to. So this follows `@azure/cosmos` 4.10.1
 * (`utils/hashing`) bit by bit, with one exception: the ends of some keys of version 1, after the hash itself. There
 * the .NET, Java and Python clients add a zero byte after numbers such as 0 and 2, and cut strings of more than 100
 * bytes. A single key that is asked for by its range is in the form of these clients; the JavaScript client never asks
 * so.
 */
export type EffectivePartitionKey = string;

/** A part of the space of effective partition keys: from `min` up to but not including `max`. */
export interface KeyRange {
  readonly min: EffectivePartitionKey;
  readonly max: EffectivePartitionKey;
}

export const WHOLE_RANGE: KeyRange = { min: '', max: 'FF' };

type Definition = Pick<ContainerDefinition['partitionKey'], 'kind' | 'version'>;

/** How many characters of a string version 1 uses. */
const V1_CHARACTERS = 100;

/** Strings of up to this many bytes are written out whole in version 1. */
const V1_WHOLE_BYTES = 100;

/** The bytes that precede a value, as in Cosmos DB's binary encoding of index terms. */
const MARK = { undefined: 0x00, null: 0x01, false: 0x02, true: 0x03, number: 0x05, string: 0x08, end: 0xff } as const;

/**
 * The effective partition key of a canonical partition key, which is JSON text of an array of components, with `{}` for
 * a missing one. The leading components of a hierarchical key alone have an effective partition key too:
 * the {@link prefixRange} of it contains all keys that begin with these components.
 */
export function effectivePartitionKey(definition: Definition, partitionKey: string): EffectivePartitionKey {
  const components = JSON.parse(partitionKey) as readonly unknown[];
  if (definition.kind === 'MultiHash') return components.map(hashV2).join('');
  return definition.version === 2 ? hashV2(components[0]) : hashV1(components[0]);
}

/**
 * The range of all keys that begin with some leading components.
 *
 * @param prefix effective partition key of the leading components of a hierarchical key
 */
export const prefixRange = (prefix: EffectivePartitionKey): KeyRange => ({ min: prefix, max: `${prefix}FF` });

/** The range of one key. Other keys with the same hash are in it, too; clients can't tell them apart by ranges either. */
export const rangeOfKey = (key: EffectivePartitionKey): KeyRange => ({
  min: key,
  max: (BigInt(`0x${key}`) + 1n).toString(16).toUpperCase().padStart(key.length, '0'),
});

export const isInRange = (key: EffectivePartitionKey, { min, max }: KeyRange): boolean => min <= key && key < max;

/** How many keys are cached for each kind of definition: a scan meets the same ones again and again. */
const REMEMBERED_KEYS = 50_000;

const remembered = {
  v1: new GenerationCache<string, EffectivePartitionKey>(REMEMBERED_KEYS),
  v2: new GenerationCache<string, EffectivePartitionKey>(REMEMBERED_KEYS),
  hierarchical: new GenerationCache<string, EffectivePartitionKey>(REMEMBERED_KEYS),
};

/** {@link effectivePartitionKey} with a cache, for callers with many rows. */
export function rememberedEffectivePartitionKey(definition: Definition, partitionKey: string): EffectivePartitionKey {
  const { kind, version } = definition;
  const cache = kind === 'MultiHash' ? remembered.hierarchical : version === 2 ? remembered.v2 : remembered.v1;
  let key = cache.get(partitionKey);
  if (key === undefined) {
    key = effectivePartitionKey(definition, partitionKey);
    cache.set(partitionKey, key);
  }
  return key;
}

function hashV2(component: unknown): EffectivePartitionKey {
  const hash = murmurHash128SecondHalfFirst(marked(component, MARK.end));
  // The two highest bits stay 0, so that every hash is below "FF".
  return (Number.parseInt(hash[0]!, 16) & 0x3).toString(16) + hash.slice(1);
}

function hashV1(component: unknown): EffectivePartitionKey {
  const value = typeof component === 'string' ? component.slice(0, V1_CHARACTERS) : component;
  const hash = murmurHash32(marked(value, MARK.undefined));
  return hex([...encodedNumber(hash), ...encoded(value)]);
}

/** A hash of version 1 in the form in which effective partition keys begin with it, 0 to 2^32. */
export const encodedHashV1 = (hash: number): string => hex(encodedNumber(hash));

const utf8 = new TextEncoder();

/** A component in the form that is hashed: the mark of its kind, then its value if the kind has one. */
function marked(component: unknown, stringEnd: number): Uint8Array {
  if (typeof component === 'string') {
    const text = utf8.encode(component);
    const bytes = new Uint8Array(text.length + 2);
    bytes[0] = MARK.string;
    bytes.set(text, 1);
    bytes[text.length + 1] = stringEnd;
    return bytes;
  }
  if (typeof component === 'number') {
    const bytes = new Uint8Array(9);
    bytes[0] = MARK.number;
    new DataView(bytes.buffer).setFloat64(1, component, true);
    return bytes;
  }
  return Uint8Array.of(markOf(component));
}

function markOf(component: unknown): number {
  if (typeof component === 'boolean') return component ? MARK.true : MARK.false;
  return component === null ? MARK.null : MARK.undefined;
}

/** A component in the form that version 1 appends to its hash. */
function encoded(component: unknown): readonly number[] {
  if (typeof component === 'number') return encodedNumber(component);
  if (typeof component !== 'string') return [markOf(component)];
  const text = Array.from(utf8.encode(component), (byte) => byte + 1);
  // One byte more than the limit indicates that the string was cut.
  if (text.length > V1_WHOLE_BYTES) return [MARK.string, ...text.slice(0, V1_WHOLE_BYTES + 1)];
  return [MARK.string, ...text, MARK.undefined];
}

/**
 * A number as bytes that sort in the order of numbers: the first 8 of its 64 bits, then the remaining bits in groups of
 * seven, up to the last bit that is set. The lowest bit of each of these bytes says whether another follows.
 */
function encodedNumber(value: number): readonly number[] {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  const raw = view.getBigInt64(0);
  // In two's complement, negative numbers sort in the opposite order.
  const sortable = BigInt.asUintN(64, raw < 0n ? -raw : raw ^ (1n << 63n));
  const bytes = [MARK.number, Number(sortable >> 56n)];
  for (let rest = BigInt.asUintN(64, sortable << 8n); rest !== 0n; rest = BigInt.asUintN(64, rest << 7n)) {
    bytes.push(Number(rest >> 56n) | 1);
  }
  // A zero byte for 0, 2 and the like, of which no bits remain: as in the .NET and Python clients. The JavaScript
  // client has no byte there.
  if (bytes.length === 2) bytes.push(0);
  else bytes[bytes.length - 1]! &= 0xfe;
  return bytes;
}

const hex = (bytes: readonly number[]): string =>
  bytes.map((byte) => byte.toString(16).toUpperCase().padStart(2, '0')).join('');
