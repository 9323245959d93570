import { feedFloorSeconds } from '@epitaph/core/container/change-feed.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { readContainerEvent } from '@epitaph/core/container/upcast.ts';
import { databaseStream } from '@epitaph/core/database/stream-name.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import { vaultHoldId, vaultScope } from '@epitaph/core/retention/hold-names.ts';
import { isStanding, type StandingHold } from '@epitaph/core/retention/hold-register.ts';
import type { RecordedScope } from '@epitaph/core/retention/events.ts';
import { type FloorKind, floorKinds, type HoldScope, widened } from '@epitaph/core/vault/key-vault.ts';
import type { Examination } from './examination.ts';

/** Checks that the vault keeps what a container's stream says is kept: all that its holds cover, and for as long as its floors last. */
export async function checkRetention(rid: string, examination: Examination): Promise<void> {
  const { log, vault, report, pace, containerOf } = examination;
  const { state, later, isWhole } = await containerOf(rid);
  if (state === undefined || !isWhole) return;
  const stream = containerStream(rid);
  const kept = new Map((await vault.holds(rid)).map(({ holdId, scope }) => [holdId, scope]));
  for (const hold of state.retention.holds) {
    await pace.step();
    if (!isStanding(hold) || later.some((one) => !stands(one, hold.holdId))) continue;
    const scope = vaultScope(rid, await scopeOf(hold, examination));
    const keptScope = kept.get(vaultHoldId(rid, hold.holdId));
    const differs = keptScope === undefined ? 'do not have it' : difference(scope, keptScope, rid);
    if (differs !== undefined) report('retention-differs', stream, `the hold ${hold.holdId}: the keys ${differs}`);
  }
  const floors = (await vault.floors()).get(rid);
  const database = await log.readLast(databaseStream(state.databaseRid));
  const isGone = database?.type === 'DatabaseDeleted';
  for (const kind of floorKinds) {
    const seconds = Math.min(...[state, ...later].map((one) => floorOf(one, kind, isGone)));
    if ((floors?.[kind] ?? 0) < seconds)
      report('retention-differs', stream, `the ${kind} floor: the keys have it lower`);
  }
}

/** All that a hold names: the lives of a query's result are in its record alone. */
async function scopeOf({ scope, position }: StandingHold, { log }: Examination): Promise<RecordedScope> {
  if (scope.kind !== 'query') return scope;
  const recorded = await log.readAt(position);
  const event = recorded && readContainerEvent(recorded);
  invariant(event?.type === 'HoldPlaced', 'a hold has the position of its record');
  return event.data.scope;
}

/** How what the keys keep differs from what a hold covers; undefined where it does not. */
function difference(scope: HoldScope, kept: HoldScope, rid: string): string | undefined {
  if (widened(kept, scope, rid) !== kept) return 'keep less than is on record';
  return widened(scope, kept, rid) === scope ? undefined : 'keep more than is on record';
}

/** Seconds of a floor by what is on record. */
function floorOf({ status, definition, retention }: ContainerState, kind: FloorKind, isGone: boolean): number {
  if (kind === 'retention') return retention.floorSeconds;
  return isGone || status === 'deleted' ? 0 : feedFloorSeconds(definition);
}

function stands({ retention }: ContainerState, holdId: string): boolean {
  const hold = retention.holds.find(holdId);
  return hold !== undefined && isStanding(hold);
}
