import { containerPrefix } from '../item/stream-name.ts';
import type { HoldScope, VaultHold } from '../vault/key-vault.ts';
import type { RecordedScope } from './events.ts';

/** A stream's name, or what several begin with, without what all names of the container begin with. */
export function withoutContainer(containerRid: string, name: string): string {
  return name.slice(containerPrefix(containerRid).length);
}

/** A name, or what several begin with, as {@link withoutContainer} had it before. */
export function withContainer(containerRid: string, name: string): string {
  return containerPrefix(containerRid) + name;
}

/** A recorded scope as the vault asks for it. */
export function vaultScope(containerRid: string, scope: RecordedScope): HoldScope {
  switch (scope.kind) {
    case 'container':
      return { kind: 'container', containerRid };
    case 'partition-key':
      return { kind: 'stream-prefix', prefix: withContainer(containerRid, scope.prefix) };
    case 'items':
      // With the dot that the life follows, so that no item is taken for another.
      return { kind: 'stream-prefixes', prefixes: scope.items.map((item) => `${withContainer(containerRid, item)}.`) };
    case 'query':
      return { kind: 'lives', streams: scope.lives.map((life) => withContainer(containerRid, life)) };
  }
}

/** A scope that the vault has, as it is recorded. */
export function recordedScope(containerRid: string, scope: HoldScope): RecordedScope {
  switch (scope.kind) {
    case 'container':
      return { kind: 'container' };
    case 'stream-prefix':
      return { kind: 'partition-key', prefix: withoutContainer(containerRid, scope.prefix) };
    case 'stream-prefixes':
      return { kind: 'items', items: scope.prefixes.map((name) => withoutContainer(containerRid, name).slice(0, -1)) };
    case 'lives':
      return { kind: 'query', lives: scope.streams.map((name) => withoutContainer(containerRid, name)) };
  }
}

const RECORDED_KINDS = {
  container: 'container',
  'stream-prefix': 'partition-key',
  'stream-prefixes': 'items',
  lives: 'query',
} as const satisfies Record<HoldScope['kind'], RecordedScope['kind']>;

/** What a scope that the vault asks for is called on record. */
export function recordedKind({ kind }: HoldScope): RecordedScope['kind'] {
  return RECORDED_KINDS[kind];
}

/** The vault knows the holds of all containers, so there a hold's name has its container's rid before it. */
export function vaultHoldId(containerRid: string, holdId: string): string {
  return `${containerRid} ${holdId}`;
}

/** A hold's id as its container knows it. */
export function holdIdOf(containerRid: string, idInVault: string): string {
  return idInVault.startsWith(`${containerRid} `) ? idInVault.slice(containerRid.length + 1) : idInVault;
}

/** The container of a hold that the vault has, by its name: what stands beside that may be damaged. */
export function containerOfHold({ holdId, containerRid }: Pick<VaultHold, 'holdId' | 'containerRid'>): string {
  const end = holdId.indexOf(' ');
  return end < 0 ? containerRid : holdId.slice(0, end);
}
