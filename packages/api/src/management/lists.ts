import { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { Pace } from '@epitaph/core/turn.ts';
import { CHUNK_CHARACTERS, sendStream } from './send-stream.ts';

/** The most bytes of JSON in a page. A page whose first entry alone is larger has that entry. */
const PAGE_BYTES = 2 * 1024 * 1024;
/** Entries that are read at once. An entry may name ten thousand lives. */
const READ_AT_ONCE = 32;

/** Small entries that are read at once. The ledger of a life is read through again for each page, so pages are large. */
const PAGE_ENTRIES = 10_000;

/** A list that is answered in pages or as a whole. */
export interface List<Entry> {
  /** The properties of the answer beside the entries. */
  readonly head: Readonly<Record<string, unknown>>;
  /** The property of the answer that has the entries. */
  readonly name: string;
  /** With a limit, one entry more than the limit if there are that many: it tells that there is a next page. */
  readonly entries: AsyncIterable<Entry> | Iterable<Entry>;
  /** The place of an entry, from which the next page continues. Not given for a list without pages. */
  readonly placeOf?: (entry: Entry) => number;
  readonly shapeOf: (entry: Entry) => unknown;
}

/**
 * Answers with a page if a limit is given, otherwise with the whole list. A page ends before the limit if its entries are large, and names
 * the place where the next page begins, if there is one. A whole list that is larger than a page is sent while it is read.
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

/** The entries after a place, as many as asked for or all of them, read a few at a time. */
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

/** All entries after a place, from a reader that returns pages with continuations. */
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
