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

/** A client's command on an item. It is decided on whichever life is the current one. */
export interface ItemRequest {
  /** The stream name that all lives of the item share, without the number of the life. */
  readonly prefix: string;
  /**
   * Called if life 0 has ended: the life to look at next. Any number gives the right result, a good one gives it fast.
   * The read model's row has a good one.
   */
  readonly lifeHint: () => MaybePromise<number>;
  /** The item probably does not exist yet. Its first life is begun without reading the log; if there is one, the append fails. */
  readonly isLikelyNew?: boolean | undefined;
  /** Id of the event that causes the command; the request by default. Only used for several commands at once. */
  readonly causationId?: string | undefined;
  /**
   * The command continues, under another id, the item that the command before it deletes. Only used for several
   * commands at once.
   */
  readonly isRename?: boolean | undefined;
  /**
   * Returns the command and, for a write, the plain body. It gets the state that the command will be decided on,
   * because a patch needs the current document.
   */
  readonly command: (state: ItemState, at: LifeAt) => ItemIntent | Promise<ItemIntent>;
}

/** Where a state was read: enough to open its body. */
export interface LifeAt {
  readonly stream: string;
  readonly life: number;
  /** The last event on record. Undefined if there is none, or if the state already goes beyond it. */
  readonly last: RecordedEvent | undefined;
  /** The plain body of the state's last write, if that was decided just now and is not recorded yet. */
  readonly body?: string | undefined;
}

export type ItemIntent =
  | {
      readonly kind: 'command';
      readonly command: ItemCommand;
      readonly body?: string;
      /** The last instant at which the decided events may reach the log; see {@link AppendOptions.notAfterMs}. */
      readonly notAfterMs?: AppendOptions['notAfterMs'];
    }
  /** The request needs no command: it only reads, for example. */
  | { readonly kind: 'answer' }
  /** The request was prepared for a time that is over. Nothing may be recorded, and the caller prepares it again. */
  | { readonly kind: 'again' };

export type ItemOutcome = ItemDecision | { readonly kind: 'answered' } | { readonly kind: 'again' };

export interface ItemHandled extends Handled<ItemOutcome> {
  readonly life: number;
  readonly stream: string;
}

/**
 * Applies a client's command to the current life of an item. If that life is overdue, or left with its partition key,
 * its end is recorded first. If the life has ended, the command goes on to the next life.
 *
 * @returns `position` is that of a recorded end, if the command itself recorded nothing
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
 * Decides a command on one given life and records the decision.
 *
 * @param known see {@link CommandRun.known}
 * @throws {DecidedTooLate} when the decision reached the log after its time; nothing is recorded then
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
 * The event of a decided write as it is recorded: with the key's id, and with its body sealed for its place in the log.
 *
 * @param to.newKey the key of a life that begins with this write, or with an earlier write that is not recorded yet
 * @throws {LifeUnreadable} when the key of an existing life is not in the vault
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

/** The message by the status that the vault or the log gave. */
const lacking = {
  unknown: 'the vault does not know its key. Restore the vault from a backup',
  destroyed: 'its key is destroyed, but nothing records why',
  truncated: 'the event log lacks its last write. Restore the event log from a backup',
} as const;

/** The key of a live item is destroyed or was never in this vault. This is damage, which must be reported, not worked around. */
export class LifeUnreadable extends Error {
  override readonly name = 'LifeUnreadable';
  readonly stream: string;
  readonly status: string;

  constructor(stream: string, status: string) {
    const what = Object.hasOwn(lacking, status) ? lacking[status as keyof typeof lacking] : status;
    super(`${stream}, a life that has not been erased, can't be read: ${what}.`);
    this.stream = stream;
    this.status = status;
  }
}

export function foldItem(events: readonly RecordedEvent[]): ItemState {
  let state = initialItemState;
  for (const event of events) state = evolveItem(state, readItemEvent(event), event.id);
  return state;
}

/** An item's event with the time, actor and request of its command. */
export function recorded(context: CommandContext, event: ItemEvent): NewEvent {
  return newEvent(context, event, itemEventVersions[event.type]);
}

/**
 * The number of the life after one that has ended: the highest life written since, or the next free number. Takes one
 * or two reads if the hint is good.
 */
export async function lifeAfter(log: EventLog, prefix: string, ended: number, hint: number): Promise<number> {
  // A hint beyond the last life written must not leave a gap in the numbers.
  const known = hint > ended && (await isWritten(log, prefix, hint)) ? hint : ended;
  return Math.max(await lastLife(log, prefix, known), ended + 1);
}
