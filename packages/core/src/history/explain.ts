import { isoTime } from '../clock.ts';
import type { Gone } from '../container/gone.ts';
import type { ContainerState, RecordedPolicy } from '../container/state.ts';
import { expiryOf, type Expiry } from '../ttl/expiry.ts';
import { policyToDecideBy } from '../ttl/policy-timeline.ts';
import type { ItemPurged } from '../item/events.ts';
import { hasPseudonymousIds } from '../item/pseudonym.ts';
import { graceSeconds } from '../retention/grace.ts';
import type { ErasureRequest, LifeEnd, LifeFacts, LifePurge, LifeWrite } from './life.ts';

export type ItemStateName = 'live' | 'expired' | 'purged' | 'deleted' | 'never-existed';

/** Who ends lives in a restore, and places the holds that only the vault still has. */
export const RESTORE_ACTOR = 'system:restore';

/** Why an item is or is not there at an instant: data, and one sentence that says the same. Times in milliseconds. */
export interface Explanation {
  readonly state: ItemStateName;
  readonly sentence: string;
  readonly atMs: number;
  /** Number of the life that this is about, counted from 0. Absent if the item had not been created yet. */
  readonly life?: number;
  readonly lastWrite?: { readonly atMs: number; readonly ts: number; readonly ttl: number | null };
  readonly expiredAtMs?: number;
  /** For a live item: when it will expire if neither it nor the policy changes. */
  readonly expiresAtMs?: number;
  readonly rule?: Expiry['rule'];
  readonly arithmetic?: string;
  readonly policy?: {
    readonly version: number;
    readonly defaultTtl: number | null;
    readonly sinceMs: number;
    readonly setBy: string;
    readonly reason?: string;
  };
  readonly deletedAtMs?: number;
  /** For an item that was replaced under another id: the life that continues it. */
  readonly renamedTo?: OtherLife;
  /** Set when the item left with its container or database. */
  readonly containerDeletedAtMs?: number;
  /** When the end was recorded, which is `lagMs` after the end itself. Absent until it is recorded. */
  readonly recordedAtMs?: number;
  readonly purgedAtMs?: number;
  /** What the erasure left in the log, unreadable, and what removes it. Absent in older records. */
  readonly remains?: ItemPurged['remains'];
  /** Until when a copy of the life's key from before the erasure may exist. Absent if there is none. */
  readonly recoverableUntilMs?: number;
  /** Who requested the erasure, and why, if it was requested. */
  readonly erasure?: ErasureRequest;
  readonly lagMs?: number;
  readonly holds: readonly string[];
  /**
   * Until when the container's retention floor keeps the content of the life. Once the life has ended: until when the
   * change feed, the recovery window or the policy grace keeps it, if one of them is later. The feed's time begins when
   * the end is recorded; before that, this is the earliest time possible.
   */
  readonly keptUntilMs?: number;
}

/** A life of another item. */
export interface OtherLife {
  /** The id, or its pseudonym if the container keeps no ids on record. */
  readonly id: string;
  readonly life: number;
}

export interface ExplainInput {
  readonly id: string;
  /** As text: the JSON array of its components, or its pseudonym. */
  readonly partitionKey: string;
  readonly container: ContainerState;
  /** The policy that was scheduled at that instant and withdrawn later, if there was one. Its start is after that instant. */
  readonly withdrawnLater?: RecordedPolicy | undefined;
  /** How the container was deleted, if it was. */
  readonly gone: Gone | undefined;
  /** All lives, oldest first. */
  readonly lives: readonly LifeFacts[];
  readonly atMs: number;
  /** By its stream, the life that continues one of these under another id. */
  readonly renamed?: ReadonlyMap<string, OtherLife>;
  /** Holds that keep the content of the life that existed at that instant, or of the last one before it. */
  readonly holds: readonly string[];
  /** When the retention floor over that content will have passed. Null or absent if it has passed. */
  readonly floorUntilMs?: number | null;
  /** How long the change feed keeps the content after the record of the life's end. Absent if there is no content, or no feed. */
  readonly feedFloorSeconds?: number | undefined;
  /** When the life's end was recorded in its own stream, from which the change feed counts. Absent until it is recorded. */
  readonly endRecordedAtMs?: number | undefined;
  /** The present time. Without it the explanation does not mention the recovery window and the policy grace. */
  readonly nowMs?: number;
}

/**
 * Explains an item at an instant from recorded facts alone, so the answer is the same before and after the purge. For
 * an instant in the future the explanation tells what will be if nothing changes, and says so.
 */
export function explainItem(input: ExplainInput): Explanation {
  const explanation = explainAsRecorded(input);
  const { atMs, nowMs = atMs } = input;
  if (atMs <= nowMs) return explanation;
  return {
    ...explanation,
    sentence: `If nothing changes from ${isoTime(nowMs)} to ${isoTime(atMs)}, it will be as follows. ${explanation.sentence}`,
  };
}

function explainAsRecorded(input: ExplainInput): Explanation {
  const { id, partitionKey, container, gone, atMs, holds } = input;
  const facts = input.lives.findLast((life) => life.writes[0]!.atMs <= atMs);
  const quoted = JSON.stringify(id);
  if (facts === undefined) {
    return {
      state: 'never-existed',
      sentence: `Up to ${isoTime(atMs)} nothing was ever written as ${quoted} under partition key ${partitionKey} in container ${container.name}.`,
      atMs,
      holds,
    };
  }
  const write = facts.writes.findLast((candidate) => candidate.atMs <= atMs)!;
  if (write.omittedAfter !== undefined) return liveBetweenOmitted(input, facts, write.omittedAfter);
  const ts = Math.floor(write.atMs / 1000);
  const about = {
    atMs,
    life: facts.life,
    lastWrite: lastWriteOf(facts, write),
    holds,
    ...keptUntil(input.floorUntilMs),
  };
  const purge = facts.purge !== undefined && facts.purge.atMs <= atMs ? facts.purge : undefined;
  const purged =
    purge === undefined
      ? undefined
      : {
          purgedAtMs: purge.atMs,
          ...(purge.remains === undefined ? {} : { remains: purge.remains }),
          ...(purge.recoverableUntilMs === null ? {} : { recoverableUntilMs: purge.recoverableUntilMs }),
          ...(purge.request === undefined ? {} : { erasure: purge.request }),
        };
  /** The fate of the content of this life, as facts and in words. The life ended by itself, by a policy's start or with its container. */
  const contentOf = (end?: EndOfLife) => {
    if (purge !== undefined) {
      // The content may have been erased on request while something kept it after its end.
      const by = isOnRequest(purge) ? ` by ${purge.recordedBy}` : '';
      return {
        facts: purged,
        words: ` Its content was ${erasedInWords(purge)}${by}${restInWords(purge)}.${requestInWords(purge)}`,
      };
    }
    // The reasons for keeping the content are given as of now. If it was erased since, there are none.
    const keeping: Keeping =
      facts.purge === undefined
        ? {
            holds,
            floorUntilMs: input.floorUntilMs ?? null,
            feed: end && feedAfter(end, input),
            grace: gone === undefined && end !== undefined ? graceAfter(end, input) : undefined,
          }
        : { holds: [] };
    const kept = keptUntil(keeping.floorUntilMs, keeping.feed?.untilMs, keeping.grace?.untilMs);
    return { facts: kept, words: keptInWords(keeping, kept.keptUntilMs, input) };
  };
  const recorded = (endAtMs: number) => {
    const at = facts.end?.recordedAtMs;
    return at === undefined || at > atMs ? {} : { recordedAtMs: at, lagMs: at - endAtMs };
  };

  if (facts.end?.kind === 'deleted' && facts.end.atMs <= atMs) {
    const content = contentOf({ atMs: facts.end.atMs, byPolicyStart: false });
    const renamedTo = facts.end.renamedTo === undefined ? undefined : input.renamed?.get(facts.end.renamedTo);
    return {
      ...about,
      ...content.facts,
      ...recorded(facts.end.atMs),
      state: purge === undefined ? 'deleted' : 'purged',
      sentence: `${quoted} was ${deletedInWords(facts.end, renamedTo, container)} by ${deleterInWords(facts.end.recordedBy)}.${content.words}`,
      deletedAtMs: facts.end.atMs,
      ...(renamedTo === undefined ? {} : { renamedTo }),
    };
  }

  // Statements about the future use the policies that were recorded by that instant.
  const known = container.timeline.filter((policy, index) => index === 0 || policy.recordedAtMs <= atMs);
  if (input.withdrawnLater !== undefined) known.push(input.withdrawnLater);
  // The recorded end counts first: a policy that was replaced within its own millisecond is in no timeline any more.
  const onRecord = facts.end?.expiry;
  const expiry =
    onRecord !== undefined && onRecord.expiredAtMs <= atMs ? onRecord : expiryOf({ ts, ttl: write.ttl }, known);
  const endedAtMs = earliest(expiry?.expiredAtMs ?? null, gone?.atMs ?? null);
  if (purge !== undefined && (endedAtMs === null || purge.atMs < endedAtMs)) {
    return {
      ...about,
      ...purged,
      state: 'purged',
      sentence: `${quoted} was ${erasedInWords(purge)} by ${purge.recordedBy}${restInWords(purge)}.${requestInWords(purge)}`,
    };
  }
  const expired = expiry !== undefined && expiry.expiredAtMs <= atMs;
  if (expired && (gone === undefined || expiry === onRecord || expiry.expiredAtMs < gone.atMs)) {
    const policy = container.timeline.find((candidate) => candidate.version === expiry.policyVersion);
    const setBy = policy === undefined ? '' : `, set by ${policy.setBy} at ${isoTime(policy.recordedAtMs)}`;
    const arithmetic = arithmeticOf(ts, expiry);
    const content = contentOf({ atMs: expiry.expiredAtMs, byPolicyStart: expiry.byPolicyStart });
    return {
      ...about,
      ...content.facts,
      ...recorded(expiry.expiredAtMs),
      state: purge === undefined ? 'expired' : 'purged',
      sentence:
        `${quoted} expired at ${isoTime(expiry.expiredAtMs)} by ${ruleInWords(expiry, container.name)} ` +
        `under policy version ${expiry.policyVersion}${setBy}: ${arithmetic}.` +
        content.words,
      expiredAtMs: expiry.expiredAtMs,
      rule: expiry.rule,
      arithmetic,
      ...(policy === undefined ? {} : { policy: policyFacts(policy) }),
    };
  }
  if (gone !== undefined && gone.atMs <= atMs) {
    const content = contentOf();
    return {
      ...about,
      ...content.facts,
      state: purge === undefined ? 'deleted' : 'purged',
      sentence: `${quoted} left with its container ${container.name}, which was deleted at ${isoTime(gone.atMs)}${gone.by === null ? '' : ` by ${gone.by}`}.${content.words}`,
      deletedAtMs: gone.atMs,
      containerDeletedAtMs: gone.atMs,
    };
  }
  const current = policyToDecideBy(container.timeline, atMs);
  return {
    ...about,
    state: 'live',
    sentence: `${quoted} is visible: ${expiry === undefined ? neverReason({ ts, ttl: write.ttl }, current, known) : `it expires at ${isoTime(expiry.expiredAtMs)} unless it or the policy changes before`}.`,
    ...(expiry === undefined
      ? {}
      : { expiresAtMs: expiry.expiredAtMs, rule: expiry.rule, arithmetic: arithmeticOf(ts, expiry) }),
    policy: policyFacts(current),
  };
}

/**
 * The last write that counts. Another node may have written to an item that had left with its partition key; that
 * changed nothing.
 */
function lastWriteOf({ writes, end }: LifeFacts, latest: LifeWrite): NonNullable<Explanation['lastWrite']> {
  const before =
    end?.withPartitionKey === true ? writes.findLast(({ atMs }) => atMs <= Math.min(latest.atMs, end.atMs)) : latest;
  const { atMs, ttl } = before === undefined || before.omittedAfter !== undefined ? latest : before;
  return { atMs, ts: Math.floor(atMs / 1000), ttl };
}

/**
 * The item existed at that instant, because it was written again later in the same life. The ledger leaves out by which
 * write.
 */
function liveBetweenOmitted(
  { id, container, atMs, holds, floorUntilMs }: ExplainInput,
  { life, writes }: LifeFacts,
  omitted: number,
): Explanation {
  const [first, next] = writes;
  const current = policyToDecideBy(container.timeline, atMs);
  return {
    atMs,
    life,
    holds,
    ...keptUntil(floorUntilMs),
    state: 'live',
    sentence: `${JSON.stringify(id)} is visible: between ${isoTime(first!.atMs)} and ${isoTime(next!.atMs)} it was written ${omitted} times. The record of its erasure has no details of these writes.`,
    policy: policyFacts(current),
  };
}

function earliest(left: number | null, right: number | null): number | null {
  if (left === null) return right;
  return right === null ? left : Math.min(left, right);
}

function policyFacts(policy: RecordedPolicy): NonNullable<Explanation['policy']> {
  return {
    version: policy.version,
    defaultTtl: policy.defaultTtl,
    sinceMs: policy.fromMs,
    setBy: policy.setBy,
    ...(policy.reason === undefined ? {} : { reason: policy.reason }),
  };
}

function arithmeticOf(ts: number, expiry: Expiry): string {
  const sum = `_ts ${ts} (${isoTime(ts * 1000)}) + ttl ${expiry.ttl} s = ${ts + expiry.ttl} (${isoTime((ts + expiry.ttl) * 1000)})`;
  return expiry.byPolicyStart
    ? `${sum}, which was already past when the policy took effect at ${isoTime(expiry.expiredAtMs)}`
    : sum;
}

interface EndOfLife {
  readonly atMs: number;
  readonly byPolicyStart: boolean;
}

/** Until when the content of a life that has ended can be brought back, and by which setting. */
interface Grace {
  readonly untilMs: number;
  readonly by: 'recovery window' | 'policy grace';
}

/** Until when a change feed shows the content of a life that has ended. */
interface FeedFloor {
  readonly untilMs: number;
  /** False if it is not known yet when that time begins. Then `untilMs` is the earliest possible time. */
  readonly hasBegun: boolean;
}

/** What keeps the content of a life that has ended. */
interface Keeping {
  readonly holds: readonly string[];
  readonly floorUntilMs?: number | null;
  readonly feed?: FeedFloor | undefined;
  readonly grace?: Grace | undefined;
}

function feedAfter(
  end: EndOfLife,
  { atMs, nowMs = atMs, feedFloorSeconds, endRecordedAtMs }: ExplainInput,
): FeedFloor | undefined {
  if (feedFloorSeconds === undefined) return undefined;
  const untilMs = (endRecordedAtMs ?? Math.max(nowMs, end.atMs)) + feedFloorSeconds * 1000;
  return untilMs <= nowMs ? undefined : { untilMs, hasBegun: endRecordedAtMs !== undefined };
}

function graceAfter({ atMs, byPolicyStart }: EndOfLife, { container, nowMs }: ExplainInput): Grace | undefined {
  const seconds = graceSeconds(container, byPolicyStart);
  const untilMs = atMs + seconds * 1000;
  if (nowMs === undefined || seconds === 0 || untilMs <= nowMs) return undefined;
  return { untilMs, by: seconds === container.retention.recoveryWindowSeconds ? 'recovery window' : 'policy grace' };
}

/** The latest of those instants that are given. */
function keptUntil(...floors: readonly (number | null | undefined)[]): Pick<Explanation, 'keptUntilMs'> {
  const keptUntilMs = Math.max(0, ...floors.map((untilMs) => untilMs ?? 0));
  return keptUntilMs === 0 ? {} : { keptUntilMs };
}

/**
 * Why content that nobody can see any more still exists. Told as of now, whatever instant was asked about; for a future
 * instant, whether it will exist then.
 */
function keptInWords(
  { holds, floorUntilMs, feed, grace }: Keeping,
  keptUntilMs: number | undefined,
  { atMs, nowMs = atMs }: ExplainInput,
): string {
  const held = holds.map((hold) => JSON.stringify(hold)).join(', ');
  const reasons = [
    ...(holds.length === 0 ? [] : [`by the legal ${holds.length === 1 ? 'hold' : 'holds'} ${held}`]),
    ...(typeof floorUntilMs === 'number' ? [`by the retention floor until ${isoTime(floorUntilMs)}`] : []),
    ...(feed === undefined ? [] : [`for the change feed until ${feedInWords(feed)}`]),
    ...(grace === undefined ? [] : [`by the ${grace.by} until ${isoTime(grace.untilMs)}`]),
  ].join(' and ');
  if (atMs > nowMs && holds.length === 0 && (keptUntilMs ?? 0) <= atMs) {
    return reasons === ''
      ? ' Nothing keeps its content from being erased by then.'
      : ` Its content is kept ${reasons}, and by nothing after that.`;
  }
  const there = atMs > nowMs ? ' Its content will still be there.' : ' Its content has not been erased yet.';
  return reasons === '' ? there : `${there} It is kept ${reasons}.`;
}

const feedInWords = ({ untilMs, hasBegun }: FeedFloor): string =>
  hasBegun ? isoTime(untilMs) : `${isoTime(untilMs)} at the earliest (its end is not on record yet)`;

function deletedInWords(
  { atMs, withPartitionKey, renamedTo: stream }: LifeEnd,
  renamedTo: OtherLife | undefined,
  { definition }: ContainerState,
): string {
  if (stream === undefined) {
    return `deleted at ${isoTime(atMs)}${withPartitionKey === true ? ' with all of its partition key' : ''}`;
  }
  const by = hasPseudonymousIds(definition) ? 'an id with the pseudonym' : 'the id';
  const id = renamedTo === undefined ? 'another id' : `${by} ${JSON.stringify(renamedTo.id)}`;
  return `replaced under ${id} at ${isoTime(atMs)}`;
}

/** A restore ends lives whose keys are gone. If somebody had ended them before, that was recorded after the backup, if at all. */
const deleterInWords = (actor: string): string =>
  actor === RESTORE_ACTOR
    ? `${actor}, because its key was gone when the store was restored: destroyed by an erasure after the backup was made, or lost`
    : actor;

function ruleInWords(expiry: Expiry, containerName: string): string {
  return expiry.rule === 'item-ttl'
    ? `its own ttl of ${expiry.ttl} s`
    : `the default ttl of ${expiry.ttl} s of container ${containerName}`;
}

/** Why a live item will not expire, by the policies that were on record at the instant. */
function neverReason(
  written: { readonly ts: number; readonly ttl: number | null },
  current: RecordedPolicy,
  known: readonly RecordedPolicy[],
): string {
  if (current.defaultTtl === null) {
    return `time to live is off in its container, so nothing expires${written.ttl === null ? '' : ' and its own ttl does not count'}`;
  }
  // The next policy may start before the item would expire under the current one.
  const next = known.find((policy) => policy.fromMs > current.fromMs);
  const otherwise = next === undefined ? undefined : expiryOf(written, [current]);
  if (otherwise !== undefined) {
    const under = next!.defaultTtl === null ? 'time to live is off' : 'its container has no default ttl';
    return `it would expire at ${isoTime(otherwise.expiredAtMs)}, but from ${isoTime(next!.fromMs)} on, under policy version ${next!.version}, ${under}, so it never expires unless it or the policy changes before`;
  }
  if (written.ttl === -1) return 'its own ttl of -1 says that it never expires';
  return 'its container has no default ttl and it has none of its own, so it never expires';
}

const isOnRequest = ({ cause, request }: LifePurge): boolean => cause === 'erasure' || request !== undefined;

const erasedInWords = (purge: LifePurge): string =>
  `erased${isOnRequest(purge) ? ' on request' : ''} at ${isoTime(purge.atMs)}`;

const requestInWords = ({ request }: LifePurge): string =>
  request === undefined
    ? ''
    : ` It was requested by ${JSON.stringify(request.requestedBy)}, for the reason ${JSON.stringify(request.reason)}.`;

/** What is left of erased content. A truncation follows at once and needs no mention; a scavenge may come much later. */
function restInWords({ remains, recoverableUntilMs }: LifePurge): string {
  const copies =
    recoverableUntilMs === null
      ? ''
      : `; a copy of its key, made before, may be kept in backups until ${isoTime(recoverableUntilMs)}`;
  if (remains?.removedBy !== 'scavenge') return copies;
  return `${copies}; ${remains.sealedBytes} sealed bytes, which nothing opens any more, stayed with the event store until its next scavenge`;
}
