import type { WrappedKey } from './events.ts';

export interface CreateClientEncryptionKey {
  readonly type: 'CreateClientEncryptionKey';
  readonly databaseRid: string;
  readonly name: string;
  readonly wrappedKey: WrappedKey;
}

export interface RewrapClientEncryptionKey {
  readonly type: 'RewrapClientEncryptionKey';
  readonly wrappedKey: WrappedKey;
  readonly ifMatch?: string | undefined;
}

export type ClientEncryptionKeyCommand = CreateClientEncryptionKey | RewrapClientEncryptionKey;
