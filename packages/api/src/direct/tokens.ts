/**
 * The tokens of direct mode, which take the place of HTTP headers. Each is a number, the type of its value, and the
 * value; numbers are little-endian. So unknown tokens can be skipped.
 *
 * @source `RntbdConstants` and `RntbdToken` of the .NET client, `RntbdTokenType` of the Java client
 */
export const tokenTypes = {
  byte: 0x00,
  uint16: 0x01,
  uint32: 0x02,
  int32: 0x03,
  uint64: 0x04,
  int64: 0x05,
  guid: 0x06,
  smallString: 0x07,
  string: 0x08,
  longString: 0x09,
  smallBytes: 0x0a,
  bytes: 0x0b,
  longBytes: 0x0c,
  float: 0x0d,
  double: 0x0e,
} as const;

export type TokenType = keyof typeof tokenTypes;

/** Thrown for bytes that can't be read as tokens: the sender does not use direct mode. */
export class UnreadableTokens extends Error {
  override readonly name = 'UnreadableTokens';
}

/** Bytes of a token before its value. */
const HEAD_BYTES = 3;

/** Values by the token's number: numbers, or the bytes of anything else. */
export type Tokens = ReadonlyMap<number, number | bigint | Buffer>;

/** @throws {UnreadableTokens} */
export function readTokens(bytes: Buffer): Tokens {
  const tokens = new Map<number, number | bigint | Buffer>();
  try {
    for (let at = 0; at < bytes.length;) {
      const [value, end] = readValue(bytes, bytes[at + 2]!, at + HEAD_BYTES);
      tokens.set(bytes.readUInt16LE(at), value);
      at = end;
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new UnreadableTokens('A token is truncated.');
  }
  return tokens;
}

function readValue(bytes: Buffer, type: number, at: number): readonly [value: number | bigint | Buffer, end: number] {
  switch (type) {
    case tokenTypes.byte:
      return [bytes.readUInt8(at), at + 1];
    case tokenTypes.uint16:
      return [bytes.readUInt16LE(at), at + 2];
    case tokenTypes.uint32:
      return [bytes.readUInt32LE(at), at + 4];
    case tokenTypes.int32:
      return [bytes.readInt32LE(at), at + 4];
    case tokenTypes.uint64:
      return [bytes.readBigUInt64LE(at), at + 8];
    case tokenTypes.int64:
      return [bytes.readBigInt64LE(at), at + 8];
    case tokenTypes.float:
      return [bytes.readFloatLE(at), at + 4];
    case tokenTypes.double:
      return [bytes.readDoubleLE(at), at + 8];
    case tokenTypes.guid:
      return part(bytes, at, 16);
    case tokenTypes.smallString:
    case tokenTypes.smallBytes:
      return part(bytes, at + 1, bytes.readUInt8(at));
    case tokenTypes.string:
    case tokenTypes.bytes:
      return part(bytes, at + 2, bytes.readUInt16LE(at));
    case tokenTypes.longString:
    case tokenTypes.longBytes:
      return part(bytes, at + 4, bytes.readUInt32LE(at));
    default:
      throw new UnreadableTokens(`A token has the unknown type ${type}.`);
  }
}

function part(bytes: Buffer, from: number, length: number): readonly [value: Buffer, end: number] {
  const end = from + length;
  if (end > bytes.length) throw new RangeError('beyond the end');
  return [bytes.subarray(from, end), end];
}

export class TokenWriter {
  readonly #parts: Buffer[] = [];
  #length = 0;

  get length(): number {
    return this.#length;
  }

  get parts(): readonly Buffer[] {
    return this.#parts;
  }

  number(token: number, type: 'byte' | 'uint32' | 'int64' | 'double', value: number): void {
    const size = { byte: 1, uint32: 4, int64: 8, double: 8 }[type];
    const bytes = this.#begin(token, type, size);
    if (type === 'byte') bytes.writeUInt8(value, HEAD_BYTES);
    else if (type === 'uint32') bytes.writeUInt32LE(value, HEAD_BYTES);
    else if (type === 'int64') bytes.writeBigInt64LE(BigInt(value), HEAD_BYTES);
    else bytes.writeDoubleLE(value, HEAD_BYTES);
  }

  /** A text that is too long for the type is cut. */
  text(token: number, type: 'smallString' | 'string', value: string): void {
    const [prefix, most] = type === 'string' ? [2, 0xffff] : [1, 0xff];
    const text = Buffer.from(value).subarray(0, most);
    const bytes = this.#begin(token, type, prefix + text.length);
    if (type === 'string') bytes.writeUInt16LE(text.length, HEAD_BYTES);
    else bytes.writeUInt8(text.length, HEAD_BYTES);
    text.copy(bytes, HEAD_BYTES + prefix);
  }

  #begin(token: number, type: TokenType, size: number): Buffer {
    const bytes = Buffer.allocUnsafe(HEAD_BYTES + size);
    bytes.writeUInt16LE(token, 0);
    bytes.writeUInt8(tokenTypes[type], 2);
    this.#parts.push(bytes);
    this.#length += bytes.length;
    return bytes;
  }
}
