import { crc32 } from 'node:zlib';
import { badRequest } from './errors.ts';

/**
 * HybridRow, as far as batches need it. The .NET client sends the operations of a batch as a RecordIO stream of rows
 * with two known schemas, and reads the results from such a stream. Source: the format's grammar and schemas in
 * github.com/microsoft/HybridRow and `HybridRowBatchSchemas.json` of the client.
 *
 * A row is a header (version, schema), bits that say which fields exist, fields of fixed size, fields of variable size
 * after their lengths, then sparse fields, each with its type and name. Numbers are little-endian.
 */
const VERSION = 0x81;
const SEGMENT_SCHEMA = 2_147_473_648;
const RECORD_SCHEMA = 2_147_473_649;
const OPERATION_SCHEMA = 2_145_473_648;
const RESULT_SCHEMA = 2_145_473_649;
const ROW_HEADER_BYTES = 5;
const SEGMENT_BYTES = 10;
const RECORD_BYTES = 13;

const typeCode = {
  boolFalse: 2,
  bool: 3,
  int32: 7,
  uint32: 11,
  float64: 16,
  utf8: 20,
  binary: 21,
} as const;

interface Schema {
  readonly id: number;
  /** Each field takes 4 bytes. */
  readonly fixed: readonly string[];
  readonly variable: readonly string[];
  readonly sparse: readonly string[];
}

const operationSchema: Schema = {
  id: OPERATION_SCHEMA,
  fixed: ['operationType', 'resourceType'],
  variable: ['partitionKey', 'effectivePartitionKey', 'id', 'binaryId', 'resourceBody'],
  sparse: ['indexingDirective', 'ifMatch', 'ifNoneMatch', 'timeToLiveInSeconds', 'minimalReturnPreference'],
};

const resultSchema: Schema = {
  id: RESULT_SCHEMA,
  fixed: ['statusCode', 'subStatusCode'],
  variable: ['eTag', 'resourceBody'],
  sparse: ['retryAfterMilliseconds', 'requestCharge'],
};

type Value = number | boolean | Buffer;

/** Whether a body begins as a RecordIO stream does. JSON never begins like this. */
export function isHybridRow(body: Buffer): boolean {
  return body[0] === VERSION;
}

/**
 * The rows of a batch's operations, by the names of their fields. Texts are left as bytes.
 *
 * @throws WireError 400 for bytes that are not a complete and valid stream of such rows
 */
export function decodeOperations(stream: Buffer): ReadonlyMap<string, Value>[] {
  try {
    return decodeRecords(stream, operationSchema);
  } catch (error) {
    if (error instanceof RangeError) throw badRequest(`The request body is not a HybridRow stream: ${error.message}.`);
    throw error;
  }
}

export interface ResultRow {
  readonly statusCode: number;
  readonly subStatusCode?: number | undefined;
  readonly eTag?: string | undefined;
  readonly resourceBody?: string | undefined;
  readonly retryAfterMilliseconds?: number | undefined;
  readonly requestCharge: number;
}

/** The stream of a batch's results. */
export function encodeResults(results: readonly ResultRow[]): Buffer {
  const segment = Buffer.alloc(SEGMENT_BYTES);
  writeHeader(segment, SEGMENT_SCHEMA);
  segment[ROW_HEADER_BYTES] = 1;
  segment.writeInt32LE(SEGMENT_BYTES, ROW_HEADER_BYTES + 1);
  const parts: Buffer[] = [segment];
  for (const result of results) {
    const row = encodeResult(result);
    const record = Buffer.alloc(RECORD_BYTES);
    writeHeader(record, RECORD_SCHEMA);
    record.writeInt32LE(row.length, ROW_HEADER_BYTES);
    record.writeUInt32LE(crc32(row), ROW_HEADER_BYTES + 4);
    parts.push(record, row);
  }
  return Buffer.concat(parts);
}

function encodeResult(result: ResultRow): Buffer {
  const head = Buffer.alloc(ROW_HEADER_BYTES + 9);
  writeHeader(head, RESULT_SCHEMA);
  let present = 0b11;
  head.writeInt32LE(result.statusCode, ROW_HEADER_BYTES + 1);
  head.writeInt32LE(result.subStatusCode ?? 0, ROW_HEADER_BYTES + 5);
  const parts: Buffer[] = [head];
  for (const [index, text] of [result.eTag, result.resourceBody].entries()) {
    if (text === undefined) continue;
    present |= 1 << (resultSchema.fixed.length + index);
    const bytes = Buffer.from(text);
    parts.push(varint(bytes.length), bytes);
  }
  head[ROW_HEADER_BYTES] = present;
  if (result.retryAfterMilliseconds !== undefined) {
    const value = Buffer.alloc(4);
    value.writeUInt32LE(result.retryAfterMilliseconds);
    parts.push(sparseHead(typeCode.uint32, 'retryAfterMilliseconds'), value);
  }
  const charge = Buffer.alloc(8);
  charge.writeDoubleLE(result.requestCharge);
  parts.push(sparseHead(typeCode.float64, 'requestCharge'), charge);
  return Buffer.concat(parts);
}

function writeHeader(row: Buffer, schema: number): void {
  row[0] = VERSION;
  row.writeInt32LE(schema, 1);
}

/** A name in the schema is written as its number, counted over all fields from 1. */
const namesOf = ({ fixed, variable, sparse }: Schema): readonly string[] => ['', ...fixed, ...variable, ...sparse];

const sparseHead = (code: number, name: string): Buffer =>
  Buffer.concat([Buffer.of(code), varint(namesOf(resultSchema).indexOf(name))]);

/** A number in 7 bits per byte, lowest first. The high bit says that more bytes follow. */
function varint(value: number): Buffer {
  const bytes: number[] = [];
  let left = value;
  while (left >= 0x80) {
    bytes.push((left % 0x80) | 0x80);
    left = Math.floor(left / 0x80);
  }
  return Buffer.from([...bytes, left]);
}

/** Reads forward. Throws a RangeError instead of reading beyond the end. */
class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get done(): boolean {
    return this.#at >= this.#bytes.length;
  }

  take(count: number): Buffer {
    if (count > this.#bytes.length - this.#at) throw new RangeError('it ends too early');
    const taken = this.#bytes.subarray(this.#at, this.#at + count);
    this.#at += count;
    return taken;
  }

  byte(): number {
    return this.take(1)[0]!;
  }

  varint(): number {
    let value = 0;
    for (let factor = 1; factor <= 0x80 ** 4; factor *= 0x80) {
      const byte = this.byte();
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
    }
    throw new RangeError('a length is out of range');
  }

  /** Reads a row's header. @returns its schema */
  header(): number {
    if (this.byte() !== VERSION) throw new RangeError('a row has a version other than 1');
    return this.take(4).readInt32LE();
  }
}

function decodeRecords(stream: Buffer, schema: Schema): ReadonlyMap<string, Value>[] {
  const rows: ReadonlyMap<string, Value>[] = [];
  const reader = new Reader(stream);
  while (!reader.done) {
    switch (reader.header()) {
      case SEGMENT_SCHEMA: {
        if ((reader.byte() & 1) === 0) throw new RangeError('a segment has no length');
        const length = reader.take(4).readInt32LE();
        // The other fields of a segment, such as comments, are not needed.
        reader.take(Math.max(0, length - SEGMENT_BYTES));
        break;
      }
      case RECORD_SCHEMA: {
        const length = reader.take(4).readInt32LE();
        const sum = reader.take(4).readUInt32LE();
        if (length < ROW_HEADER_BYTES) throw new RangeError('a record is too short');
        const row = reader.take(length);
        if (crc32(row) !== sum) throw new RangeError('the checksum of a record is wrong');
        rows.push(decodeRow(new Reader(row), schema));
        break;
      }
      default:
        throw new RangeError('a row has an unknown schema');
    }
  }
  return rows;
}

function decodeRow(reader: Reader, schema: Schema): ReadonlyMap<string, Value> {
  if (reader.header() !== schema.id) throw new RangeError('a record has an unknown schema');
  const { fixed, variable } = schema;
  const names = namesOf(schema);
  const row = new Map<string, Value>();
  const present = reader.take(Math.ceil((fixed.length + variable.length) / 8));
  const has = (index: number) => (present[index >> 3]! & (1 << (index & 7))) !== 0;
  for (const [index, name] of fixed.entries()) {
    const value = reader.take(4).readInt32LE();
    if (has(index)) row.set(name, value);
  }
  for (const [index, name] of variable.entries()) {
    if (has(fixed.length + index)) row.set(name, reader.take(reader.varint()));
  }
  while (!reader.done) {
    const code = reader.byte();
    const token = reader.varint();
    const name = token < names.length ? names[token]! : reader.take(token - names.length).toString();
    row.set(name, sparseValue(reader, code));
  }
  return row;
}

function sparseValue(reader: Reader, code: number): Value {
  switch (code) {
    case typeCode.boolFalse:
      return false;
    case typeCode.bool:
      return true;
    case typeCode.int32:
      return reader.take(4).readInt32LE();
    case typeCode.uint32:
      return reader.take(4).readUInt32LE();
    case typeCode.float64:
      return reader.take(8).readDoubleLE();
    case typeCode.utf8:
    case typeCode.binary:
      return reader.take(reader.varint());
    default:
      throw new RangeError(`a field has the type ${code}, which no field of an operation has`);
  }
}
