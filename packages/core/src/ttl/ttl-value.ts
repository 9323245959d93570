import { z } from 'zod';

/** The largest TTL, in seconds: 2^31 - 1. Source: Azure Cosmos DB, "Time to Live (TTL)". */
export const MAX_TTL_SECONDS = 2_147_483_647;

/** -1 ("never" on an item, "on, no default" on a container) or 1 … 2,147,483,647 seconds. */
export const ttlValueSchema = z.union([z.literal(-1), z.int().min(1).max(MAX_TTL_SECONDS)]);
export type TtlValue = z.infer<typeof ttlValueSchema>;

/** A container's `defaultTtl`: null is "off", -1 "on, no default", n "on" with n seconds. */
export const defaultTtlSchema = ttlValueSchema.nullable();
export type DefaultTtl = z.infer<typeof defaultTtlSchema>;

/** The value of a document's `ttl` property. `unreadable` is only possible while the container's TTL is off. */
export type OwnTtl =
  | { readonly kind: 'absent' }
  | { readonly kind: 'value'; readonly seconds: TtlValue }
  | { readonly kind: 'unreadable'; readonly value: unknown };

/** Reads the `ttl` property of a document; absent and undefined are the same. */
export function readOwnTtl(document: { readonly ttl?: unknown }): OwnTtl {
  if (!Object.hasOwn(document, 'ttl') || document.ttl === undefined) return { kind: 'absent' };
  const parsed = ttlValueSchema.safeParse(document.ttl);
  return parsed.success ? { kind: 'value', seconds: parsed.data } : { kind: 'unreadable', value: document.ttl };
}

/**
 * Reads a container's `defaultTtl`. Absent and null are the same: off.
 *
 * @returns undefined if the value is not allowed
 */
export function readDefaultTtl(value: unknown): { readonly defaultTtl: DefaultTtl } | undefined {
  if (value === undefined || value === null) return { defaultTtl: null };
  const parsed = ttlValueSchema.safeParse(value);
  return parsed.success ? { defaultTtl: parsed.data } : undefined;
}
