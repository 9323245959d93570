import { isUtf8 } from 'node:buffer';
import { integerValue, keepNames } from '@epitaph/query';
import { badRequest, tooLarge } from './errors.ts';

/**
 * Cosmos DB's binary JSON, as far as requests use it: the .NET client writes items in it when
 * `AZURE_COSMOS_BINARY_ENCODING_ENABLED` is set. Answers may always be text. Source: the type markers of
 * `JsonBinaryEncoding` in github.com/Azure/azure-cosmos-dotnet-v3.
 *
 * A body is one byte that marks the format, then one value: a type marker, which may contain a small value, followed by
 * its data. Numbers are little-endian. Values without a form in JSON (GUIDs and bytes, user dictionaries) are refused.
 */
const FORMAT = 0x80;

/** The most characters of all strings in a body: each may be compressed, and referred to repeatedly by its position. */
const MAX_CHARACTERS = 16 * 1024 * 1024;

/** None of these strings contains a blank. */
const systemStrings = (
  '$s $t $v _attachments _etag _rid _self _ts attachments/ coordinates geometry GeometryCollection id url Value label ' +
  'LineString link MultiLineString MultiPoint MultiPolygon name Name Type Point Polygon properties type value Feature ' +
  'FeatureCollection _id'
).split(' ');

const LOWER_HEX = '0123456789abcdef';
const UPPER_HEX = '0123456789ABCDEF';
const DATE_TIME = ' 0123456789:-.TZ';

/** Whether a body begins as binary JSON does. Text never begins like this. */
export const isBinaryJson = (body: Buffer): boolean => body[0] === FORMAT;

/**
 * @throws WireError 400 for bytes that are not exactly one value, and for nesting beyond the depth; 413 for strings
 *   that are longer together than any request may be
 */
export function decodeBinaryJson(body: Buffer, maxDepth: number): unknown {
  try {
    const reader = new Reader(body);
    const value = reader.value(maxDepth);
    if (!reader.atEnd) throw new RangeError('it goes on after the value');
    return value;
  } catch (error) {
    if (error instanceof RangeError) throw badRequest(`The request body is not valid binary JSON: ${error.message}.`);
    throw error;
  }
}

class Reader {
  readonly #bytes: Buffer;
  #at = 1;
  #charactersLeft = MAX_CHARACTERS;
  /** Strings that were referred to, by their position. */
  readonly #referred = new Map<number, string>();

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get atEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  value(depthLeft: number): unknown {
    const marker = this.#bytes.readUInt8(this.#at);
    if (isString(marker)) return this.#string();
    if (marker >= 0xe0) return this.#nested(marker, depthLeft);
    this.#at += 1;
    if (marker < 0x20) return marker;
    switch (marker) {
      case 0xd0:
        return null;
      case 0xd1:
        return false;
      case 0xd2:
        return true;
      default:
        return this.#number(marker);
    }
  }

  #nested(marker: number, depthLeft: number): unknown {
    if (depthLeft <= 0) throw badRequest('The request body is nested too deeply.');
    this.#at += 1;
    if (marker >= 0xf0) return this.#uniformArray(marker, depthLeft);
    const end = this.#endOfNested(marker & 0x07);
    if (marker < 0xe8) return this.#upTo(end, () => this.value(depthLeft - 1));
    // Properties are not assigned, because `__proto__` is a valid name.
    const members = this.#upTo(end, () => [this.#string(), this.value(depthLeft - 1)] as const);
    const object = Object.fromEntries(members);
    keepNames(
      object,
      members.map(([name]) => name),
    );
    return object;
  }

  #upTo<T>(end: number | undefined, read: () => T): T[] {
    if (end === undefined) return [read()];
    const all: T[] = [];
    while (this.#at < end) all.push(read());
    if (this.#at !== end) throw new RangeError('a length does not match its contents');
    return all;
  }

  /**
   * The end of an array or object whose kind has been read; undefined for one with a single value, which does not give
   * its length.
   */
  #endOfNested(kind: number): number | undefined {
    if (kind === 0) return this.#at;
    if (kind === 1) return undefined;
    const isCounted = kind >= 5;
    const width = lengthWidths[(kind - 2) % 3]!;
    const length = this.#unsigned(width);
    if (isCounted) this.#at += width;
    return this.#at + length;
  }

  /** An array of numbers of one type, or an array of such arrays. */
  #uniformArray(marker: number, depthLeft: number): unknown {
    const width = marker === 0xf0 || marker === 0xf2 ? 1 : 2;
    const isOfArrays = marker === 0xf2 || marker === 0xf3;
    if (!isOfArrays && marker !== 0xf0 && marker !== 0xf1) throw unknownMarker(marker);
    if (isOfArrays && (depthLeft < 2 || this.#unsigned(1) !== (width === 1 ? 0xf0 : 0xf1))) {
      throw new RangeError('an array of number arrays contains something else');
    }
    const type = this.#unsigned(1);
    const count = this.#unsigned(width);
    const numbers = () => Array.from({ length: count }, () => this.#number(type));
    if (!isOfArrays) return numbers();
    const arrays = this.#unsigned(width);
    // An array without numbers takes no bytes, so a small body could contain any number of them.
    if (count === 0 && arrays > 0) throw new RangeError('the arrays of an array of number arrays are empty');
    return Array.from({ length: arrays }, numbers);
  }

  #number(marker: number): number | bigint {
    const bytes = this.#bytes;
    switch (marker) {
      case 0xc7:
        return integerValue(bytes.readBigUInt64LE(this.#pass(8)));
      case 0xc8:
      case 0xd7:
        return bytes.readUInt8(this.#pass(1));
      case 0xd8:
        return bytes.readInt8(this.#pass(1));
      case 0xc9:
      case 0xd9:
        return bytes.readInt16LE(this.#pass(2));
      case 0xca:
      case 0xda:
        return bytes.readInt32LE(this.#pass(4));
      case 0xdc:
        return bytes.readUInt32LE(this.#pass(4));
      case 0xcb:
      case 0xdb:
        return integerValue(bytes.readBigInt64LE(this.#pass(8)));
      case 0xcd:
        return bytes.readFloatLE(this.#pass(4));
      case 0xcc:
      case 0xce:
        return bytes.readDoubleLE(this.#pass(8));
      default:
        throw unknownMarker(marker);
    }
  }

  #string(): string {
    const text = this.#stringHere();
    this.#charactersLeft -= text.length;
    if (this.#charactersLeft < 0) throw tooLarge();
    return text;
  }

  #stringHere(): string {
    const marker = this.#unsigned(1);
    if (marker >= 0x80 && marker < 0xc0) return this.#utf8(marker - 0x80);
    if (marker >= 0x20 && marker < 0x40) return systemStrings[marker - 0x20]!;
    switch (marker) {
      case 0xc0:
        return this.#utf8(this.#unsigned(1));
      case 0xc1:
        return this.#utf8(this.#unsigned(2));
      case 0xc2:
        return this.#utf8(this.#unsigned(4));
      case 0xc3:
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return this.#stringAt(this.#unsigned(marker - 0xc2));
      case 0x71:
      case 0x72:
      case 0x73:
      case 0x74:
        return this.#base64(marker);
      case 0x75:
        return this.#guid(LOWER_HEX);
      case 0x76:
        return this.#guid(UPPER_HEX);
      case 0x77:
        return `"${this.#guid(LOWER_HEX)}"`;
      case 0x78:
        return this.#packed(this.#unsigned(1), 4, LOWER_HEX);
      case 0x79:
        return this.#packed(this.#unsigned(1), 4, UPPER_HEX);
      case 0x7a:
        return this.#packed(this.#unsigned(1), 4, DATE_TIME);
      case 0x7b:
      case 0x7c:
      case 0x7d: {
        const length = this.#unsigned(1);
        return this.#packed(length, marker - 0x77, this.#unsigned(1));
      }
      case 0x7e:
        return this.#packed(this.#unsigned(1), 7, 0);
      case 0x7f:
        return this.#packed(this.#unsigned(2), 7, 0);
      default:
        throw unknownMarker(marker);
    }
  }

  /** The string at a position in the body. It must not be a reference to another position. */
  #stringAt(place: number): string {
    let text = this.#referred.get(place);
    if (text === undefined) {
      const marker = this.#bytes.readUInt8(place);
      if (!isString(marker) || (marker >= 0xc3 && marker <= 0xc6))
        throw new RangeError('a string reference does not point to a string');
      const after = this.#at;
      this.#at = place;
      text = this.#stringHere();
      this.#at = after;
      this.#referred.set(place, text);
    }
    return text;
  }

  #utf8(length: number): string {
    const start = this.#pass(length);
    const text = this.#bytes.toString('utf8', start, start + length);
    if (text.includes('\uFFFD') && !isUtf8(this.#bytes.subarray(start, start + length))) {
      throw new RangeError('a string is not encoded in UTF-8');
    }
    return text;
  }

  #guid(digits: string): string {
    const hex = this.#packed(32, 4, digits);
    return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
  }

  /**
   * A string whose characters take `bits` bits each, the first character in the lowest bits.
   *
   * @param alphabet the characters that the numbers stand for, or the code of the character that 0 stands for
   */
  #packed(length: number, bits: number, alphabet: string | number): string {
    const bytes = Math.ceil((length * bits) / 8);
    const start = this.#pass(bytes);
    let text = '';
    for (let at = 0; at < length; at += 1) {
      const first = at * bits;
      const index = start + (first >> 3);
      const pair = this.#bytes[index]! | ((this.#bytes[index + 1] ?? 0) << 8);
      const number = (pair >> (first & 7)) & ((1 << bits) - 1);
      text += typeof alphabet === 'string' ? alphabet[number]! : String.fromCharCode(alphabet + number);
    }
    return text;
  }

  /** The base64 of some bytes. A number gives the length of the padding, negated when the string has none. */
  #base64(marker: number): string {
    const quarters = this.#unsigned(marker === 0x71 || marker === 0x73 ? 1 : 2);
    const said = this.#unsigned(1);
    const isOmitted = said > 2;
    const padding = isOmitted ? 255 - said : said;
    if (padding > 2) throw new RangeError('a base64 string has a padding longer than 2');
    const length = Math.floor(((quarters * 4 - padding) * 3) / 4);
    const start = this.#pass(Math.max(0, length));
    const text = this.#bytes.toString(marker <= 0x72 ? 'base64' : 'base64url', start, start + length);
    const unpadded = text.replace(/=+$/, '');
    return isOmitted ? unpadded : unpadded.padEnd(quarters * 4, '=');
  }

  /** An unsigned number of `width` bytes. */
  #unsigned(width: number): number {
    return this.#bytes.readUIntLE(this.#pass(width), width);
  }

  /** Skips `length` bytes, which must exist, and returns where they begin. */
  #pass(length: number): number {
    const start = this.#at;
    if (start + length > this.#bytes.length) throw new RangeError('it ends too early');
    this.#at += length;
    return start;
  }
}

const lengthWidths = [1, 2, 4] as const;

const isString = (marker: number): boolean => marker >= 0x20 && marker <= 0xc6;

const unknownMarker = (marker: number): RangeError =>
  new RangeError(`the type marker 0x${marker.toString(16)} is not supported`);
