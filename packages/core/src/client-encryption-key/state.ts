import type { WrappedKey } from './events.ts';

/** The state of a client encryption key, from all events of its stream. */
export interface ClientEncryptionKeyState {
  readonly rid: string;
  readonly databaseRid: string;
  readonly name: string;
  readonly wrappedKey: WrappedKey;
  readonly etag: string;
  readonly changedAtMs: number;
}
