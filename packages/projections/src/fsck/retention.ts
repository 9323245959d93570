import { feedFloorSeconds } from '@epitaph/core/container/change-feed.ts';
import { foldContainer } from '@epitaph/core/container/evolve.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { databaseStream } from '@epitaph/core/database/stream-name.ts';
import { vaultHoldId, vaultScope } from '@epitaph/core/retention/hold-names.ts';
import { isStanding } from '@epitaph/core/retention/hold-register.ts';
import { scopeOfHold } from '@epitaph/core/retention/scope-of-hold.ts';
import {
  type ContainerFloors,
  type FloorKind,
  floorKinds,
  type HoldScope,
  widened,
} from '@epitaph/core/vault/key-vault.ts';
import type { Examination } from './examination.ts';

/**
 * Checks that the vault keeps what must be kept according to the containers' streams: everything that their holds
 * cover, for as long as their floors last.
 */
export async function checkRetention(rids: Iterable<string>, examination: Examination): Promise<void> {
  const { vault, report, containerOf, pace } = examination;
  const floors = await vault.floors();
  for (const rid of rids) {
    await pace.step();
    const { state, isWhole } = await containerOf(rid);
    if (state === undefined || !isWhole) continue;
    if ((await differences(state, floors.get(rid), examination)).length === 0) continue;
    for (const difference of await differencesNow(rid, examination))
      report('retention-differs', containerStream(rid), difference);
  }
}

/**
 * The differences from the stream's present state. It may have changed since the log was read, so this repeats until it
 * does not change while the vault is asked.
 */
async function differencesNow(rid: string, examination: Examination): Promise<readonly string[]> {
  const { log, vault } = examination;
  const stream = containerStream(rid);
  for (;;) {
    const events = await log.readStream(stream);
    const now = foldContainer(events);
    if (now === undefined) return [];
    const found = await differences(now, (await vault.floors()).get(rid), examination);
    if (found.length === 0) return found;
    if ((await log.readLast(stream))?.position === events.at(-1)!.position) return found;
  }
}

/** The differences between what the vault keeps of a container and what its stream says. */
async function differences(
  state: ContainerState,
  floors: ContainerFloors | undefined,
  { log, vault, pace }: Examination,
): Promise<readonly string[]> {
  const { rid, retention } = state;
  const found: string[] = [];
  const kept = new Map((await vault.holds(rid)).map(({ holdId, scope }) => [holdId, scope]));
  for (const hold of retention.holds) {
    await pace.step();
    if (!isStanding(hold)) continue;
    const keptScope = kept.get(vaultHoldId(rid, hold.holdId));
    const scope = vaultScope(rid, await scopeOfHold(log, hold));
    const differs = keptScope === undefined ? 'do not have it' : difference(scope, keptScope, rid);
    if (differs !== undefined) found.push(`the hold ${hold.holdId}: the keys ${differs}`);
  }
  for (const kind of floorKinds) {
    if ((floors?.[kind] ?? 0) < (await floorOf(state, kind, log)))
      found.push(`the ${kind} floor: it is lower in the keys`);
  }
  return found;
}

/** How the scope of a hold in the vault differs from the recorded one. Undefined if it does not. */
function difference(scope: HoldScope, kept: HoldScope, rid: string): string | undefined {
  if (widened(kept, scope, rid) !== kept) return 'protect less than the log says';
  return widened(scope, kept, rid) === scope ? undefined : 'protect more than the log says';
}

/** The recorded length of a floor in seconds. */
async function floorOf(
  { status, databaseRid, definition, retention }: ContainerState,
  kind: FloorKind,
  log: Examination['log'],
): Promise<number> {
  if (kind === 'retention') return retention.floorSeconds;
  const seconds = status === 'deleted' ? 0 : feedFloorSeconds(definition);
  const isGone = seconds > 0 && (await log.readLast(databaseStream(databaseRid)))?.type === 'DatabaseDeleted';
  return isGone ? 0 : seconds;
}
