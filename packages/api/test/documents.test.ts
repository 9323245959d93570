import { expect, test } from 'vitest';
import { Documents } from '@epitaph/api/store/documents.ts';
import type { StorePorts } from '@epitaph/api/store/parts.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';

const row = { birth: 1, partitionKey: '["ann"]', id: 'a', position: 1, ts: 1, key: 7 };
const container = { definition: { partitionKey: { paths: ['/customer'] } } } as unknown as ContainerState;

/** Documents whose vault answers when it is let. */
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

test('a document is kept decoded for the next who asks', async () => {
  const { documents, measured, answerAll } = withSlowVault();
  const first = documents.show(container, row);
  await answerAll();
  await first;
  expect(await documents.show(container, row)).toMatchObject({ json: '{"id":"a"}' });
  expect(measured).toEqual({ documentHits: 1, documentMisses: 1 });
});

test('what is purged while its key is looked up does not come back into the cache', async () => {
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

test('what is purged before the answer to its write is made does not come into the cache', async () => {
  const { documents, measured } = withSlowVault();
  documents.evict([row.position]);
  documents.put(row.position, '{"id":"a"}', '0');
  void documents.show(container, row);
  expect(measured).toEqual({ documentHits: 0, documentMisses: 1 });
});
