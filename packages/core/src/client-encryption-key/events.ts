import { z } from 'zod';
import type { EventOf } from '../upcast.ts';

/**
 * What a client keeps of a data encryption key: wrapped by a key that the client alone can reach, so the store holds
 * no secret in it. Properties that the store has no use for are kept and given back as they came.
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

/** The closed union of what can be in a client encryption key's stream. There is no delete: data may need the key. */
export type ClientEncryptionKeyEvent = EventOf<typeof clientEncryptionKeyEventSchemas>;
