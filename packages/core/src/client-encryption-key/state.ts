import type { WrappedKey } from './events.ts';

/** Everything a client encryption key's stream says at a moment. */
export interface ClientEncryptionKeyState {
  readonly rid: string;
  readonly databaseRid: string;
  readonly name: string;
  readonly wrappedKey: WrappedKey;
  readonly etag: string;
  readonly changedAtMs: number;
}
