/** A file of an archive. */
export interface ArchivedFile {
  readonly name: string;
  readonly content: Buffer;
}

const BLOCK = 512;
/** Offsets of the fields in a header block. */
const FIELDS = {
  mode: 100,
  owner: 108,
  group: 116,
  size: 124,
  time: 136,
  checksum: 148,
  type: 156,
  magic: 257,
  prefix: 345,
} as const;
/** The length of the `prefix` field, which holds the first part of a long name. */
const PREFIX_BYTES = 155;
const LARGEST_FILE = 64 * 1024 * 1024;

class DamagedArchive extends Error {
  override readonly name = 'DamagedArchive';
}

/**
 * Writes files as a tar archive, one at a time.
 *
 * Source of the format: POSIX.1-2017, pax, "ustar Interchange Format".
 *
 * @param atMs the time that the files are given, in milliseconds
 */
export async function* writeTar(files: AsyncIterable<ArchivedFile>, atMs: number): AsyncGenerator<Buffer> {
  for await (const { name, content } of files) {
    yield header(name, content.length, atMs);
    yield content;
    yield Buffer.alloc((BLOCK - (content.length % BLOCK)) % BLOCK);
  }
  yield Buffer.alloc(2 * BLOCK);
}

function header(name: string, size: number, atMs: number): Buffer {
  if (Buffer.byteLength(name) > FIELDS.mode) throw new RangeError(`the name ${name} is too long for the archive`);
  const block = Buffer.alloc(BLOCK);
  const octal = (value: number, at: number, digits: number) =>
    block.write(`${value.toString(8).padStart(digits, '0')}\0`, at, 'latin1');
  block.write(name, 0, 'utf8');
  octal(0o644, FIELDS.mode, 7);
  octal(0, FIELDS.owner, 7);
  octal(0, FIELDS.group, 7);
  octal(size, FIELDS.size, 11);
  octal(Math.floor(atMs / 1000), FIELDS.time, 11);
  block.write('0', FIELDS.type, 'latin1');
  block.write('ustar\u000000', FIELDS.magic, 'latin1');
  octal(checksum(block), FIELDS.checksum, 6);
  block.write(' ', FIELDS.checksum + 7, 'latin1');
  return block;
}

/** The sum of a header's bytes. The checksum field itself counts as spaces. */
function checksum(block: Buffer): number {
  let sum = 0;
  for (const [index, byte] of block.entries()) {
    sum += index >= FIELDS.checksum && index < FIELDS.type ? 0x20 : byte;
  }
  return sum;
}

/**
 * Reads an archive of plain files, one at a time.
 *
 * @throws DamagedArchive for entries that {@link writeTar} does not write, and for an archive that is cut short
 */
export async function* readTar(chunks: AsyncIterable<Buffer>): AsyncGenerator<ArchivedFile> {
  const source = chunks[Symbol.asyncIterator]();
  let rest: Buffer = Buffer.alloc(0);
  /** The bytes that are available next, however many; empty at the end. */
  const takeAny = async (): Promise<Buffer> => {
    if (rest.length === 0) {
      const next = await source.next();
      return next.done === true ? rest : next.value;
    }
    const taken = rest;
    rest = Buffer.alloc(0);
    return taken;
  };
  const take = async (length: number): Promise<Buffer> => {
    const parts = [rest];
    for (let have = rest.length; have < length;) {
      const next = await source.next();
      if (next.done === true) throw new DamagedArchive('The archive ends too early.');
      parts.push(next.value);
      have += next.value.length;
    }
    const whole = Buffer.concat(parts);
    rest = whole.subarray(length);
    return whole.subarray(0, length);
  };
  for (;;) {
    const block = await take(BLOCK);
    if (isEmpty(block)) break;
    const field = (at: number, length: number) => block.toString('utf8', at, at + length).replace(/[\0 ].*$/s, '');
    if (Number.parseInt(field(FIELDS.checksum, 8), 8) !== checksum(block)) {
      throw new DamagedArchive('A header of the archive is damaged, or it is not a tar archive.');
    }
    const size = Number.parseInt(field(FIELDS.size, 12), 8);
    const hasPrefix = !isEmpty(block.subarray(FIELDS.prefix, FIELDS.prefix + PREFIX_BYTES));
    if (!(size <= LARGEST_FILE) || field(FIELDS.type, 1) !== '0' || hasPrefix) {
      throw new DamagedArchive("The archive contains an entry that a bundle can't have.");
    }
    const name = block.toString('utf8', 0, FIELDS.mode).replace(/\0.*$/s, '');
    const content = await take(size);
    await take((BLOCK - (size % BLOCK)) % BLOCK);
    yield { name, content };
  }
  // Two empty blocks are the end, and programs treat data after it differently. So everything up to the end of the input is checked to be
  // empty, which also makes the decompressor verify its own checksum.
  let after = await take(BLOCK);
  for (; after.length > 0; after = await takeAny()) {
    if (!isEmpty(after)) throw new DamagedArchive('The archive has data after its end.');
  }
}

const isEmpty = (bytes: Buffer): boolean => bytes.every((byte) => byte === 0);
