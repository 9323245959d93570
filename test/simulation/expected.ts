import { type Command, type ItemCommand, nameOf, type Outcome } from './commands.ts';
import {
  applyPurge,
  isValidTtl,
  type Model,
  type ModelContainer,
  policyInForce,
  uniqueValue,
  visibleLife,
} from './model.ts';

/** The name under which containers have a unique key, at `/u`. */
export const WITH_UNIQUE_KEY = 'c2';

/** The container that has a name now. */
export function liveContainer(model: Model, name: string): ModelContainer | undefined {
  return model.containers.findLast((container) => container.name === name && container.deletedAtMs === null);
}

/**
 * What a command must come to at an instant, by the semantics alone. When that is what `actual` says, the model is
 * changed by it; otherwise the expected code is returned and the model is as it was.
 */
export function expectOutcome(model: Model, command: Command, nowMs: number, actual: Outcome): string | undefined {
  const expected = codeOf(model, command, nowMs);
  if (expected !== actual.code) return expected;
  if (expected === 'ok') apply(model, command, nowMs, actual);
  return undefined;
}

function codeOf(model: Model, command: Command, nowMs: number): string {
  if (command.kind === 'purge' || command.kind === 'rebuild') return 'ok';
  const container = liveContainer(model, command.container);
  if (command.kind === 'create-container') return container === undefined ? 'ok' : 'already-exists';
  if (container === undefined) return 'container-not-found';
  if (!('item' in command) && command.kind !== 'batch') return 'ok';
  if (command.kind === 'batch') {
    const changed = structuredClone(model);
    for (const step of command.steps) {
      const code = codeOf(changed, step, nowMs);
      if (code !== 'ok') return code;
      apply(changed, step, nowMs, { code });
    }
    return 'ok';
  }

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
    if (command.ifMatch !== undefined && command.ifMatch !== current?.etag) return 'precondition-failed';
    if (command.ifNoneMatch === '*' && current !== undefined) return 'precondition-failed';
  }
  return isTaken(container, command.item, document, nowMs) ? 'unique-key-taken' : 'ok';
}

/** True when the container has a unique key and another visible item of the partition has the document's value. */
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

/** The document that stands after a write or patch. */
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
  const { etag, rid, etags, atMs = nowMs } = outcome;
  if (command.kind === 'purge') return applyPurge(model, nowMs, 'done');
  if (command.kind === 'rebuild') return;
  if (command.kind === 'create-container') {
    model.containers.push({
      name: command.container,
      rid: rid ?? '',
      createdAtMs: nowMs,
      policies: [{ atMs: nowMs, policy: command.policy }],
      hasUniqueKey: command.container === WITH_UNIQUE_KEY,
      graceSeconds: 3600,
      deletedAtMs: null,
      items: new Map(),
    });
    return;
  }
  const container = liveContainer(model, command.container)!;
  switch (command.kind) {
    case 'policy':
      if (container.policies.at(-1)!.policy !== command.policy) {
        container.policies.push({ atMs, policy: command.policy });
      }
      return;
    case 'grace':
      container.graceSeconds = command.seconds;
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
    case 'delete':
      visibleLife(container, command.item, nowMs)!.deletedAtMs = nowMs;
      return;
    case 'write':
    case 'patch': {
      const write = { atMs: nowMs, document: documentAfter(model, command, nowMs), etag: etag ?? '' };
      const life = visibleLife(container, command.item, nowMs);
      if (life !== undefined) life.writes.push(write);
      else {
        const lives = container.items.get(command.item) ?? [];
        lives.push({ writes: [write], deletedAtMs: null, erased: 'no' });
        container.items.set(command.item, lives);
      }
    }
  }
}

/**
 * The models that may be right after commands of which some were acknowledged and the outcome of the others is unknown:
 * any of those may have happened, in any order.
 */
export function alternatives(
  model: Model,
  commands: readonly Command[],
  acknowledged: readonly Command[],
  nowMs: number,
): Model[] {
  const purges = commands.some((command) => command.kind === 'purge');
  const found: Model[] = [];
  for (const order of orders(commands.filter((command) => command.kind !== 'purge' && command.kind !== 'rebuild'))) {
    const changes = (command: Command) => command.kind !== 'purge' && command.kind !== 'rebuild';
    if (!acknowledged.filter(changes).every((command) => order.includes(command))) continue;
    // A change of a container is put off by a millisecond when somebody was answered for this one.
    for (const atMs of order.some((command) => !('item' in command)) ? [nowMs, nowMs + 1] : [nowMs]) {
      const changed = structuredClone(model);
      for (const command of order) {
        if (codeOf(changed, command, nowMs) === 'ok') apply(changed, command, nowMs, { code: 'ok', atMs });
      }
      if (purges) applyPurge(changed, nowMs, 'unknown');
      found.push(changed);
    }
  }
  return found;
}

/** Every selection of some values in every order, the longest first. */
function orders<Value>(values: readonly Value[]): Value[][] {
  const all: Value[][] = [[]];
  for (const [index, value] of values.entries()) {
    const others = values.filter((_, other) => other !== index);
    for (const rest of orders(others)) all.push([value, ...rest]);
  }
  return all.toSorted((left, right) => right.length - left.length);
}
