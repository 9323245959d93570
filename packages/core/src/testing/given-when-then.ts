import type { ClientEncryptionKeyCommand } from '../client-encryption-key/commands.ts';
import { decideClientEncryptionKey } from '../client-encryption-key/decide.ts';
import type { ClientEncryptionKeyEvent } from '../client-encryption-key/events.ts';
import { foldClientEncryptionKey } from '../client-encryption-key/evolve.ts';
import { clientEncryptionKeyStream } from '../client-encryption-key/stream-name.ts';
import { clientEncryptionKeyEventVersions } from '../client-encryption-key/upcast.ts';
import type { ContainerCommand } from '../container/commands.ts';
import { decideContainer } from '../container/decide.ts';
import type { ContainerEvent } from '../container/events.ts';
import { foldContainer } from '../container/evolve.ts';
import { containerStream } from '../container/stream-name.ts';
import { containerEventVersions } from '../container/upcast.ts';
import type { DatabaseCommand } from '../database/commands.ts';
import { decideDatabase } from '../database/decide.ts';
import type { DatabaseEvent } from '../database/events.ts';
import { foldDatabase } from '../database/evolve.ts';
import { databaseStream } from '../database/stream-name.ts';
import { databaseEventVersions } from '../database/upcast.ts';
import type { ItemCommand } from '../item/commands.ts';
import { decideItem } from '../item/decide.ts';
import { etagOf, type ItemEvent } from '../item/events.ts';
import { foldItem } from '../item/handle.ts';
import { itemStream } from '../item/stream-name.ts';
import { itemEventVersions } from '../item/upcast.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import type { ScriptCommand } from '../script/commands.ts';
import { decideScript } from '../script/decide.ts';
import type { ScriptEvent } from '../script/events.ts';
import { foldScript } from '../script/evolve.ts';
import { scriptStream } from '../script/stream-name.ts';
import { scriptEventVersions } from '../script/upcast.ts';
import type { UniqueKeyCommand } from '../unique-key/commands.ts';
import { decideUniqueKey } from '../unique-key/decide.ts';
import type { UniqueKeyEvent } from '../unique-key/events.ts';
import { foldUniqueKey } from '../unique-key/evolve.ts';
import { uniqueKeyStream } from '../unique-key/stream-name.ts';
import { uniqueKeyEventVersions } from '../unique-key/upcast.ts';
import type { UserCommand } from '../user/commands.ts';
import { decideUser } from '../user/decide.ts';
import type { UserEvent } from '../user/events.ts';
import { foldUser } from '../user/evolve.ts';
import { userStream } from '../user/stream-name.ts';
import { userEventVersions } from '../user/upcast.ts';

/**
 * A decider specified by examples: given these events, when this command comes, then those events or that refusal
 * follow. After Emmett's `DeciderSpecification`; the names of the outcomes are this store's.
 *
 *     givenItem(created).when(command).then(upserted);
 *     givenItem().when(command).thenRefused('not-found');
 */
export interface Given<Command, Event> {
  when(command: Command): Outcome<Event>;
}

/** Each function throws a {@link SpecificationFailure} unless the outcome is the one it names. */
export interface Outcome<Event> {
  /** Accepted, with exactly these events in this order. None for a command that changes nothing. */
  then(...events: readonly Event[]): void;
  /** Refused, for this reason. `details` are the other properties of the refusal. */
  thenRefused(reason: string, details?: object): void;
  /** Items: the life had ended before the command, and this event records the end first. */
  thenEndsFirst(event: Event): void;
  /** Items: the life has ended, and the command is for the next one. */
  thenGoesToNextLife(): void;
}

/** The outcome of a decider was not the one that its specification names. */
export class SpecificationFailure extends Error {
  override readonly name = 'SpecificationFailure';
}

/** An event with the time and actor of its record, for tests in which these matter. */
export interface PastEvent<Event> {
  readonly event: Event;
  readonly atMs: number;
  readonly actor?: string;
}

/** The etag after the event that was given at this index, counted from 0. */
export function etagOfGiven(index: number): string {
  return etagOf(idOfGiven(index));
}

/** One life of an item. */
export function givenItem(...past: readonly (ItemEvent | PastEvent<ItemEvent>)[]): Given<ItemCommand, ItemEvent> {
  const recorded = past.map((entry, index) =>
    record(itemStream('item-Specified.hash', 0), entry, index, itemEventVersions),
  );
  return { when: (command) => outcomeOf(command, decideItem(foldItem(recorded), command)) };
}

export function givenContainer(
  ...past: readonly (ContainerEvent | PastEvent<ContainerEvent>)[]
): Given<ContainerCommand, ContainerEvent> {
  const recorded = past.map((entry, index) =>
    record(containerStream('Specified'), entry, index, containerEventVersions),
  );
  return { when: (command) => outcomeOf(command, decideContainer(foldContainer(recorded), command)) };
}

export function givenDatabase(
  ...past: readonly (DatabaseEvent | PastEvent<DatabaseEvent>)[]
): Given<DatabaseCommand, DatabaseEvent> {
  const recorded = past.map((entry, index) => record(databaseStream('Specified'), entry, index, databaseEventVersions));
  return { when: (command) => outcomeOf(command, decideDatabase(foldDatabase(recorded), command)) };
}

/** One user and its permissions. */
export function givenUser(...past: readonly (UserEvent | PastEvent<UserEvent>)[]): Given<UserCommand, UserEvent> {
  const recorded = past.map((entry, index) => record(userStream('Specified'), entry, index, userEventVersions));
  return { when: (command) => outcomeOf(command, decideUser(foldUser(recorded), command)) };
}

export function givenClientEncryptionKey(
  ...past: readonly (ClientEncryptionKeyEvent | PastEvent<ClientEncryptionKeyEvent>)[]
): Given<ClientEncryptionKeyCommand, ClientEncryptionKeyEvent> {
  const recorded = past.map((entry, index) =>
    record(clientEncryptionKeyStream('Specified'), entry, index, clientEncryptionKeyEventVersions),
  );
  return {
    when: (command) => outcomeOf(command, decideClientEncryptionKey(foldClientEncryptionKey(recorded), command)),
  };
}

export function givenScript(
  ...past: readonly (ScriptEvent | PastEvent<ScriptEvent>)[]
): Given<ScriptCommand, ScriptEvent> {
  const recorded = past.map((entry, index) => record(scriptStream('Specified'), entry, index, scriptEventVersions));
  return { when: (command) => outcomeOf(command, decideScript(foldScript(recorded), command)) };
}

/** One value of a unique key in one partition key. */
export function givenUniqueKey(
  ...past: readonly (UniqueKeyEvent | PastEvent<UniqueKeyEvent>)[]
): Given<UniqueKeyCommand, UniqueKeyEvent> {
  const recorded = past.map((entry, index) =>
    record(uniqueKeyStream('Specified', 'hash'), entry, index, uniqueKeyEventVersions),
  );
  return { when: (command) => outcomeOf(command, decideUniqueKey(foldUniqueKey(recorded), command)) };
}

interface AnyEvent {
  readonly type: string;
  readonly data: object;
}

/** The decision of any of the deciders. */
type AnyDecision<Event> =
  | { readonly kind: 'accepted'; readonly events: readonly Event[] }
  | { readonly kind: 'refused'; readonly refusal: { readonly reason: string } }
  | { readonly kind: 'end-first'; readonly event: Event }
  | { readonly kind: 'next-life' };

function outcomeOf<Event>(command: { readonly type: string }, decision: AnyDecision<Event>): Outcome<Event> {
  const expect = (expected: AnyDecision<Event>) => {
    const difference = differenceOf(expected, decision, 'decision');
    if (difference === undefined) return;
    throw new SpecificationFailure(
      `${command.type}: ${difference}\n  expected ${JSON.stringify(expected)}\n  decided  ${JSON.stringify(decision)}`,
    );
  };
  return {
    then: (...events) => expect({ kind: 'accepted', events }),
    thenRefused: (reason, details = {}) => expect({ kind: 'refused', refusal: { reason, ...details } }),
    thenEndsFirst: (event) => expect({ kind: 'end-first', event }),
    thenGoesToNextLife: () => expect({ kind: 'next-life' }),
  };
}

function record(
  stream: string,
  entry: AnyEvent | PastEvent<AnyEvent>,
  index: number,
  versions: Readonly<Record<string, number>>,
): RecordedEvent {
  const { event, atMs, actor = 'key:specified' } = 'event' in entry ? entry : { event: entry, atMs: 0 };
  return {
    id: idOfGiven(index),
    type: event.type,
    version: versions[event.type] ?? 1,
    data: { ...event.data },
    occurredAtMs: atMs,
    actor,
    correlationId: idOfGiven(index),
    causationId: idOfGiven(index),
    stream,
    revision: index,
    position: index + 1,
  };
}

function idOfGiven(index: number): string {
  return `00000000-0000-4000-8000-${String(index).padStart(12, '0')}`;
}

/** Where two plain values first differ, in words. Undefined if they are equal. A property that is undefined counts as absent. */
function differenceOf(expected: unknown, actual: unknown, path: string): string | undefined {
  if (Object.is(expected, actual)) return undefined;
  if (typeof expected !== 'object' || typeof actual !== 'object' || expected === null || actual === null) {
    return `${path} is ${JSON.stringify(actual)}, not ${JSON.stringify(expected)}`;
  }
  if (Array.isArray(expected) !== Array.isArray(actual)) return `${path} is a list in one of the two only`;
  if (Array.isArray(expected) && Array.isArray(actual) && expected.length !== actual.length) {
    return `${path} has ${actual.length} entries, not ${expected.length}`;
  }
  for (const name of new Set([...Object.keys(expected), ...Object.keys(actual)])) {
    const difference = differenceOf(
      (expected as Record<string, unknown>)[name],
      (actual as Record<string, unknown>)[name],
      `${path}.${name}`,
    );
    if (difference !== undefined) return difference;
  }
  return undefined;
}
