/**
 * A second, independent definition of what the store must do, as simple as possible: lists of all writes and all policies,
 * which are searched from end to end. It imports none of the store's own rules.
 */

/** A container's `defaultTtl`: null is off. */
export type Policy = number | null;

export interface PolicyFact {
  readonly atMs: number;
  readonly policy: Policy;
}

export interface ModelPolicy extends PolicyFact {
  readonly version: number;
  /** True if the policy was requested before the instant at which it begins. */
  readonly scheduled: boolean;
}

export interface WriteFact {
  readonly atMs: number;
  readonly document: Readonly<Record<string, unknown>>;
  readonly etag: string;
  /** The recorded cause of the write, if it was not a request. Empty for a script whose event is not known. */
  readonly cause?: string;
}

export interface ModelLife {
  readonly writes: WriteFact[];
  /** For a life that began with a recovery: the number of the life whose content was recovered. */
  readonly recoveredFrom: number | null;
  deletedAtMs: number | null;
  /** The recorded cause of the delete; see {@link WriteFact.cause}. */
  deleteCause?: string;
  /** When an erasure on request ended the life, if it was visible until then. */
  erasedAtMs: number | null;
  /** Whether the content is gone. `maybe` after a purge whose outcome is unknown. */
  erased: 'no' | 'maybe' | 'yes';
}

/** The scope of a hold. Items are named as in {@link ModelContainer.items}, and a life as `item number`. */
export type ModelScope =
  | { readonly kind: 'container' }
  | { readonly kind: 'partition-key'; readonly partition: string }
  | { readonly kind: 'items'; readonly items: readonly string[] }
  | { readonly kind: 'query'; readonly lives: readonly string[] };

export interface ModelHold {
  readonly id: string;
  readonly scope: ModelScope;
  released: boolean;
  /** True if a restore has recorded the hold again. Who placed it, and why, is lost. */
  readonly restored?: true;
}

/** How much of a container one TTL change may make expire at once. */
export interface ModelBrake {
  readonly maxItems?: number;
  readonly maxShare?: number;
}

export interface ModelContainer {
  readonly name: string;
  readonly rid: string;
  readonly createdAtMs: number;
  /** In the order in which they begin. The last may be scheduled for a future instant. */
  readonly policies: ModelPolicy[];
  /** The number of all policies so far, including withdrawn ones. */
  policyVersions: number;
  brake: ModelBrake | null;
  readonly holds: ModelHold[];
  floorSeconds: number;
  windowSeconds: number;
  /** True if no two visible items of a partition may have the same `u`. */
  readonly hasUniqueKey: boolean;
  /** True if the store keeps the items' values at the clear paths in clear, for queries. */
  readonly hasClearPaths: boolean;
  graceSeconds: number;
  deletedAtMs: number | null;
  /** The lives of each item, oldest first, by `partition key / id`. */
  readonly items: Map<string, ModelLife[]>;
}

export interface Model {
  readonly containers: ModelContainer[];
}

export interface Ending {
  readonly kind: 'expired' | 'deleted' | 'container-deleted' | 'erasure';
  readonly atMs: number;
  /** True if the start of a policy made the item expire, and not its countdown. */
  readonly byPolicyStart: boolean;
}

export function newContainer(
  created: Pick<ModelContainer, 'name' | 'rid' | 'createdAtMs' | 'hasUniqueKey' | 'hasClearPaths' | 'graceSeconds'> & {
    readonly policy: Policy;
  },
): ModelContainer {
  const { policy, ...facts } = created;
  return {
    ...facts,
    policies: [{ atMs: facts.createdAtMs, policy, version: 1, scheduled: false }],
    policyVersions: 1,
    brake: null,
    holds: [],
    floorSeconds: 0,
    windowSeconds: 0,
    deletedAtMs: null,
    items: new Map(),
  };
}

export function newLife(write: WriteFact, recoveredFrom: number | null = null): ModelLife {
  return { writes: [write], recoveredFrom, deletedAtMs: null, erasedAtMs: null, erased: 'no' };
}

export function addPolicy(container: ModelContainer, atMs: number, policy: Policy, scheduled = false): void {
  container.policyVersions += 1;
  container.policies.push({ atMs, policy, version: container.policyVersions, scheduled });
}

/** The seconds that an item may live under a policy; undefined for ever. */
export function secondsToLive(ttl: unknown, policy: Policy): number | undefined {
  if (policy === null) return undefined;
  const own = isValidTtl(ttl) ? ttl : undefined;
  const seconds = own ?? policy;
  return seconds === -1 ? undefined : seconds;
}

export function isValidTtl(ttl: unknown): ttl is number {
  return typeof ttl === 'number' && Number.isInteger(ttl) && (ttl === -1 || (ttl >= 1 && ttl <= 2_147_483_647));
}

/** A document's value of the unique key, as text. A missing value counts as null. */
export function uniqueValue(document: Readonly<Record<string, unknown>>): string {
  return JSON.stringify(document['u'] ?? null);
}

/** The policy in force at an instant: the last one that had begun. */
export function policyInForce(container: { readonly policies: readonly PolicyFact[] }, atMs: number): Policy {
  let policy: Policy = null;
  for (const fact of container.policies) if (fact.atMs <= atMs) policy = fact.policy;
  return policy;
}

/** True when, at that very instant, the countdown of a write had run out under the policy in force. */
function runOutAt(container: { readonly policies: readonly PolicyFact[] }, write: WriteFact, atMs: number): boolean {
  const seconds = secondsToLive(write.document['ttl'], policyInForce(container, atMs));
  return seconds !== undefined && (Math.floor(write.atMs / 1000) + seconds) * 1000 <= atMs;
}

/**
 * The first instant up to `nowMs` at which a write had run out. That can only be when a policy begins, or when a countdown
 * under one of the policies ends, so only these instants are checked.
 */
export function runOut(
  container: { readonly policies: readonly PolicyFact[] },
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

/** How a life had ended by an instant, judged by what was recorded then; undefined if it was still visible. */
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
  if (life.erasedAtMs !== null && life.erasedAtMs <= atMs) {
    endings.push({ kind: 'erasure', atMs: life.erasedAtMs, byPolicyStart: false });
  }
  // A delete of an item that had run out is refused, so a life that was deleted had not run out by then.
  const rank = { deleted: 0, erasure: 0, 'container-deleted': 1, expired: 2 };
  return endings.toSorted((left, right) => left.atMs - right.atMs || rank[left.kind] - rank[right.kind])[0];
}

/** The latest life of an item that had begun by an instant. */
export function lifeAt(container: ModelContainer, item: string, atMs: number): ModelLife | undefined {
  return container.items.get(item)?.findLast((life) => life.writes[0]!.atMs <= atMs);
}

/** The life of an item that is visible at an instant. */
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

/** True while the container guarantees that an ended life can still be recovered. Nothing erases the life until then. */
export function isInGrace(container: ModelContainer, ending: Ending, nowMs: number): boolean {
  if (container.deletedAtMs !== null && container.deletedAtMs <= nowMs) return false;
  const seconds = Math.max(container.windowSeconds, ending.byPolicyStart ? container.graceSeconds : 0);
  return ending.atMs + seconds * 1000 > nowMs;
}

/** True if a hold or the floor protects the content of a life from any erasure. */
export function isKept(container: ModelContainer, item: string, number: number, nowMs: number): boolean {
  const lastWriteMs = Math.floor(container.items.get(item)![number]!.writes.at(-1)!.atMs / 1000) * 1000;
  if (lastWriteMs + container.floorSeconds * 1000 > nowMs) return true;
  return container.holds.some(({ scope, released }) => !released && isCovered(scope, item, number));
}

export function isCovered(scope: ModelScope, item: string, number: number): boolean {
  switch (scope.kind) {
    case 'container':
      return true;
    case 'partition-key':
      return item.startsWith(`${scope.partition}/`);
    case 'items':
      return scope.items.includes(item);
    case 'query':
      return scope.lives.includes(`${item} ${number}`);
  }
}

/** True if a purge at that instant erases a life: it has ended, and nothing keeps it. */
export function isErasable(container: ModelContainer, item: string, number: number, nowMs: number): boolean {
  const ending = endingAt(container, container.items.get(item)![number]!, nowMs);
  return ending !== undefined && !isInGrace(container, ending, nowMs) && !isKept(container, item, number, nowMs);
}

/** The lives that a purge at that instant erases. */
export function erasable(model: Model, nowMs: number): ModelLife[] {
  return model.containers.flatMap((container) =>
    [...container.items].flatMap(([item, lives]) =>
      lives.filter((life, number) => life.erased !== 'yes' && isErasable(container, item, number, nowMs)),
    ),
  );
}

/** Marks the lives that a completed purge has erased. */
export function applyPurge(model: Model, nowMs: number): void {
  for (const life of erasable(model, nowMs)) life.erased = 'yes';
}

/** A life by what no other life has, in whatever course of things. */
/** All lives, with the container, item and number of each. */
export function* livesOf(model: Model): Generator<[ModelContainer, string, number, ModelLife]> {
  for (const container of model.containers) {
    for (const [item, lives] of container.items) {
      for (const [number, life] of lives.entries()) yield [container, item, number, life];
    }
  }
}

export function lifeName({ rid }: ModelContainer, item: string, number: number, life: ModelLife): string {
  const { atMs, document } = life.writes[0]!;
  return `${rid} ${item} ${number} ${atMs} ${String(document['v'])}`;
}

/** Applies a restore to the model of the backup. Lives that were erased since the backup stay erased. */
export function applyRestore(model: Model, erasedSince: ReadonlySet<string>, nowMs: number): void {
  for (const container of model.containers) {
    for (const [item, lives] of container.items) {
      for (const [number, life] of lives.entries()) {
        if (!erasedSince.has(lifeName(container, item, number, life))) continue;
        // The event that ended the life came after the backup, and is lost. It is only known that the life has ended.
        if (endingAt(container, life, nowMs) === undefined) life.deletedAtMs = nowMs;
        life.erased = 'yes';
      }
    }
  }
  applyPurge(model, nowMs);
}
