import { describe, expect, it, test } from 'vitest';
import { Documents, DOCUMENT_BYTES, ScanRoom } from '@epitaph/api/store/items/documents.ts';
import type { StorePorts } from '@epitaph/api/store/parts.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { ItemRow } from '@epitaph/projections/read-model-store.ts';
import { collectGarbage } from './collect-garbage.ts';

const row = { birth: 1, partitionKey: '["ann"]', id: 'a', position: 1, ts: 1, key: 7 };
const container = {
  rid: 'q8gAAJaB2wA=',
  definition: { partitionKey: { paths: ['/customer'] } },
} as unknown as ContainerState;

/** Documents whose vault answers when the test lets it. */
function withSlowVault() {
  const answers: ((found: object) => void)[] = [];
  const there = { status: 'there', key: {} };
  const ports = {
    log: { readBody: () => ({ id: '0', stream: 's', revision: 0, body: new Uint8Array() }) },
    vault: { findKey: () => new Promise((resolve) => answers.push(resolve)) },
    sealer: { open: () => Buffer.from('{"id":"a"}') },
    readModels: { current: { store: {} } },
  };
  const measured = { documentHits: 0, documentMisses: 0 };
  const documents = new Documents(ports as unknown as StorePorts, measured);
  const answerAll = async (): Promise<void> => {
    for (let turn = 0; turn < 10; turn++) {
      answers.splice(0).forEach((answer) => answer(there));
      await Promise.resolve();
    }
  };
  return { documents, measured, answerAll };
}

test('a document is kept decoded for the next reader', async () => {
  const { documents, measured, answerAll } = withSlowVault();
  const first = documents.show(container, row);
  await answerAll();
  await first;
  expect(await documents.show(container, row)).toMatchObject({ json: '{"id":"a"}' });
  expect(measured).toEqual({ documentHits: 1, documentMisses: 1 });
});

test('an item purged while its key is looked up does not get into the cache', async () => {
  const { documents, measured, answerAll } = withSlowVault();
  const reading = documents.show(container, row);
  // The vault has been asked by then.
  for (let turn = 0; turn < 5; turn++) await Promise.resolve();
  documents.evict([row.position]);
  await answerAll();
  await reading;
  void documents.show(container, row);
  expect(measured).toEqual({ documentHits: 0, documentMisses: 2 });
});

test('an item purged before its write is answered does not get into the cache', async () => {
  const { documents, measured } = withSlowVault();
  documents.evict([row.position]);
  documents.put(row.position, '{"id":"a"}', '0');
  void documents.show(container, row);
  expect(measured).toEqual({ documentHits: 0, documentMisses: 1 });
});

describe('a scan', () => {
  const json = (position: number) => `{"id":"${position}"}`;
  const rows = [1, 2, 3].map((position) => ({ ...row, birth: position, position, container: 2 }) as ItemRow);
  /** A vault that answers at once, and read models with or without the sealed bodies. Notes which bodies were opened. */
  function withSealed(isFetched: boolean) {
    const opened: number[] = [];
    const destroyed = new Set<number>();
    const sealed = (position: number) => ({
      position,
      stream: String(position),
      revision: 0,
      eventId: '0',
      body: { id: '0', stream: String(position), revision: 0, body: new Uint8Array() },
    });
    const ports = {
      log: { readBody: (position: number) => sealed(position).body },
      vault: {
        findKey: (_key: number, stream: string) => ({
          status: destroyed.has(Number(stream)) ? 'destroyed' : 'there',
          key: {},
        }),
      },
      sealer: {
        open: (_key: object, stream: string) => {
          opened.push(Number(stream));
          return Buffer.from(json(Number(stream)));
        },
      },
      readModels: {
        current: {
          store: isFetched
            ? { sealedBodies: (_container: number, births: number[]) => Promise.resolve(births.map(sealed)) }
            : {},
        },
      },
    };
    const documents = new Documents(ports as unknown as StorePorts, { documentHits: 0, documentMisses: 0 });
    const scan = async (room: ScanRoom): Promise<number[]> => {
      opened.length = 0;
      await documents.prefetch(rows, room);
      for (const each of rows) {
        expect(await documents.parse(container, each, room)).toMatchObject({ id: String(each.position) });
      }
      return opened;
    };
    return { documents, scan, destroyed };
  }

  it.each([false, true])(
    'leaves no more in the cache than fits, and opens each of the others once (fetched together: %s)',
    async (isFetched) => {
      const { documents, scan } = withSealed(isFetched);
      const ofTwo = 2 * (DOCUMENT_BYTES + json(1).length);
      expect(await scan(new ScanRoom(ofTwo))).toEqual([1, 2, 3]);
      expect(rows.map((each) => documents.parsed(each) !== undefined)).toEqual([true, true, false]);
      expect(await scan(new ScanRoom(ofTwo))).toEqual([3]);
      expect(documents.parsed(rows[2]!)).toBeDefined();
    },
  );

  it('leaves no more in the cache than a few times what fits, however small the documents are', async () => {
    const heapBytes = () => {
      collectGarbage();
      return process.memoryUsage().heapUsed;
    };
    const ports = {
      log: {
        readBody: (position: number) => ({ id: `${position}`, stream: 's', revision: 0, body: new Uint8Array() }),
      },
      vault: { findKey: () => ({ status: 'there', key: {} }) },
      sealer: { open: () => Buffer.from('{"id":"a","customer":"ann"}') },
      readModels: { current: { store: {} } },
    };
    const documents = new Documents(ports as unknown as StorePorts, { documentHits: 0, documentMisses: 0 });
    const roomBytes = 4 * 1024 * 1024;
    const room = new ScanRoom(roomBytes);
    const before = heapBytes();
    for (let position = 1; position <= 50_000; position += 1) {
      await documents.parse(container, { ...row, position, birth: position } as ItemRow, room);
    }
    expect(room.isFull).toBe(true);
    expect(heapBytes() - before).toBeLessThan(4 * roomBytes);
    expect(documents.parsed({ ...row, position: 1 } as ItemRow)).toBeDefined();
  });

  it('does not show an item that was purged since it was fetched', async () => {
    const { documents, destroyed } = withSealed(true);
    const room = new ScanRoom(0);
    await documents.prefetch(rows, room);
    destroyed.add(1);
    documents.evict([1]);
    expect(await documents.parse(container, rows[0]!, room)).toBeUndefined();
    expect(await documents.parse(container, rows[1]!, room)).toMatchObject({ id: '2' });
  });
});
