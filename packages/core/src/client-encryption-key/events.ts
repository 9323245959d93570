import { z } from 'zod';
import type { EventOf } from '../upcast.ts';

/**
 * A client's data encryption key, wrapped by a key that only the client can use, so the store has no secret here.
 * Properties that the store does not use are kept and returned as they came.
 */
export const wrappedKeySchema = z.looseObject({
  encryptionAlgorithm: z.string(),
  wrappedDataEncryptionKey: z.string(),
  keyWrapMetadata: z.looseObject({}),
});
export type WrappedKey = z.infer<typeof wrappedKeySchema>;

const clientEncryptionKeyCreatedSchema = z.object({
  databaseRid: z.string(),
  name: z.string(),
  wrappedKey: wrappedKeySchema,
});
const clientEncryptionKeyRewrappedSchema = z.object({ wrappedKey: wrappedKeySchema });

export const clientEncryptionKeyEventSchemas = {
  ClientEncryptionKeyCreated: clientEncryptionKeyCreatedSchema,
  ClientEncryptionKeyRewrapped: clientEncryptionKeyRewrappedSchema,
} as const;

/** The closed union of the events of a client encryption key. There is no delete, because data may still need the key. */
export type ClientEncryptionKeyEvent = EventOf<typeof clientEncryptionKeyEventSchemas>;
