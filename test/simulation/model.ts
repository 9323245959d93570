/**
 * What the store must do, said once more and as plainly as possible: lists of all writes and all policies, searched
 * from end to end. Nothing of the store's own rules is imported here.
 */

/** A container's `defaultTtl`: null is off. */
export type Policy = number | null;

export interface PolicyFact {
  readonly atMs: number;
  readonly policy: Policy;
}

export interface WriteFact {
  readonly atMs: number;
  readonly document: Readonly<Record<string, unknown>>;
  readonly etag: string;
}

export interface ModelLife {
  readonly writes: WriteFact[];
  deletedAtMs: number | null;
  /** Whether the content is gone. `maybe` after a purge whose outcome is unknown. */
  erased: 'no' | 'maybe' | 'yes';
}

export interface ModelContainer {
  readonly name: string;
  readonly rid: string;
  readonly createdAtMs: number;
  readonly policies: PolicyFact[];
  /** No two visible items of a partition have the same `u`. */
  readonly hasUniqueKey: boolean;
  graceSeconds: number;
  deletedAtMs: number | null;
  /** By `partition key / id`; each with its lives, oldest first. */
  readonly items: Map<string, ModelLife[]>;
}

export interface Model {
  readonly containers: ModelContainer[];
}

export interface Ending {
  readonly kind: 'expired' | 'deleted' | 'container-deleted';
  readonly atMs: number;
  /** The policy's start made it expire, not its own countdown. */
  readonly byPolicyStart: boolean;
}

/** The seconds that an item may live under a policy; undefined for ever. */
function secondsToLive(ttl: unknown, policy: Policy): number | undefined {
  if (policy === null) return undefined;
  const own = isValidTtl(ttl) ? ttl : undefined;
  const seconds = own ?? policy;
  return seconds === -1 ? undefined : seconds;
}

export function isValidTtl(ttl: unknown): ttl is number {
  return typeof ttl === 'number' && Number.isInteger(ttl) && (ttl === -1 || (ttl >= 1 && ttl <= 2_147_483_647));
}

/** What a document has of the unique key, as text; nothing counts as null. */
export function uniqueValue(document: Readonly<Record<string, unknown>>): string {
  return JSON.stringify(document['u'] ?? null);
}

/** The policy in force at an instant: the last one that had begun. */
export function policyInForce(container: Pick<ModelContainer, 'policies'>, atMs: number): Policy {
  let policy: Policy = null;
  for (const fact of container.policies) if (fact.atMs <= atMs) policy = fact.policy;
  return policy;
}

/** True when, at that very instant, the countdown of a write had run out under the policy in force. */
function runOutAt(container: Pick<ModelContainer, 'policies'>, write: WriteFact, atMs: number): boolean {
  const seconds = secondsToLive(write.document['ttl'], policyInForce(container, atMs));
  return seconds !== undefined && (Math.floor(write.atMs / 1000) + seconds) * 1000 <= atMs;
}

/**
 * The first instant up to `nowMs` at which a write had run out. Nothing changes but when a policy begins or a
 * countdown under one of the policies ends, so these are the only instants to look at.
 */
export function runOut(
  container: Pick<ModelContainer, 'policies'>,
  write: WriteFact,
  nowMs: number,
): Ending | undefined {
  const seconds = Math.floor(write.atMs / 1000);
  const instants = container.policies.flatMap((fact) => {
    const left = secondsToLive(write.document['ttl'], fact.policy);
    return left === undefined ? [fact.atMs] : [fact.atMs, (seconds + left) * 1000];
  });
  const first = instants
    .filter((atMs) => atMs >= write.atMs && atMs <= nowMs && runOutAt(container, write, atMs))
    .toSorted((left, right) => left - right)[0];
  if (first === undefined) return undefined;
  const left = secondsToLive(write.document['ttl'], policyInForce(container, first))!;
  return { kind: 'expired', atMs: first, byPolicyStart: (seconds + left) * 1000 < first };
}

/** How a life had ended by an instant, knowing what was on record then; undefined while it is visible. */
export function endingAt(container: ModelContainer, life: ModelLife, atMs: number): Ending | undefined {
  const write = life.writes.findLast((candidate) => candidate.atMs <= atMs)!;
  const endings: Ending[] = [];
  const expired = runOut(container, write, atMs);
  if (expired !== undefined) endings.push(expired);
  if (life.deletedAtMs !== null && life.deletedAtMs <= atMs) {
    endings.push({ kind: 'deleted', atMs: life.deletedAtMs, byPolicyStart: false });
  }
  if (container.deletedAtMs !== null && container.deletedAtMs <= atMs) {
    endings.push({ kind: 'container-deleted', atMs: container.deletedAtMs, byPolicyStart: false });
  }
  // A delete of an item that had run out is refused, so a life that was deleted had not run out by then.
  const rank = { deleted: 0, 'container-deleted': 1, expired: 2 };
  return endings.toSorted((left, right) => left.atMs - right.atMs || rank[left.kind] - rank[right.kind])[0];
}

/** The life that an item had last begun by an instant. */
export function lifeAt(container: ModelContainer, item: string, atMs: number): ModelLife | undefined {
  return container.items.get(item)?.findLast((life) => life.writes[0]!.atMs <= atMs);
}

/** The life of an item that everybody sees at an instant. */
export function visibleLife(container: ModelContainer, item: string, atMs: number): ModelLife | undefined {
  const life = lifeAt(container, item, atMs);
  return life !== undefined && endingAt(container, life, atMs) === undefined ? life : undefined;
}

/** The deadline of a visible life as things stand. */
export function deadline(container: ModelContainer, life: ModelLife, nowMs: number): number | undefined {
  const write = life.writes.at(-1)!;
  const left = secondsToLive(write.document['ttl'], policyInForce(container, nowMs));
  return left === undefined ? undefined : (Math.floor(write.atMs / 1000) + left) * 1000;
}

/** True when a purge at that instant erases a life: it has ended, and no grace keeps it. */
export function isErasable(container: ModelContainer, life: ModelLife, nowMs: number): boolean {
  const ending = endingAt(container, life, nowMs);
  if (ending === undefined) return false;
  const gone = container.deletedAtMs !== null && container.deletedAtMs <= nowMs;
  if (!ending.byPolicyStart || gone) return true;
  return ending.atMs + container.graceSeconds * 1000 <= nowMs;
}

/** What a purge that got through has erased; one of unknown outcome may have. */
export function applyPurge(model: Model, nowMs: number, outcome: 'done' | 'unknown'): void {
  for (const container of model.containers) {
    for (const lives of container.items.values()) {
      for (const life of lives) {
        if (life.erased === 'yes' || !isErasable(container, life, nowMs)) continue;
        life.erased = outcome === 'done' ? 'yes' : 'maybe';
      }
    }
  }
}
