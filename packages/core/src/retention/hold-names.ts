import { containerPrefix } from '../item/stream-name.ts';
import type { HoldScope, VaultHold } from '../vault/key-vault.ts';
import type { RecordedScope } from './events.ts';

/** A stream's name, or a prefix of names, without the beginning that all names of the container share. */
export function withoutContainer(containerRid: string, name: string): string {
  return name.slice(containerPrefix(containerRid).length);
}

/** The name or prefix that {@link withoutContainer} was given. */
export function withContainer(containerRid: string, name: string): string {
  return containerPrefix(containerRid) + name;
}

/** A recorded scope in the form that the vault uses. */
export function vaultScope(containerRid: string, scope: RecordedScope): HoldScope {
  switch (scope.kind) {
    case 'container':
      return { kind: 'container', containerRid };
    case 'partition-key':
      return { kind: 'stream-prefix', prefix: withContainer(containerRid, scope.prefix) };
    case 'items':
      // With the dot before the number of the life, so that the prefix fits no other item.
      return { kind: 'stream-prefixes', prefixes: scope.items.map((item) => `${withContainer(containerRid, item)}.`) };
    case 'query':
      return { kind: 'lives', streams: scope.lives.map((life) => withContainer(containerRid, life)) };
  }
}

/** A scope of the vault in the form that is recorded. */
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

/** The recorded kind of a scope of the vault. */
export function recordedKind({ kind }: HoldScope): RecordedScope['kind'] {
  return RECORDED_KINDS[kind];
}

/** The vault has the holds of all containers, so a hold's id in the vault begins with its container's rid. */
export function vaultHoldId(containerRid: string, holdId: string): string {
  return `${containerRid} ${holdId}`;
}

/** A hold's id in its container, from its id in the vault. */
export function holdIdOf(containerRid: string, idInVault: string): string {
  return idInVault.startsWith(`${containerRid} `) ? idInVault.slice(containerRid.length + 1) : idInVault;
}

/** The container of a hold in the vault, taken from its id, because the column with the container's rid may be damaged. */
export function containerOfHold({ holdId, containerRid }: Pick<VaultHold, 'holdId' | 'containerRid'>): string {
  const end = holdId.indexOf(' ');
  return end < 0 ? containerRid : holdId.slice(0, end);
}
