import type { CommandContext } from '../command-context.ts';
import { handleCommand, newEvent, type Handled, type Recording } from '../handle-command.ts';
import type { AppendOptions, EventLog } from '../log/event-log.ts';
import type { NewEvent, RecordedEvent } from '../log/recorded-event.ts';
import type { MaybePromise } from '../maybe-promise.ts';
import type { BodySealer } from '../vault/body-sealer.ts';
import type { KeyLookup, KeyVault, LifeKey, NewLifeKey } from '../vault/key-vault.ts';
import type { ItemCommand } from './commands.ts';
import { decideItem, NEW_KEY, type ItemDecision } from './decide.ts';
import { evolveItem } from './evolve.ts';
import { isItemWrite, type ItemEvent, type ItemWritten } from './events.ts';
import { isWritten, lastLife } from './read-life.ts';
import { initialItemState, type ItemState } from './state.ts';
import { itemStream } from './stream-name.ts';
import { itemEventVersions, readItemEvent } from './upcast.ts';

export interface ItemPorts {
  readonly log: EventLog;
  readonly vault: KeyVault;
  readonly sealer: BodySealer;
}

/** What a client wants with an item, decided on whichever life is the current one. */
export interface ItemRequest {
  /** All lives of the item: the stream name without the number of the life. */
  readonly prefix: string;
  /**
   * Asked when life 0 has ended: which life to look at next. Any number gives the right result, a good one gives it
   * fast; the read model's row has one.
   */
  readonly lifeHint: () => MaybePromise<number>;
  /**
   * There is likely no such item yet: its first life is begun without a look at the log, which refuses that if there is
   * one.
   */
  readonly isLikelyNew?: boolean | undefined;
  /** Id of the event that the command comes of; its request by default. For several commands at once alone. */
  readonly causationId?: string | undefined;
  /**
   * The command and, for a write, the plain body; made from the state it will be decided on, because a patch
   * needs the current document. Undefined sealed content means the life holds none yet.
   */
  readonly command: (state: ItemState, at: LifeAt) => ItemIntent | Promise<ItemIntent>;
}

/** Where a state was read: enough to open its body. */
export interface LifeAt {
  readonly stream: string;
  readonly life: number;
  /** The last event on record; undefined when there is none, or when the state already goes beyond it. */
  readonly last: RecordedEvent | undefined;
  /** The plain body of the state's last write where that was decided just now and is not recorded yet. */
  readonly body?: string | undefined;
}

export type ItemIntent =
  | {
      readonly kind: 'command';
      readonly command: ItemCommand;
      readonly body?: string;
      /** The last instant at which what is decided may come to the log; see {@link AppendOptions.notAfterMs}. */
      readonly notAfterMs?: AppendOptions['notAfterMs'];
    }
  /** The request has found its own answer, a read for example. */
  | { readonly kind: 'answer' }
  /** The request was made for a time that is over: nothing of it may be recorded, and the caller makes it anew. */
  | { readonly kind: 'again' };

export type ItemOutcome = ItemDecision | { readonly kind: 'answered' } | { readonly kind: 'again' };

export interface ItemHandled extends Handled<ItemOutcome> {
  readonly life: number;
  readonly stream: string;
}

/**
 * Carries a client's command to the current life of an item. If that life is overdue, or left with its partition key,
 * its end is recorded first. If it has ended, the command goes on to the next life.
 *
 * @returns the position is that of a recorded end, if the command itself recorded nothing
 */
export async function handleItem(
  ports: ItemPorts,
  context: CommandContext,
  request: ItemRequest,
): Promise<ItemHandled> {
  let life = 0;
  let endedAt: number | undefined;
  for (;;) {
    const known = life === 0 && request.isLikelyNew === true ? 'none' : undefined;
    const handled = await handleLife(ports, context, itemStream(request.prefix, life), life, request.command, known);
    if (handled.decision.kind === 'end-first') {
      endedAt = handled.position;
      life += 1;
    } else if (handled.decision.kind === 'next-life') {
      const hint = life === 0 ? await request.lifeHint() : 0;
      life = await lifeAfter(ports.log, request.prefix, life, hint);
    } else {
      const position = handled.position ?? endedAt;
      return position === undefined ? handled : { ...handled, position };
    }
  }
}

/**
 * Decides a command on one given life and records what was decided.
 *
 * @param known see {@link CommandRun.known}
 * @throws {DecidedTooLate} when what was decided came to the log after its time; nothing is recorded then
 */
export async function handleLife(
  ports: ItemPorts,
  context: CommandContext,
  stream: string,
  life: number,
  intent: ItemRequest['command'],
  known?: RecordedEvent | 'none',
): Promise<ItemHandled> {
  let body: string | undefined;
  let newKey: NewLifeKey | undefined;
  let last: RecordedEvent | undefined;
  let notAfterMs: number | undefined;
  const handled = await handleCommand<ItemState, ItemOutcome>(ports.log, {
    stream,
    background: context.background,
    load: 'last',
    known,
    fold: (loaded) => {
      last = loaded[0];
      return foldItem(loaded);
    },
    decide: (state) => {
      const decided = (wanted: ItemIntent): ItemOutcome => {
        if (wanted.kind !== 'command') return { kind: wanted.kind === 'answer' ? 'answered' : 'again' };
        ({ body, notAfterMs } = wanted);
        return decideItem(state, wanted.command);
      };
      const wanted = intent(state, { stream, life, last });
      return wanted instanceof Promise ? wanted.then(decided) : decided(wanted);
    },
    record: (decision, nextRevision) => {
      if (decision.kind === 'end-first') return { events: [recorded(context, decision.event)] };
      if (decision.kind !== 'accepted') return undefined;
      const event = decision.events[0]!;
      if (!isItemWrite(event)) return { events: [recorded(context, event)], notAfterMs };
      const recording = (sealed: NewEvent): Recording => ({
        events: [sealed],
        after: newKey && [newKey.stored],
        notAfterMs,
      });
      const sealedBy = (key: NewLifeKey | undefined): MaybePromise<Recording> => {
        const to = { stream, revision: nextRevision, body, newKey: key };
        const sealing = sealedWrite(ports, recorded(context, event), event.data, to);
        return sealing instanceof Promise ? sealing.then(recording) : recording(sealing);
      };
      if (event.data.key !== NEW_KEY) return sealedBy(undefined);
      const creating = newKey ?? ports.vault.createKey(stream);
      return creating instanceof Promise
        ? creating.then((created) => sealedBy((newKey = created)))
        : sealedBy((newKey = creating));
    },
  });
  return { ...handled, life, stream };
}

/**
 * A decided write as it is recorded: with the key's id, and its body sealed for its place in the log.
 *
 * @param to.newKey the key of a life that begins with this write or, not yet recorded, just before it
 * @throws {LifeUnreadable} when the key of a life that goes on is not in the vault
 */
export function sealedWrite(
  ports: ItemPorts,
  event: NewEvent,
  data: ItemWritten,
  to: {
    readonly stream: string;
    readonly revision: number;
    readonly body: string | undefined;
    readonly newKey: NewLifeKey | undefined;
  },
): MaybePromise<NewEvent> {
  const sealedBy = (key: LifeKey): NewEvent => ({
    ...event,
    data: { ...data, key: key.keyId },
    body: ports.sealer.seal(key, to.stream, to.revision, to.body ?? ''),
  });
  if (to.newKey !== undefined) return sealedBy(to.newKey.key);
  const sealedIfThere = (found: KeyLookup): NewEvent => {
    if (found.status !== 'there') throw new LifeUnreadable(to.stream, found.status);
    return sealedBy(found.key);
  };
  const found = ports.vault.findKey(data.key, to.stream);
  return found instanceof Promise ? found.then(sealedIfThere) : sealedIfThere(found);
}

/** By what the vault, or the log, says of it. */
const lacking = {
  unknown: 'the vault does not know its key. Restore the vault from a backup',
  destroyed: 'its key is destroyed, and nothing says why',
  truncated: 'the event log lacks its last write. Restore the event log from a backup',
} as const;

/** A live item's key is gone or was never in this vault: damage that must be seen, not worked around. */
export class LifeUnreadable extends Error {
  override readonly name = 'LifeUnreadable';
  readonly stream: string;
  readonly status: string;

  constructor(stream: string, status: string) {
    const what = Object.hasOwn(lacking, status) ? lacking[status as keyof typeof lacking] : status;
    super(`${stream}, a life that is there, can't be read: ${what}.`);
    this.stream = stream;
    this.status = status;
  }
}

export function foldItem(events: readonly RecordedEvent[]): ItemState {
  let state = initialItemState;
  for (const event of events) state = evolveItem(state, readItemEvent(event), event.id);
  return state;
}

/** An item's event with what its command says of time, actor and request. */
export function recorded(context: CommandContext, event: ItemEvent): NewEvent {
  return newEvent(context, event, itemEventVersions[event.type]);
}

/**
 * Where to go on after a life that has ended: the highest life written since, or the next free number. In one or two
 * looks with a good hint.
 */
export async function lifeAfter(log: EventLog, prefix: string, ended: number, hint: number): Promise<number> {
  // A hint beyond what was ever written must not leave a gap in the numbers.
  const known = hint > ended && (await isWritten(log, prefix, hint)) ? hint : ended;
  return Math.max(await lastLife(log, prefix, known), ended + 1);
}
