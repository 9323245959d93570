import { hash } from 'node:crypto';
import { type DocumentPath, valueAt } from '@epitaph/core/document-path.ts';
import { isItemWrite } from '@epitaph/core/item/events.ts';
import { parseItemStream } from '@epitaph/core/item/stream-name.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { UnreadableEvent } from '@epitaph/core/upcast.ts';
import type { CatalogContainer } from '../catalog/catalog.ts';
import { type ClearCopy, type ClearEntry, clearValue } from '../items/clear-values.ts';
import type { ItemRow } from '../read-model-store.ts';
import {
  BODIES_AT_ONCE,
  type Container,
  type Examination,
  leftWithPartitionKey,
  readItemWrite,
} from './examination.ts';

/** How many rows of the read models are read at a time. */
const ROWS_AT_ONCE = 1_000;
/** How many items have their values in clear checked at a time. Each time, all such values of their container are read. */
const COPIES_OF_AT_ONCE = 200_000;

/**
 * Checks that every row of a container belongs to an item that is live according to the log, that its values in clear
 * are those of its document, and that there are no other values in clear.
 *
 * @returns the number of rows
 */
export async function checkRows(
  { number, state: { rid } }: CatalogContainer,
  examination: Examination,
): Promise<number> {
  const { store, upTo, report, pace, signal, onRowsChecked, deletesByLives } = examination;
  const container = await examination.containerOf(rid);
  const hasCopies = container.clearPaths.length > 0 || (await store.clearCopies(number, undefined, 1)).length > 0;
  let items = 0;
  let expected = new Map<number, ExpectedCopies>();
  let from = 0;
  for (let afterBirth = 0; ;) {
    signal?.throwIfAborted();
    const rows = await store.allItems(number, afterBirth, ROWS_AT_ONCE);
    for (let start = 0; start < rows.length; start += BODIES_AT_ONCE) {
      const some = rows.slice(start, start + BODIES_AT_ONCE);
      const found = await Promise.all(
        some.map((row) => liveByLog(row, rid, container, examination).catch(unknownIfUnreadable)),
      );
      for (const [index, row] of some.entries()) {
        const live = found[index]!;
        if (live === 'lost') {
          report(
            'writes-missing',
            rid,
            `the log has nothing at ${row.position}, the last write of an item of birth ${row.birth}`,
          );
        } else if (live === 'no') {
          report(
            'row-without-item',
            rid,
            `the read model has an item of birth ${row.birth} that the log does not show as live`,
          );
        } else if (isShownAgain(row, deletesByLives.get(rid))) {
          report(
            'shown-after-its-end',
            rid,
            `the read model has an item of birth ${row.birth} that was written before its partition key was deleted, although the log has this deletion only for other items of the key`,
          );
        }
        if (hasCopies && live !== 'lost' && live !== 'no') {
          const { birth } = row;
          expected.set(birth, {
            row,
            sum: live === 'unknown' ? undefined : await clearSumOf(live, container, examination),
          });
        }
      }
      await pace.step();
    }
    items += rows.length;
    const last = rows.at(-1);
    if (last !== undefined) {
      for (const birth of await store.dueOtherwise(number, afterBirth, last.birth)) {
        report(
          'row-differs',
          rid,
          `the read model has the item of birth ${birth} with another deadline than its own ttl gives`,
        );
      }
    }
    if (hasCopies && (last === undefined || expected.size >= COPIES_OF_AT_ONCE)) {
      const births = { after: from, upTo: last?.birth ?? upTo };
      await checkClearCopies({ number, rid }, births, expected, examination);
      from = births.upTo;
      expected = new Map();
    }
    onRowsChecked(rows.length);
    if (last === undefined) return items;
    afterBirth = last.birth;
  }
}

/**
 * The write that a row was made from, if the item is live according to the log; `unknown` if it has changed since the
 * log was read, `lost` if the log has no such write and does not say why.
 */
async function liveByLog(
  row: ItemRow,
  rid: string,
  { state, isWhole, partitionKeyDeletes }: Container,
  { log, store, upTo, shownAfterEnd }: Examination,
): Promise<RecordedEvent | 'no' | 'lost' | 'unknown'> {
  if (row.birth > upTo || row.position > upTo || (state === undefined && !isWhole)) return 'unknown';
  const write = await log.readAt(row.position);
  if (write !== undefined && isItemWrite(write) && state !== undefined) {
    const item = parseItemStream(write.stream);
    const { id, partitionKey } = write.data;
    if (item?.containerRid === rid && item.life === row.life && id === row.id && partitionKey === row.partitionKey) {
      const last = await log.readLast(write.stream);
      if (last === undefined || last.position > upTo) return 'unknown';
      if (isItemWrite(last)) {
        const { ts, ttl } = readItemWrite(last);
        const life = { ts, ttl, partitionKey: row.partitionKey, lastPosition: last.position };
        // A row with the position of an earlier write is reported when its life is examined.
        if (!leftWithPartitionKey(life, state.timeline, partitionKeyDeletes))
          return write.position === last.position ? write : 'unknown';
      }
    }
  }
  const now = await store.findItem(row.container, row.partitionKey, row.id);
  if (now?.birth !== row.birth || now.position !== row.position) return 'unknown';
  return write === undefined && !shownAfterEnd.has(row.birth) ? 'lost' : 'no';
}

/** True for an item that was written before its partition key was deleted, in an earlier second. */
function isShownAgain({ ts, partitionKey }: ItemRow, deletes: ReadonlyMap<string, number> | undefined): boolean {
  return (ts + 1) * 1000 <= (deletes?.get(partitionKey) ?? 0);
}

/** Events that can't be read are reported when their life is examined. */
function unknownIfUnreadable(error: unknown): 'unknown' {
  if (error instanceof UnreadableEvent) return 'unknown';
  throw error;
}

/** The {@link clearSum} of the values in clear of a written document. Undefined if its body can't be opened. */
async function clearSumOf(
  write: RecordedEvent,
  { clearPaths }: Container,
  { vault, sealer }: Examination,
): Promise<number | undefined> {
  if (clearPaths.length === 0) return 0;
  const { stream, revision, body = new Uint8Array() } = write;
  const found = await vault.findKey(readItemWrite(write).key, stream);
  if (found.status !== 'there') return undefined;
  try {
    return clearSum(copiesOf(sealer.open(found.key, stream, revision, body), clearPaths));
  } catch {
    // Reported when the write itself is examined.
    return undefined;
  }
}

/** The values in clear that an item must have. Undefined if they are not known. */
interface ExpectedCopies {
  readonly row: ItemRow;
  readonly sum: number | undefined;
}

/**
 * Checks the values in clear of items with their births in a range: live items must have those of their documents, and
 * there must be no others.
 */
async function checkClearCopies(
  { number, rid }: { readonly number: number; readonly rid: string },
  births: { readonly after: number; readonly upTo: number },
  expected: ReadonlyMap<number, ExpectedCopies>,
  { store, signal, pace, report }: Examination,
): Promise<void> {
  const sums = new Map<number, number>();
  const left = new Set<number>();
  for (let after: ClearCopy | undefined; ;) {
    const copies = await store.clearCopies(number, after, ROWS_AT_ONCE);
    for (const copy of copies) {
      const { birth } = copy;
      if (birth <= births.after || birth > births.upTo) continue;
      if (expected.has(birth)) sums.set(birth, plus(sums.get(birth) ?? 0, clearSum([copy])));
      else left.add(birth);
    }
    after = copies.at(-1);
    if (after === undefined) break;
    signal?.throwIfAborted();
    await pace.step();
  }
  for (const birth of left) {
    report(
      'clear-copies-left',
      rid,
      `values at clear paths of an item of birth ${birth}, which the log does not show as live`,
    );
  }
  for (const [birth, { sum, row }] of expected) {
    await pace.step();
    if (sum === undefined || (sums.get(birth) ?? 0) === sum) continue;
    // The item may have been written, or may have left, since the log was read.
    const now = await store.findItem(number, row.partitionKey, row.id);
    if (now?.position !== row.position) continue;
    report(
      'clear-copies-differ',
      rid,
      `the values at clear paths of the item of birth ${birth} are not those of its document`,
    );
  }
}

/** One number for the values in clear of an item, independent of their order: the sum of 48 bits of each value's hash. */
function clearSum(copies: readonly ClearEntry[]): number {
  return copies
    .map(({ path, value }) => hash('sha256', Buffer.from(`${path} ${value}`, 'utf16le'), 'buffer').readUIntBE(0, 6))
    .reduce(plus, 0);
}

function copiesOf(body: Uint8Array, paths: readonly DocumentPath[]): ClearEntry[] {
  const document: unknown = JSON.parse(Buffer.from(body).toString('utf8'));
  return paths.flatMap((path, index) => {
    const value = clearValue(valueAt(document, path));
    return value === undefined ? [] : [{ path: index, value }];
  });
}

const plus = (left: number, right: number): number => (left + right) % 2 ** 48;
