import { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { Pace } from '@epitaph/core/turn.ts';
import { CHUNK_CHARACTERS, sendStream } from './send-stream.ts';

/** A page has no more bytes of JSON than this, unless its first entry has. */
const PAGE_BYTES = 2 * 1024 * 1024;
/** Entries that are read at a time: one may name ten thousand lives. */
const READ_AT_ONCE = 32;

/** Small entries that are read at a time: the ledger of a life is gone through for each page of it. */
const PAGE_ENTRIES = 10_000;

/** A list that is answered in pages, or whole. */
export interface List<Entry> {
  /** What the answer has besides. */
  readonly head: Readonly<Record<string, unknown>>;
  /** What its entries are called in the answer. */
  readonly name: string;
  /** With a limit one more than that, where there are: which tells that there is a next page. */
  readonly entries: AsyncIterable<Entry> | Iterable<Entry>;
  /** Where the page behind it begins; not given for one that has no pages. */
  readonly placeOf?: (entry: Entry) => number;
  readonly shapeOf: (entry: Entry) => unknown;
}

/**
 * With a limit a page, which ends earlier where its entries are large, and says where the next one begins if there is one.
 * Without one the whole list, which is sent while it is read where it is more than a page.
 */
export async function answerList<Entry>(
  reply: FastifyReply,
  limit: number | undefined,
  { head, name, entries, placeOf, shapeOf }: List<Entry>,
): Promise<unknown> {
  const page: unknown[] = [];
  let place: number | undefined;
  let bytes = 0;
  const left = each(entries);
  let next = await left.next();
  for (; next.done !== true && page.length !== limit; next = await left.next()) {
    const entry = shapeOf(next.value);
    bytes += Buffer.byteLength(JSON.stringify(entry));
    if (bytes > PAGE_BYTES && page.length > 0) break;
    page.push(entry);
    place = placeOf?.(next.value);
  }
  if (next.done === true) return { ...head, [name]: page };
  if (limit !== undefined) return { ...head, [name]: page, continuation: `${place}` };
  const behind = next.value;
  const text = async function* () {
    yield JSON.stringify({ ...head, [name]: page }).slice(0, -']}'.length);
    let chunk = `,${JSON.stringify(shapeOf(behind))}`;
    for await (const entry of left) {
      if (chunk.length > CHUNK_CHARACTERS) {
        yield chunk;
        chunk = '';
      }
      chunk += `,${JSON.stringify(shapeOf(entry))}`;
    }
    yield `${chunk}]}`;
  };
  return sendStream(reply, 'application/json; charset=utf-8', () => Readable.from(text(), { objectMode: false }));
}

/** What a place is followed by, so many entries at most or all of them, a few at a time. */
export async function* readInParts<Entry>(
  read: (after: number | undefined, most: number) => Promise<readonly Entry[]>,
  placeOf: (entry: Entry) => number,
  { after, most = Number.POSITIVE_INFINITY }: { readonly after: number | undefined; readonly most: number | undefined },
): AsyncGenerator<Entry> {
  const pace = new Pace();
  let place = after;
  for (let left = most; left > 0;) {
    const wanted = Math.min(left, READ_AT_ONCE);
    const entries = await read(place, wanted);
    yield* entries;
    if (entries.length < wanted) return;
    place = placeOf(entries.at(-1)!);
    left -= entries.length;
    await pace.step();
  }
}

/** The same of what is read in pages that say where the next one begins. */
export async function* allPages<Entry>(
  read: (
    after: string | undefined,
    most: number,
  ) => Promise<{ readonly entries: readonly Entry[]; readonly continuation?: string }>,
  after: string | undefined,
): AsyncGenerator<Entry> {
  const pace = new Pace();
  for (let place = after; ;) {
    const { entries, continuation } = await read(place, PAGE_ENTRIES);
    yield* entries;
    if (continuation === undefined) return;
    place = continuation;
    await pace.step();
  }
}

async function* each<Entry>(entries: AsyncIterable<Entry> | Iterable<Entry>): AsyncGenerator<Entry> {
  yield* entries;
}
