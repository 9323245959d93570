import type { ContainerDefinition } from '../container/definition.ts';
import {
  effectivePartitionKey,
  type EffectivePartitionKey,
  isInRange,
  type KeyRange,
  rememberedEffectivePartitionKey,
  WHOLE_RANGE,
} from './effective-partition-key.ts';

/** The part of a container that a reader asks for. All properties that are given must match; none means the whole container. */
export interface Scope {
  /** Canonical partition key: only this logical partition. */
  readonly partitionKey?: string | undefined;
  /** Leading components of a hierarchical key, as canonical text: all keys that begin with them. */
  readonly prefix?: string | undefined;
  /** A range of effective partition keys. */
  readonly range?: KeyRange | undefined;
}

/** True for the scope that is the whole container. */
export const isWhole = ({ partitionKey, prefix, range }: Scope): boolean =>
  partitionKey === undefined && prefix === undefined && range === undefined;

/**
 * The range of canonical keys, compared as text byte by byte, that begin with some leading components: from `from` up
 * to but not including `to`. It is exact, because a component's text ends at the comma.
 *
 * @param prefix canonical text of the leading components, fewer than the key has
 */
export function keysBeginningWith(prefix: string): { readonly from: string; readonly to: string } {
  const leading = prefix.slice(0, -1);
  // '-' is the character after ','.
  return { from: `${leading},`, to: `${leading}-` };
}

/** Whether a canonical partition key belongs to a scope. */
export function isInScope({ partitionKey: definition }: ContainerDefinition, scope: Scope, key: string): boolean {
  if (scope.partitionKey !== undefined && key !== scope.partitionKey) return false;
  if (scope.prefix !== undefined && !key.startsWith(keysBeginningWith(scope.prefix).from)) return false;
  return scope.range === undefined || isInRange(rememberedEffectivePartitionKey(definition, key), scope.range);
}

/** Where the effective partition keys of a scope begin, for a scope that is not a single key. */
export function startOf(
  { partitionKey: definition }: ContainerDefinition,
  { prefix, range = WHOLE_RANGE }: Scope,
): EffectivePartitionKey {
  const first = prefix === undefined ? WHOLE_RANGE.min : effectivePartitionKey(definition, prefix);
  return first > range.min ? first : range.min;
}
