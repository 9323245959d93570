import {
  type Command,
  isRetentionCommand,
  isStoreCommand,
  type ItemCommand,
  nameOf,
  type Outcome,
  type RetentionCommand,
  type ScriptCommand,
  type WantedScope,
} from './commands.ts';
import {
  addPolicy,
  applyPurge,
  endingAt,
  erasable,
  isCovered,
  isKept,
  isValidTtl,
  lifeAt,
  lifeName,
  livesOf,
  type Model,
  type ModelContainer,
  type ModelLife,
  type ModelPolicy,
  type ModelScope,
  newContainer,
  newLife,
  policyInForce,
  runOut,
  uniqueValue,
  visibleLife,
  type WriteFact,
} from './model.ts';
import { planOf, type ScriptPlan, standingItems } from './script-plan.ts';

/** The name under which containers have a unique key, at `/u`. */
export const WITH_UNIQUE_KEY = 'c2';

/** The existing container with a name. */
export function liveContainer(model: Model, name: string): ModelContainer | undefined {
  return model.containers.findLast((container) => container.name === name && container.deletedAtMs === null);
}

/** The container that a command is about. For most retention commands it may be a deleted one, since its content may still be kept. */
function containerFor(
  model: Model,
  command: Extract<Command, { readonly container: string }>,
): ModelContainer | undefined {
  const live = liveContainer(model, command.container);
  if (live !== undefined || !isRetentionCommand(command) || RECOVERIES.has(command.kind)) return live;
  return model.containers.findLast(({ name }) => name === command.container);
}

/** Commands that write items, so their container must exist. */
const RECOVERIES: ReadonlySet<string> = new Set<RetentionCommand['kind']>(['recover', 'recover-policy']);

/**
 * Compares the outcome of a command at an instant with the one that the semantics require. If they agree, the command is
 * applied to the model. Otherwise the expected code is returned, and the model is not changed.
 */
export function expectOutcome(model: Model, command: Command, nowMs: number, actual: Outcome): string | undefined {
  let atMs = nowMs;
  const expected = codeOf(model, command, nowMs);
  if (expected !== actual.code) {
    // A change that was postponed by a millisecond is judged by the state at that instant.
    if (!POSTPONED.has(command.kind) || codeOf(model, command, ++atMs) !== actual.code) return expected;
  }
  if (actual.code !== 'ok') return undefined;
  if (command.kind === 'script') {
    const { told } = scriptPlan(model, command, nowMs);
    if (JSON.stringify(told) !== JSON.stringify(actual.told)) return `one that heard ${JSON.stringify(told)}`;
  }
  apply(model, command, atMs, actual);
  return undefined;
}

function scriptPlan(model: Model, command: ScriptCommand, nowMs: number): ScriptPlan {
  return planOf(liveContainer(model, command.container)!, command, nowMs);
}

/** The codes with which a command that must change nothing may be answered. */
export function expectRefusal(model: Model, command: RetentionCommand, nowMs: number): string[] {
  const code = codeOf(model, command, nowMs);
  const isThere =
    command.kind === 'place-hold' && containerFor(model, command)?.holds.some(({ id }) => id === command.hold);
  return code === 'ok' && isThere !== true ? [] : [code];
}

function codeOf(model: Model, command: Command, nowMs: number): string {
  if (isStoreCommand(command)) return 'ok';
  const container = containerFor(model, command);
  if (command.kind === 'create-container') return container === undefined ? 'ok' : 'already-exists';
  if (container === undefined) return 'container-not-found';
  switch (command.kind) {
    case 'grace':
    case 'brake':
    case 'delete-container':
    case 'delete-partition':
      return 'ok';
    case 'policy':
    case 'policy-from':
      return codeOfPolicy(container, command, nowMs);
    case 'withdraw':
      return scheduledPolicy(container, nowMs) === undefined ? 'no-ttl-change-scheduled' : 'ok';
    case 'batch': {
      const changed = structuredClone(model);
      for (const step of command.steps) {
        const code = codeOf(changed, step, nowMs);
        if (code !== 'ok') return code;
        apply(changed, step, nowMs, { code });
      }
      return 'ok';
    }
    case 'script':
      return codeOfScript(model, command, nowMs);
    case 'write':
    case 'patch':
    case 'delete':
      return codeOfItem(model, container, command, nowMs);
    default:
      return codeOfRetention(container, command, nowMs);
  }
}

function codeOfItem(model: Model, container: ModelContainer, command: ItemCommand, nowMs: number): string {
  const current = visibleLife(container, command.item, nowMs)?.writes.at(-1);
  if (command.kind === 'delete') {
    if (current === undefined) return 'item-not-found';
    return command.ifMatch === undefined || command.ifMatch === current.etag ? 'ok' : 'precondition-failed';
  }
  if (command.kind === 'patch') {
    if (current === undefined) return 'item-not-found';
    if (command.remove !== undefined && !(command.remove in current.document)) return 'bad-request';
  }
  const document = documentAfter(model, command, nowMs);
  const { ttl } = document;
  if (policyInForce(container, nowMs) !== null && ttl !== undefined && !isValidTtl(ttl)) return 'invalid-ttl';
  if (command.kind === 'write') {
    if (command.operation === 'create' && current !== undefined) return 'already-exists';
    if (command.operation === 'replace' && current === undefined) return 'item-not-found';
    if (current !== undefined) {
      if (command.ifMatch !== undefined && command.ifMatch !== current.etag) return 'precondition-failed';
      if (command.ifNoneMatch === '*') return 'precondition-failed';
    }
  }
  return isTaken(container, command.item, document, nowMs) ? 'unique-key-taken' : 'ok';
}

/** True for a script that records nothing. */
export function writesNothing(model: Model, command: ScriptCommand, nowMs: number): boolean {
  return command.fails || scriptPlan(model, command, nowMs).writes.length === 0;
}

function codeOfScript(model: Model, command: ScriptCommand, nowMs: number): string {
  const { writes, found } = scriptPlan(model, command, nowMs);
  if (command.fails) return 'script-failed';
  const changed = structuredClone(model);
  const container = liveContainer(changed, command.container)!;
  for (const [item, etag] of found) {
    if (visibleLife(container, item, nowMs)?.writes.at(-1)?.etag !== etag) return 'overtaken';
  }
  for (const { item, document } of writes) {
    if (document !== undefined && isTaken(container, item, document, nowMs)) return 'overtaken';
    applyWrite(container, item, nowMs, document === undefined ? undefined : { document, etag: '' });
  }
  return 'ok';
}

function codeOfPolicy(
  container: ModelContainer,
  command: Extract<Command, { kind: 'policy' | 'policy-from' }>,
  nowMs: number,
): string {
  const { policy } = command;
  const fromMs = command.kind === 'policy' ? nowMs : command.fromMs;
  if (fromMs < nowMs) return 'bad-request';
  if (currentPolicy(container, nowMs).policy === policy) return 'ok';
  if (scheduledPolicy(container, nowMs) !== undefined) return 'ttl-change-scheduled';
  const { brake } = container;
  if (brake === null || (command.kind === 'policy-from' && command.confirmed)) return 'ok';
  // Counts the items that are visible when the policy takes effect, judged by the existing policies, and those that it would expire.
  const started = container.policies.filter(({ atMs }) => atMs < fromMs);
  const proposed = { policies: [...started, { atMs: fromMs, policy }] };
  let [items, of] = [0, 0];
  for (const item of container.items.keys()) {
    const life = lifeAt(container, item, nowMs);
    if (life === undefined) continue;
    const ending = endingAt(container, life, nowMs);
    // An item that would expire at the very instant when the policy takes effect is judged by the new policy.
    const isThere = ending === undefined || (ending.kind === 'expired' && ending.atMs === fromMs);
    const write = life.writes.at(-1)!;
    if (!isThere || runOut(container, write, fromMs - 1) !== undefined) continue;
    of += 1;
    if (runOut(proposed, write, fromMs) !== undefined) items += 1;
  }
  const { maxItems = Infinity, maxShare = 1 } = brake;
  return items > maxItems || (of > 0 && items / of > maxShare) ? 'ttl-change-braked' : 'ok';
}

/** The newest policy, except for one that is scheduled for a future instant. */
function currentPolicy(container: ModelContainer, nowMs: number): ModelPolicy {
  return container.policies.findLast(({ atMs, scheduled }) => atMs <= nowMs || !scheduled)!;
}

function scheduledPolicy(container: ModelContainer, nowMs: number): ModelPolicy | undefined {
  const last = container.policies.at(-1)!;
  return last.scheduled && last.atMs > nowMs ? last : undefined;
}

function codeOfRetention(container: ModelContainer, command: RetentionCommand, nowMs: number): string {
  switch (command.kind) {
    case 'floor':
    case 'window':
      return 'ok';
    case 'place-hold': {
      const standing = container.holds.find(({ id }) => id === command.hold);
      if (standing !== undefined) {
        const isSame =
          !standing.released &&
          standing.restored !== true &&
          command.scope.kind !== 'query' &&
          sameScope(standing.scope, resolved(container, command.scope, nowMs));
        return isSame ? 'ok' : 'already-exists';
      }
      return command.scope.kind === 'query' && container.deletedAtMs !== null ? 'container-not-found' : 'ok';
    }
    case 'release-hold':
      return container.holds.some(({ id }) => id === command.hold) ? 'ok' : 'hold-not-found';
    case 'erase': {
      const lives = container.items.get(command.item);
      if (lives === undefined) return 'item-not-found';
      const isHeld = lives.some(
        ({ erased }, number) => erased !== 'yes' && isKept(container, command.item, number, nowMs),
      );
      return isHeld ? 'held' : 'ok';
    }
    case 'read-ended':
      return codeOfReading(readLife(container, command, nowMs));
    case 'recover': {
      const life = endedLife(container, command, nowMs);
      if (life === undefined) return 'item-not-found';
      if (visibleLife(container, command.item, nowMs) !== undefined) return 'already-exists';
      if (life.erased === 'yes') return 'content-erased';
      return isTaken(container, command.item, life.writes.at(-1)!.document, nowMs) ? 'unique-key-taken' : 'ok';
    }
    case 'recover-policy':
      return container.policies.some(
        ({ version, atMs }, index) => version === command.version && container.policies[index + 1]?.atMs !== atMs,
      )
        ? 'ok'
        : 'bad-request';
  }
}

function codeOfReading(life: ModelLife | undefined): string {
  if (life === undefined) return 'item-not-found';
  return life.erased === 'yes' ? 'content-erased' : 'ok';
}

/** The ended life of an item that a command means. If the command names no life, it is the last one that has ended. */
function endedLife(
  container: ModelContainer,
  { item, life }: { readonly item: string; readonly life?: number },
  nowMs: number,
): ModelLife | undefined {
  const over = (container.items.get(item) ?? []).map((one) =>
    endingAt(container, one, nowMs) === undefined ? undefined : one,
  );
  return life === undefined ? over.findLast((one) => one !== undefined) : over[life];
}

/** The same for a command that reads content. If the command names no life, it is the last ended one whose content is not erased. */
function readLife(
  container: ModelContainer,
  command: { readonly item: string; readonly life?: number },
  nowMs: number,
): ModelLife | undefined {
  if (command.life !== undefined) return endedLife(container, command, nowMs);
  const lives = container.items.get(command.item) ?? [];
  const last = endedLife(container, command, nowMs);
  return lives.findLast((life) => life.erased !== 'yes' && endingAt(container, life, nowMs) !== undefined) ?? last;
}

/** Resolves the scope of a hold. For a query, it is fixed to the lives that match at this instant. */
function resolved(container: ModelContainer, scope: WantedScope, nowMs: number): ModelScope {
  if (scope.kind === 'items') return { kind: 'items', items: [...new Set(scope.items)].toSorted() };
  if (scope.kind !== 'query') return scope;
  if (scope.found !== undefined) return { kind: 'query', lives: scope.found };
  const lives: string[] = [];
  for (const [item, all] of container.items) {
    const document = visibleLife(container, item, nowMs)?.writes.at(-1)!.document;
    if (document !== undefined && Number(document['v']) >= scope.least) lives.push(`${item} ${all.length - 1}`);
  }
  return { kind: 'query', lives };
}

/**
 * Variants of a command that takes effect after a concurrent one, but had read the items before that. For a hold, some of
 * the items may be erased by then. A script reads all items as they were at one moment.
 */
export function withFound(model: Model, command: Command, nowMs: number): Command[] {
  const container = 'container' in command ? liveContainer(model, command.container) : undefined;
  if (container === undefined) return [];
  if (command.kind === 'script') {
    const items = standingItems(container, command.partition, nowMs);
    const checked = container.hasUniqueKey ? [...command.steps.keys(), command.steps.length] : [0];
    return checked.flatMap((keptUnique) =>
      [true, false].map((isRead) => ({ ...command, earlier: { items, isRead, keptUnique } })),
    );
  }
  if (command.kind !== 'place-hold' || command.scope.kind !== 'query') return [];
  const scope = resolved(container, command.scope, nowMs);
  return scope.kind === 'query' ? [{ ...command, scope: { ...command.scope, found: scope.lives } }] : [];
}

const sameScope = (left: ModelScope, right: ModelScope): boolean => JSON.stringify(left) === JSON.stringify(right);

/** How many lives that a hold covers are erased already. */
export function tooLateFor(container: ModelContainer, holdId: string): number {
  const { scope } = container.holds.find(({ id }) => id === holdId)!;
  let count = 0;
  for (const [item, lives] of container.items) {
    for (const [number, { erased }] of lives.entries()) {
      if (erased === 'yes' && isCovered(scope, item, number)) count += 1;
    }
  }
  return count;
}

/** True if the container has a unique key, and another visible item of the partition has the document's value. */
function isTaken(
  container: ModelContainer,
  item: string,
  document: Readonly<Record<string, unknown>>,
  nowMs: number,
): boolean {
  if (!container.hasUniqueKey) return false;
  return [...container.items.keys()].some((other) => {
    if (other === item || nameOf(other).partition !== nameOf(item).partition) return false;
    const standing = visibleLife(container, other, nowMs)?.writes.at(-1)?.document;
    return standing !== undefined && uniqueValue(standing) === uniqueValue(document);
  });
}

/** By item, the lives that expired by the start of a policy and that can be recovered. */
function takenBy(container: ModelContainer, version: number, nowMs: number): Map<string, number> {
  const found = new Map<string, number>();
  for (const [item, lives] of container.items) {
    const number = lives.length - 1;
    const life = lives[number]!;
    const ending = endingAt(container, life, nowMs);
    if (ending?.kind !== 'expired' || !ending.byPolicyStart || life.erased === 'yes') continue;
    const policy = container.policies.findLast(({ atMs }) => atMs <= ending.atMs)!;
    if (policy.version === version && !isTaken(container, item, life.writes.at(-1)!.document, nowMs)) {
      found.set(item, number);
    }
  }
  return found;
}

/** The document after a write or patch. */
export function documentAfter(
  model: Model,
  command: Extract<ItemCommand, { kind: 'write' | 'patch' }>,
  nowMs: number,
): Readonly<Record<string, unknown>> {
  if (command.kind === 'write') return command.document;
  const container = liveContainer(model, command.container)!;
  const current = visibleLife(container, command.item, nowMs)?.writes.at(-1)?.document ?? {};
  const kept = Object.entries(current).filter(([name]) => name !== command.remove);
  return { ...Object.fromEntries(kept), ...command.set };
}

function apply(model: Model, command: Command, nowMs: number, outcome: Outcome): void {
  const { etag = '', rid, etags, atMs = nowMs, recovered } = outcome;
  if (command.kind === 'purge') return applyPurge(model, nowMs);
  if (isStoreCommand(command)) return;
  if (command.kind === 'create-container') {
    model.containers.push(
      newContainer({
        name: command.container,
        rid: rid ?? '',
        createdAtMs: nowMs,
        policy: command.policy,
        hasUniqueKey: command.container === WITH_UNIQUE_KEY,
        hasClearPaths: command.clear === true,
        graceSeconds: 3600,
      }),
    );
    return;
  }
  const container = containerFor(model, command)!;
  switch (command.kind) {
    case 'policy':
    case 'policy-from': {
      const { policy } = command;
      // The current policy may have changed while the command was postponed, so the command is compared with the policy at that instant.
      const isNew = outcome.policyVersion !== undefined && outcome.policyVersion > container.policyVersions;
      if (currentPolicy(container, isNew ? atMs : nowMs).policy === policy) return;
      const scheduled = command.kind === 'policy-from' && command.fromMs > nowMs;
      addPolicy(container, scheduled ? command.fromMs : atMs, policy, scheduled);
      return;
    }
    case 'withdraw':
      container.policies.pop();
      return;
    case 'brake':
      container.brake = command.brake;
      return;
    case 'grace':
      container.graceSeconds = command.seconds;
      return;
    case 'floor':
      container.floorSeconds = command.seconds;
      return;
    case 'window':
      container.windowSeconds = command.seconds;
      return;
    case 'place-hold':
      if (container.holds.some(({ id }) => id === command.hold)) return;
      container.holds.push({
        id: command.hold,
        scope: resolved(container, command.scope, nowMs),
        released: false,
      });
      return;
    case 'release-hold':
      container.holds.find(({ id }) => id === command.hold)!.released = true;
      return;
    case 'erase': {
      const visible = visibleLife(container, command.item, atMs);
      if (visible !== undefined) visible.erasedAtMs = atMs;
      for (const life of container.items.get(command.item)!) life.erased = 'yes';
      return;
    }
    case 'read-ended':
      return;
    case 'recover': {
      const lives = container.items.get(command.item)!;
      bringBack(lives, lives.indexOf(endedLife(container, command, nowMs)!), nowMs, etag);
      return;
    }
    case 'recover-policy':
      for (const [item, number] of takenBy(container, command.version, nowMs)) {
        bringBack(container.items.get(item)!, number, nowMs, recovered?.[item] ?? '');
      }
      return;
    case 'delete-container':
      container.deletedAtMs = atMs;
      return;
    case 'batch':
      for (const [index, step] of command.steps.entries()) {
        const made = etags?.[index];
        apply(model, step, nowMs, { code: 'ok', ...(made === undefined ? {} : { etag: made }) });
      }
      return;
    case 'delete-partition':
      for (const item of container.items.keys()) {
        if (nameOf(item).partition !== command.partition) continue;
        const life = visibleLife(container, item, nowMs);
        if (life !== undefined) life.deletedAtMs = nowMs;
      }
      return;
    case 'script':
      for (const [index, { item, document }] of scriptPlan(model, command, nowMs).writes.entries()) {
        const { cause = '' } = outcome;
        applyWrite(container, item, nowMs, document && { document, etag: etags?.[index] ?? '' }, cause);
      }
      return;
    case 'delete':
      applyWrite(container, command.item, nowMs, undefined);
      return;
    case 'write':
    case 'patch':
      applyWrite(container, command.item, nowMs, { document: documentAfter(model, command, nowMs), etag });
  }
}

/** Writes an item, or deletes it if no document is given. */
function applyWrite(
  container: ModelContainer,
  item: string,
  atMs: number,
  written: Pick<WriteFact, 'document' | 'etag'> | undefined,
  cause?: string,
): void {
  const life = visibleLife(container, item, atMs);
  const caused = cause === undefined ? {} : { cause };
  if (written === undefined) {
    life!.deletedAtMs = atMs;
    if (cause !== undefined) life!.deleteCause = cause;
  } else if (life !== undefined) life.writes.push({ ...written, atMs, ...caused });
  else {
    const lives = container.items.get(item) ?? [];
    lives.push(newLife({ ...written, atMs, ...caused }));
    container.items.set(item, lives);
  }
}

function bringBack(lives: ModelLife[], from: number, atMs: number, etag: string): void {
  const { document } = lives[from]!.writes.at(-1)!;
  lives.push(newLife({ atMs, document, etag }, from));
}

/**
 * The models that are possible after commands of which some were acknowledged, and the outcome of the others is unknown. Any
 * of the others may have taken effect, in any order.
 */
export function alternatives(
  model: Model,
  commands: readonly Command[],
  acknowledged: readonly Command[],
  nowMs: number,
  /** When the store continued. An interrupted erasure is carried out then. */
  resumedAtMs = nowMs,
  /** The names of lives whose keys were destroyed when the store continued. Nothing can keep these. */
  goneByThen: ReadonlySet<string> = new Set(),
): Model[] {
  const purges = commands.some((command) => command.kind === 'purge');
  const found: Model[] = [];
  const changes = (command: Command) => !isStoreCommand(command);
  for (const order of orders(commands.filter(changes))) {
    if (!acknowledged.filter(changes).every((command) => order.includes(command))) continue;
    // A change of a container is postponed by a millisecond if a request was answered for the current one.
    const instants = order.some(({ kind }) => POSTPONED.has(kind)) ? [nowMs, nowMs + 1] : [nowMs];
    if (order.some(({ kind }) => kind === 'erase') && !instants.includes(resumedAtMs)) instants.push(resumedAtMs);
    for (const atMs of instants) {
      const changed = structuredClone(model);
      // A concurrent purge may also have seen the state before all of these commands.
      const erased = purges ? erasable(changed, nowMs) : [];
      for (const command of order) {
        // A floor that prevented an erasure when it was requested may have passed when it is carried out. A postponed change may
        // find a policy in force that was only scheduled before.
        const decidedAtMs = command.kind === 'erase' ? [atMs] : POSTPONED.has(command.kind) ? [nowMs, atMs] : [nowMs];
        if (command.kind === 'erase' && atMs === resumedAtMs) markGone(changed, goneByThen);
        if (decidedAtMs.some((ms) => codeOf(changed, command, ms) === 'ok')) {
          const kept = command.kind === 'erase' && !acknowledged.includes(command) ? keptLives(changed, command) : [];
          // A postponed command may change something only at the later instant.
          const put = atMs > nowMs ? { policyVersion: Number.POSITIVE_INFINITY } : {};
          apply(changed, command, nowMs, { code: 'ok', atMs, ...put });
          // For a life that had ended before, only its content shows whether the erasure was recorded.
          for (const life of kept) if (life.erasedAtMs === null) life.erased = 'maybe';
        }
        if (purges) erased.push(...erasable(changed, nowMs));
      }
      for (const life of erased) if (life.erased === 'no') life.erased = 'maybe';
      found.push(changed);
    }
  }
  return found;
}

function markGone(model: Model, names: ReadonlySet<string>): void {
  if (names.size === 0) return;
  for (const [container, item, number, life] of livesOf(model)) {
    if (names.has(lifeName(container, item, number, life))) life.erased = 'yes';
  }
}

/** The lives that an erasure is about and whose content is not erased yet. */
function keptLives(model: Model, command: Extract<Command, { readonly kind: 'erase' }>): ModelLife[] {
  return (containerFor(model, command)?.items.get(command.item) ?? []).filter(({ erased }) => erased !== 'yes');
}

/** Changes of a container that are postponed by a millisecond if a request was answered for the current one. */
const POSTPONED: ReadonlySet<string> = new Set<Command['kind']>([
  'policy',
  'policy-from',
  'withdraw',
  'delete-container',
]);

/** Every selection of some values in every order, the longest first. */
function orders<Value>(values: readonly Value[]): Value[][] {
  const all: Value[][] = [[]];
  for (const [index, value] of values.entries()) {
    const others = values.filter((_, other) => other !== index);
    for (const rest of orders(others)) all.push([value, ...rest]);
  }
  return all.toSorted((left, right) => right.length - left.length);
}
