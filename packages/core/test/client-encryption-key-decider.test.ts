import { describe, expect, it } from 'vitest';
import { foldClientEncryptionKey } from '@epitaph/core/client-encryption-key/evolve.ts';
import { clientEncryptionKeyStream } from '@epitaph/core/client-encryption-key/stream-name.ts';
import { etagOfGiven, givenClientEncryptionKey } from '@epitaph/core/testing/given-when-then.ts';
import { recordedEvent } from '@epitaph/core/testing/recorded-event.ts';
import { UnreadableEvent } from '@epitaph/core/upcast.ts';

const wrapped = (text: string) => ({
  encryptionAlgorithm: 'AEAD_AES_256_CBC_HMAC_SHA256',
  wrappedDataEncryptionKey: text,
  keyWrapMetadata: { type: 'akv', name: 'k' },
});
const data = { databaseRid: 'Db', name: 'key', wrappedKey: wrapped('one') };
const created = { type: 'ClientEncryptionKeyCreated', data } as const;
const rewrapped = { type: 'ClientEncryptionKeyRewrapped', data: { wrappedKey: wrapped('two') } } as const;
const create = { type: 'CreateClientEncryptionKey', ...data } as const;
const rewrap = { type: 'RewrapClientEncryptionKey', wrappedKey: wrapped('two') } as const;

describe('a client encryption key', () => {
  it('is created once; with another name in its stream it is refused as taken', () => {
    givenClientEncryptionKey().when(create).then(created);
    givenClientEncryptionKey(created).when(create).thenRefused('already-exists');
    givenClientEncryptionKey(created)
      .when({ ...create, name: 'other' })
      .thenRefused('rid-taken');
  });
  it('is wrapped again with the current etag or none', () => {
    givenClientEncryptionKey(created).when(rewrap).then(rewrapped);
    for (const ifMatch of ['*', etagOfGiven(0)]) {
      givenClientEncryptionKey(created)
        .when({ ...rewrap, ifMatch })
        .then(rewrapped);
    }
    givenClientEncryptionKey(created)
      .when({ ...rewrap, ifMatch: '"x"' })
      .thenRefused('precondition-failed');
    givenClientEncryptionKey().when(rewrap).thenRefused('not-found');
  });
  it('has its last wrapping, with everything else that the client said about it', () => {
    const stream = clientEncryptionKeyStream('K');
    const events = [
      recordedEvent(stream, created, { id: 'a' }),
      recordedEvent(stream, rewrapped, { id: 'b', revision: 1, occurredAtMs: 5 }),
    ];
    expect(foldClientEncryptionKey(events)).toEqual({
      ...data,
      rid: 'K',
      wrappedKey: wrapped('two'),
      etag: '"b"',
      changedAtMs: 5,
    });
    expect(() => foldClientEncryptionKey([events[1]!])).toThrow(UnreadableEvent);
  });
});
