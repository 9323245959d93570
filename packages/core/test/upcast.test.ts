import { describe, expect, it } from 'vitest';
import { evolveContainer } from '@epitaph/core/container/evolve.ts';
import { readContainerEvent } from '@epitaph/core/container/upcast.ts';
import { readDatabaseEvent } from '@epitaph/core/database/upcast.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { UnreadableEvent } from '@epitaph/core/upcast.ts';
import { recordedEvent } from '@epitaph/core/testing/recorded-event.ts';

/** As recorded by version 1 of the store. Never change this. */
const createdV1: RecordedEvent = {
  id: '7f9c24e8-3b0a-4d5e-9a61-0d2c7b1f4e55',
  type: 'ContainerCreated',
  version: 1,
  data: {
    databaseRid: 'Db1',
    name: 'carts',
    definition: {
      partitionKey: { paths: ['/tenant'], kind: 'Hash', version: 2 },
      indexingPolicy: { indexingMode: 'consistent', automatic: true },
      conflictResolutionPolicy: { mode: 'LastWriterWins' },
    },
    defaultTtl: 60,
  },
  occurredAtMs: 1_763_722_800_000,
  actor: 'key:primary',
  correlationId: '5f3c24e8-3b0a-4d5e-9a61-0d2c7b1f4e55',
  causationId: '5f3c24e8-3b0a-4d5e-9a61-0d2c7b1f4e55',
  stream: 'container-Co1',
  revision: 0,
  position: 2,
};

const readers = { item: readItemEvent, container: readContainerEvent, database: readDatabaseEvent };

describe('reading old events', () => {
  it('a ContainerCreated of version 1 is read as version 2, with the policy grace that it did not have', () => {
    expect(readContainerEvent(createdV1)).toEqual({
      type: 'ContainerCreated',
      data: { ...createdV1.data, policyGraceSeconds: 86_400 },
    });
    expect(evolveContainer(undefined, createdV1)).toMatchObject({ policyGraceSeconds: 86_400, name: 'carts' });
  });
  it('leaves the recorded event unchanged', () => {
    const copy = structuredClone(createdV1);
    readContainerEvent(createdV1);
    expect(createdV1).toEqual(copy);
  });
  it('a ContainerCreated of version 2 keeps its own policy grace', () => {
    const v2 = { ...createdV1, version: 2, data: { ...createdV1.data, policyGraceSeconds: 5 } };
    expect(readContainerEvent(v2).data).toMatchObject({ policyGraceSeconds: 5 });
  });
});

describe('an event that can’t be read stops the reader, with its type and place:', () => {
  it.each(Object.entries(readers))('an unknown type in the stream of a %s', (_, read) => {
    const unknown = recordedEvent('some-stream', { type: 'MoonPhaseChanged', data: {} }, { position: 42 });
    expect(() => read(unknown)).toThrow(UnreadableEvent);
    expect(() => read(unknown)).toThrow(/some-stream.*MoonPhaseChanged at 42, .*newer Epitaph\. Start that version/);
    const inherited = recordedEvent('some-stream', { type: 'toString', data: {} });
    expect(() => read(inherited)).toThrow(UnreadableEvent);
  });
  it('a version from the future', () => {
    const future = recordedEvent('item-Co1.hash.0', { type: 'ItemExpired', data: {} }, { version: 2, position: 42 });
    expect(() => readItemEvent(future)).toThrow(UnreadableEvent);
    expect(() => readItemEvent(future)).toThrow(/ItemExpired at 42 has version 2.*up to 1\. Start that version/);
    expect(() => readContainerEvent({ ...createdV1, version: 3 })).toThrow(UnreadableEvent);
  });
  it('a version from before the first one', () => {
    expect(() => readContainerEvent({ ...createdV1, version: 0 })).toThrow(UnreadableEvent);
    expect(() => readContainerEvent({ ...createdV1, version: 0 })).toThrow(/ContainerCreated at 2 is damaged/);
  });
  it('damaged data', () => {
    const damaged = recordedEvent('item-Co1.hash.0', { type: 'ItemDeleted', data: { id: 'a', ts: 'noon' } });
    expect(() => readItemEvent(damaged)).toThrow(UnreadableEvent);
    expect(() => readContainerEvent({ ...createdV1, data: {} })).toThrow(UnreadableEvent);
  });
});
