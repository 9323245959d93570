import type { CommandContext } from '../command-context.ts';
import { type Conflict, givenUp, MAX_ATTEMPTS, newEvent } from '../handle-command.ts';
import { invariant } from '../invariant.ts';
import type { ExpectedRevision, StreamAppend } from '../log/event-log.ts';
import type { NewEvent, RecordedEvent } from '../log/recorded-event.ts';
import type { MaybePromise } from '../maybe-promise.ts';
import { Pace } from '../turn.ts';
import type { NewLifeKey } from '../vault/key-vault.ts';
import { decideUniqueKey } from '../unique-key/decide.ts';
import { evolveUniqueKey, foldUniqueKey } from '../unique-key/evolve.ts';
import type { UniqueKeyState } from '../unique-key/state.ts';
import { uniqueKeyEventVersions } from '../unique-key/upcast.ts';
import type { OnLife } from './commands.ts';
import { decideItem, NEW_KEY, unrecordedEnd, type ItemRefusal } from './decide.ts';
import { evolveItem } from './evolve.ts';
import { isItemWrite, type ItemEvent, type ItemWritten } from './events.ts';
import { foldItem, lifeAfter, recorded, sealedWrite, type ItemPorts, type ItemRequest } from './handle.ts';
import { initialItemState, type ItemState } from './state.ts';
import { itemStream, parseItemStream } from './stream-name.ts';

/** Several commands, on one item or on several, that are recorded together or not at all. */
export interface ItemsRequest {
  /** In order: a step sees what the steps before it have decided. */
  readonly steps: readonly ItemRequest[];
  /** Only decides: finds out what would be refused, and records nothing. */
  readonly dryRun?: boolean;
  /** Called before an expiry is recorded. */
  readonly onExpiry?: () => void;
  /**
   * The facts that decide whether the life that holds a unique key's value has ended. Required if writes have such
   * values.
   *
   * @param last the holder's last event on record; undefined if the steps have already changed the holder's state
   */
  readonly holderFacts?: (partitionKey: string, last: RecordedEvent | undefined) => MaybePromise<OnLife>;
}

/** The result of one step. */
export interface StepHandled {
  readonly life: number;
  readonly stream: string;
  /** The event that the step recorded. Absent for a step that only reads. */
  readonly event?: NewEvent;
  /** Revision of that event. */
  readonly revision?: number;
  /** Position of that event. The log reports it only for the first event of each life in the append. */
  readonly position?: number;
  /** Position of the life's first event, if the life began in this append. */
  readonly birth?: number;
}

export type ItemsHandled =
  /** `position` is that of the last event. Undefined if there was nothing to record. */
  | { readonly kind: 'done'; readonly steps: readonly StepHandled[]; readonly position?: number }
  /** The first step that can't be done. No step is recorded. */
  | { readonly kind: 'refused'; readonly step: number; readonly refusal: ItemRefusal; readonly endedAt?: number }
  /** A step was prepared for a time that is over, or it is not known any more whether it is over. Nothing is recorded. */
  | { readonly kind: 'again' }
  /** The steps write to several streams, and this log can't append to several at once. No step is recorded. */
  | { readonly kind: 'spans-streams'; readonly endedAt?: number };

/**
 * As `handleItem`, but for several commands: load, decide one after the other, append once. On a conflict all of it is
 * done again, a bounded number of times.
 *
 * A step may meet a life that has ended without a record of its end, for example because it is overdue. Then that end
 * is recorded in the same append or, if the log can't append to several streams, in an append of its own before: it is
 * true whatever becomes of the steps. A refusal reports the position of the last end that was recorded in this way.
 *
 * @throws {TooMuchContention} when the bound is reached; see {@link givenUp}. Whatever a step, the vault or the log
 *   throws passes through, `DecidedTooLate` for example
 */
export async function handleItems(
  ports: ItemPorts,
  context: CommandContext,
  request: ItemsRequest,
): Promise<ItemsHandled> {
  const newKeys = new Map<string, NewLifeKey>();
  let ended: { readonly endedAt?: number } = {};
  const onEnd = (endedAt: number) => {
    ended = { endedAt };
  };
  const conflicts: Conflict[] = [];
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    const drafts = new Drafts(ports, context, newKeys, { ...request, onEnd });
    const decided = await decideAll(drafts, request.steps);
    if (decided.kind === 'conflict') {
      conflicts.push(decided);
      continue;
    }
    if (decided.kind === 'refused') return { ...decided, ...ended };
    if (decided.kind !== 'done' || request.dryRun === true) return decided;
    const appends = await drafts.appends();
    if (appends.length === 0) return decided;
    if (appends.length > 1 && !ports.log.spansStreams) return { kind: 'spans-streams', ...ended };
    const result = await ports.log.append(appends, {
      after: drafts.keysStored(),
      background: context.background,
      notAfterMs: drafts.notAfterMs,
    });
    // Taking a unique key's value may have ended its overdue holder. A request that lost a race for it must not go on
    // with its earlier time.
    if (result.kind === 'conflict' && request.holderFacts !== undefined) return { kind: 'again' };
    if (result.kind === 'conflict') {
      conflicts.push(result);
      continue;
    }
    const places = new Map(
      appends.map(({ stream, expectedRevision }, index) => [
        stream,
        {
          firstRevision: expectedRevision === 'no-stream' ? 0 : expectedRevision + 1,
          position: result.firstPositions[index]!,
        },
      ]),
    );
    return {
      kind: 'done',
      position: result.position,
      steps: decided.steps.map((step) => {
        const place = places.get(step.stream);
        if (place === undefined) return step;
        const { firstRevision, position } = place;
        return {
          ...step,
          ...(step.revision === firstRevision ? { position } : {}),
          ...(firstRevision === 0 ? { birth: position } : {}),
        };
      }),
    };
  }
  throw givenUp(`on ${request.steps.length} items`, conflicts);
}

async function decideAll(
  drafts: Drafts,
  steps: readonly ItemRequest[],
): Promise<Exclude<ItemsHandled, { kind: 'spans-streams' }> | Conflict> {
  const done: StepHandled[] = [];
  // A script may have thousands of steps.
  const pace = new Pace();
  for (const [index, step] of steps.entries()) {
    const pause = pace.step();
    if (pause !== undefined) await pause;
    let draft = await drafts.current(step);
    for (;;) {
      const { stream, life, state, body } = draft;
      const last = draft.events.length === 0 ? draft.last : undefined;
      const wanted = await step.command(state, { stream, life, last, body });
      if (wanted.kind === 'again') return { kind: 'again' };
      if (wanted.kind === 'answer') {
        if (!hasEnded(state)) {
          done.push({ life, stream });
          break;
        }
        draft = await drafts.next(draft, step);
        continue;
      }
      const decision = decideItem(state, wanted.command);
      if (decision.kind === 'refused') return { kind: 'refused', step: index, refusal: decision.refusal };
      if (decision.kind === 'accepted') {
        const renamed = step.isRename === true ? done.at(-1) : undefined;
        const accepted = renamed === undefined ? decision.events[0]! : renamedFrom(decision.events[0]!, renamed.stream);
        if (isItemWrite(accepted) && !(await drafts.takeUniqueKeys(draft, accepted.data))) {
          return { kind: 'refused', step: index, refusal: { reason: 'unique-key-taken' } };
        }
        const revision = nextRevision(draft);
        const event = drafts.add(draft, accepted, wanted.body, step.causationId);
        if (renamed !== undefined) drafts.renamedTo(renamed.stream, stream);
        drafts.notAfterMs = earlier(drafts.notAfterMs, wanted.notAfterMs);
        done.push({ life, stream, event, revision });
        break;
      }
      if (decision.kind === 'end-first') {
        const conflict = await drafts.end(draft, decision.event);
        if (conflict !== undefined) return conflict;
      }
      draft = await drafts.next(draft, step);
    }
  }
  return { kind: 'done', steps: done };
}

const earlier = (one: number | undefined, other: number | undefined): number | undefined =>
  one === undefined || other === undefined ? (one ?? other) : Math.min(one, other);

/** The data and plain body that a write's event is made of when it is sealed. */
interface DraftWrite {
  readonly data: ItemWritten;
  readonly body: string | undefined;
}

/** One life after the steps so far: what was loaded, and what is to be appended. */
interface Draft {
  readonly prefix: string;
  readonly life: number;
  readonly stream: string;
  /** The last event on record. */
  readonly last: RecordedEvent | undefined;
  readonly expectedRevision: ExpectedRevision;
  readonly events: { readonly event: NewEvent; readonly write: DraftWrite | undefined }[];
  state: ItemState;
  /** The plain body of the last event in the draft. */
  body: string | undefined;
}

/** One value of a unique key after the steps so far. */
interface UniqueKeyDraft {
  readonly expectedRevision: ExpectedRevision;
  state: UniqueKeyState;
  event: NewEvent | undefined;
}

interface DraftsRequest extends Pick<ItemsRequest, 'onExpiry' | 'holderFacts'> {
  /** Called with the position of an end that was recorded in an append of its own. */
  readonly onEnd: (position: number) => void;
}

/** What one attempt has loaded and decided. */
class Drafts {
  readonly #ports: ItemPorts;
  readonly #context: CommandContext;
  readonly #newKeys: Map<string, NewLifeKey>;
  readonly #request: DraftsRequest;
  readonly #current = new Map<string, Draft>();
  /** Lives with something to append, in the order in which they were first changed. */
  readonly #changed: Draft[] = [];
  readonly #uniqueKeys = new Map<string, UniqueKeyDraft>();
  /** The last instant at which the log may take the whole append. */
  notAfterMs: number | undefined;

  constructor(ports: ItemPorts, context: CommandContext, newKeys: Map<string, NewLifeKey>, request: DraftsRequest) {
    this.#ports = ports;
    this.#context = context;
    this.#newKeys = newKeys;
    this.#request = request;
  }

  /** The newest life of an item that this attempt has seen. */
  async current({ prefix }: ItemRequest): Promise<Draft> {
    return this.#current.get(prefix) ?? this.#load(prefix, 0);
  }

  /** The next life after one that has ended, in the log or in this draft. */
  async next(ended: Draft, { prefix, lifeHint }: ItemRequest): Promise<Draft> {
    // A life that ends in this attempt has no successor yet: the append expects that there is none.
    if (ended.events.length > 0 || (ended.last !== undefined && !hasEnded(foldItem([ended.last])))) {
      return this.#keep(this.#blank(prefix, ended.life + 1));
    }
    const hint = ended.life === 0 ? await lifeHint() : 0;
    return this.#load(prefix, await lifeAfter(this.#ports.log, prefix, ended.life, hint));
  }

  /** Adds an event to those to be appended to a life. */
  add(draft: Draft, event: ItemEvent, body?: string, causationId?: string): NewEvent {
    const own = recorded(this.#context, event);
    const added = causationId === undefined ? own : { ...own, causationId };
    draft.state = evolveItem(draft.state, event, added.id);
    draft.body = body;
    if (draft.events.length === 0) this.#changed.push(draft);
    draft.events.push({ event: added, write: isItemWrite(event) ? { data: event.data, body } : undefined });
    return added;
  }

  /** Adds to the delete that was decided last on a life which life continues the item under another id. */
  renamedTo(deleted: string, stream: string): void {
    const { events } = this.#changed.find((draft) => draft.stream === deleted)!;
    const { event, write } = events.pop()!;
    events.push({ event: { ...event, data: { ...event.data, renamedTo: stream } }, write });
  }

  /** Records an end that has come already. @returns the conflict if the life has changed in the meantime */
  async end(draft: Draft, event: ItemEvent): Promise<Conflict | undefined> {
    if (event.type === 'ItemExpired') this.#request.onExpiry?.();
    if (this.#ports.log.spansStreams) {
      this.add(draft, event);
      return undefined;
    }
    invariant(draft.events.length === 0, 'what was written just now is not overdue');
    const { stream, expectedRevision } = draft;
    const events = [recorded(this.#context, event)];
    const result = await this.#ports.log.append([{ stream, expectedRevision, events }]);
    if (result.kind === 'conflict') return result;
    this.#request.onEnd(result.position);
    return undefined;
  }

  /**
   * Takes the values of unique keys that a life did not have before this write.
   *
   * @returns false if an item that clients can see has one of them
   */
  async takeUniqueKeys(draft: Draft, { uniqueKeys = [] }: ItemWritten): Promise<boolean> {
    for (const stream of uniqueKeys) {
      if (has(draft, stream)) continue;
      const value = await this.#uniqueKey(stream);
      const isKept = value.state.holder !== undefined && (await this.#isKept(stream, value.state.holder));
      const decision = decideUniqueKey(value.state, { type: 'TakeUniqueKey', by: draft.stream, isKept });
      if (decision.kind === 'refused') return false;
      // An append has one event for each value, so only the last holder is recorded.
      const [event] = decision.events;
      value.state = evolveUniqueKey(value.state, event!);
      value.event = newEvent(this.#context, event!, uniqueKeyEventVersions[event!.type]);
    }
    return true;
  }

  /** True if the life that took a value still has it: clients can see the life, and its last write names the value. */
  async #isKept(uniqueKey: string, holder: string): Promise<boolean> {
    const { prefix, life } = parseItemStream(holder)!;
    let draft = this.#current.get(prefix);
    // The item has a later life, so this one has ended.
    if (draft !== undefined && draft.life > life) return false;
    if (draft?.stream !== holder) draft = await this.#load(prefix, life);
    if (draft.state.status !== 'live' || !has(draft, uniqueKey)) return false;
    invariant(this.#request.holderFacts !== undefined, 'who writes unique keys can tell when their holders end');
    const last = draft.events.length === 0 ? draft.last : undefined;
    const facts = await this.#request.holderFacts(draft.state.lastWrite.partitionKey, last);
    const end = unrecordedEnd(draft.state, facts);
    if (end === undefined) return true;
    // The end is recorded together with the value's new holder, so that only one of two concurrent writers gets the value.
    if (end.type === 'ItemExpired') this.#request.onExpiry?.();
    this.add(draft, end);
    return false;
  }

  async #uniqueKey(stream: string): Promise<UniqueKeyDraft> {
    let draft = this.#uniqueKeys.get(stream);
    if (draft === undefined) {
      const last = await this.#ports.log.readLast(stream);
      const state = foldUniqueKey(last === undefined ? [] : [last]);
      draft = { expectedRevision: last?.revision ?? 'no-stream', state, event: undefined };
      this.#uniqueKeys.set(stream, draft);
    }
    return draft;
  }

  /** Seals everything that was decided. Keys for the lives that begin are made only now, when nothing can be refused any more. */
  async appends(): Promise<StreamAppend[]> {
    const appends: StreamAppend[] = [];
    const pace = new Pace();
    for (const { stream, expectedRevision, events } of this.#changed) {
      const pause = pace.step();
      if (pause !== undefined) await pause;
      const sealed: NewEvent[] = [];
      let revision = expectedRevision === 'no-stream' ? 0 : expectedRevision + 1;
      for (const { event, write } of events) {
        sealed.push(write === undefined ? event : await this.#seal(event, write, stream, revision));
        revision += 1;
      }
      appends.push({ stream, expectedRevision, events: sealed });
    }
    for (const [stream, { expectedRevision, event }] of this.#uniqueKeys) {
      if (event !== undefined) appends.push({ stream, expectedRevision, events: [event] });
    }
    return appends;
  }

  /** One promise for each life that begins here. Each resolves when the life's key is durable. */
  keysStored(): Promise<unknown>[] {
    return this.#changed.flatMap(({ stream }) => this.#newKeys.get(stream)?.stored ?? []);
  }

  async #seal(event: NewEvent, { data, body }: DraftWrite, stream: string, revision: number): Promise<NewEvent> {
    let newKey: NewLifeKey | undefined;
    if (data.key === NEW_KEY) {
      newKey = this.#newKeys.get(stream) ?? (await this.#ports.vault.createKey(stream));
      this.#newKeys.set(stream, newKey);
    }
    return sealedWrite(this.#ports, event, data, { stream, revision, body, newKey });
  }

  async #load(prefix: string, life: number): Promise<Draft> {
    const last = await this.#ports.log.readLast(itemStream(prefix, life));
    if (last === undefined) return this.#keep(this.#blank(prefix, life));
    return this.#keep({
      ...this.#blank(prefix, life),
      last,
      expectedRevision: last.revision,
      state: foldItem([last]),
    });
  }

  #blank(prefix: string, life: number): Draft {
    return {
      prefix,
      life,
      stream: itemStream(prefix, life),
      last: undefined,
      expectedRevision: 'no-stream',
      events: [],
      state: initialItemState,
      body: undefined,
    };
  }

  #keep(draft: Draft): Draft {
    this.#current.set(draft.prefix, draft);
    return draft;
  }
}

/** The event that creates an item under another id. */
function renamedFrom(event: ItemEvent, stream: string): ItemEvent {
  invariant(event.type === 'ItemUpserted', 'an item is created under its other id');
  return { ...event, data: { ...event.data, renamedFrom: stream } };
}

const has = ({ state }: Draft, uniqueKey: string): boolean =>
  state.status === 'live' && state.lastWrite.uniqueKeys?.includes(uniqueKey) === true;

const hasEnded = ({ status }: ItemState): boolean => status !== 'none' && status !== 'live';

const nextRevision = ({ expectedRevision, events }: Draft): number =>
  (expectedRevision === 'no-stream' ? 0 : expectedRevision + 1) + events.length;
