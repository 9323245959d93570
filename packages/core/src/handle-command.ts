import type { CommandContext } from './command-context.ts';
import { GenerationCache } from './generation-cache.ts';
import { assertEndNotLost, eventsLost } from './item/read-life.ts';
import type { AppendOptions, AppendResult, EventLog, ExpectedRevision } from './log/event-log.ts';
import type { NewEvent, RecordedEvent } from './log/recorded-event.ts';
import type { MaybePromise } from './maybe-promise.ts';
import { turn } from './turn.ts';
import { UnreadableEvent, WHEN_DAMAGED } from './upcast.ts';

/** How often a command that lost a race is decided again before it is given up. */
export const MAX_ATTEMPTS = 20;

/** A command lost too many races in a row. The caller may try again. */
export class TooMuchContention extends Error {
  override readonly name = 'TooMuchContention';
}

/**
 * The error with which a command is given up. Either other writers were faster each time, or the log reported the same
 * conflict again and again, because the event at the stream's end is not one of this store's.
 */
export function givenUp(what: string, conflicts: readonly Conflict[]): Error {
  const [last, before] = conflicts.slice(-2).toReversed();
  if (last === undefined || before === undefined || !isSame(last, before)) {
    return new TooMuchContention(`${MAX_ATTEMPTS} attempts ${what} lost against other writers`);
  }
  return new UnreadableEvent(
    `${last.stream} ends at revision ${last.actualRevision} with an event that this store has not written or can't read, so nothing is appended to it. ${WHEN_DAMAGED}`,
  );
}

export type Conflict = Extract<AppendResult, { readonly kind: 'conflict' }>;

const isSame = (one: Conflict, other: Conflict): boolean =>
  one.stream === other.stream &&
  one.expectedRevision === other.expectedRevision &&
  one.actualRevision === other.actualRevision;

/** One command on one stream: how to load the state, how to decide, and what to append. */
export type CommandRun<State, Decision> = CommandSteps<State, Decision> & (ByLastEvent<State> | ByWholeStream<State>);

/** A command for which the stream's last event is enough. */
interface ByLastEvent<State> {
  readonly load: 'last';
  /** The state after the last event. Gets an empty list for a stream that was never written. */
  readonly fold: (loaded: readonly RecordedEvent[]) => State;
  /**
   * The last event as it was read a moment ago, or 'none' if the stream is likely to be new. The first decision is made
   * on it without reading the stream. If the stream has changed since, or nothing is to be appended, the command is
   * decided again on what is then read.
   */
  readonly known?: RecordedEvent | 'none' | undefined;
}

/**
 * A command that needs the whole stream. The folded state is cached with this function, so `evolve` must not change a
 * state in place.
 */
interface ByWholeStream<State> {
  readonly load: 'all';
  /** The state of a stream that was never written. */
  readonly initial: State;
  readonly evolve: (state: State, event: RecordedEvent) => State;
  /**
   * The stream's state up to a position from another source, such as the read models. Used if the stream can't be
   * folded, or the log has lost its end. Returns undefined if that source knows nothing of it.
   */
  readonly otherwise?: ((position: number) => Promise<State | undefined>) | undefined;
}

interface CommandSteps<State, Decision> {
  readonly stream: string;
  /** See {@link CommandContext.background}. */
  readonly background?: true | undefined;
  /** May read things (open a body to patch it) but must not write anything. */
  readonly decide: (state: State) => MaybePromise<Decision>;
  /** The events to append for a decision, ready to be recorded. Undefined or empty for none. */
  readonly record: (decision: Decision, nextRevision: number) => MaybePromise<Recording | undefined>;
}

export interface Recording {
  readonly events: readonly NewEvent[];
  readonly after?: AppendOptions['after'];
  readonly notAfterMs?: AppendOptions['notAfterMs'];
}

export interface Handled<Decision> {
  readonly decision: Decision;
  /** Position of the last event appended. Undefined if nothing was appended. */
  readonly position?: number;
  readonly recorded: readonly NewEvent[];
  /** Revision of the first of these events. */
  readonly firstRevision: number;
  readonly firstPosition?: number;
}

export interface HandledWhole<State, Decision> extends Handled<Decision> {
  /** The state of the stream after the appended events, even if others have appended more since. */
  readonly state: State;
}

/**
 * The loop that every command goes through: load, fold, decide, append. On a conflict it loads and decides again, a
 * bounded number of times.
 *
 * @throws {TooMuchContention} when the bound is reached; {UnreadableEvent} if instead every attempt failed on the same
 *   event at the stream's end; see {@link givenUp}. Whatever the log throws passes through, and then the outcome is
 *   unknown.
 */
export function handleCommand<State, Decision>(
  log: EventLog,
  run: CommandSteps<State, Decision> & ByWholeStream<State>,
): Promise<HandledWhole<State, Decision>>;
export function handleCommand<State, Decision>(
  log: EventLog,
  run: CommandRun<State, Decision>,
): Promise<Handled<Decision>>;
export async function handleCommand<State, Decision>(
  log: EventLog,
  run: CommandRun<State, Decision>,
): Promise<Handled<Decision> & { readonly state: State }> {
  const conflicts: Conflict[] = [];
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    const end = conflicts.at(-1)?.actualRevision;
    const known = run.load === 'last' && attempt === 0 ? run.known : undefined;
    const folding = run.load === 'all' ? foldWhole(log, run, end) : foldLast(log, run, known);
    // Most commands have nothing to wait for before the append, so awaits are skipped where there is no promise.
    const { state, revision } = folding instanceof Promise ? await folding : folding;
    const nextRevision = (revision ?? -1) + 1;
    const deciding = run.decide(state);
    const decision = deciding instanceof Promise ? await deciding : deciding;
    const preparing = run.record(decision, nextRevision);
    const recording = preparing instanceof Promise ? await preparing : preparing;
    if (recording === undefined || recording.events.length === 0) {
      // `known` may be outdated. An append would have failed on that; without one, the decision is made again on what is read.
      if (known !== undefined) continue;
      return { decision, state, recorded: [], firstRevision: nextRevision };
    }
    const expectedRevision: ExpectedRevision = revision ?? 'no-stream';
    const result = await log.append([{ stream: run.stream, expectedRevision, events: recording.events }], {
      after: recording.after,
      background: run.background,
      notAfterMs: recording.notAfterMs,
    });
    if (result.kind === 'appended') {
      const { position, firstPositions } = result;
      const at = { position, firstPosition: firstPositions[0]!, firstRevision: nextRevision };
      const after = run.load === 'all' ? evolved(run, state, recording.events, at) : state;
      return { decision, state: after, recorded: recording.events, ...at };
    }
    conflicts.push(result);
  }
  throw givenUp(`on ${run.stream}`, conflicts);
}

/** The state of a stream up to a revision, which is undefined for a stream that was never written. */
interface Folded<State> {
  readonly state: State;
  readonly revision: number | undefined;
}

/** The state after events that were just appended to a stream. */
export function evolved<State>(
  { stream, evolve }: { readonly stream: string; readonly evolve: (state: State, event: RecordedEvent) => State },
  before: State,
  events: readonly NewEvent[],
  at: { readonly firstRevision: number; readonly firstPosition: number; readonly position: number },
): State {
  return events.reduce((state, event, index) => {
    const position = index === events.length - 1 ? at.position : at.firstPosition + index;
    return evolve(state, { ...event, stream, revision: at.firstRevision + index, position });
  }, before);
}

function foldLast<State>(
  log: EventLog,
  { stream, fold }: Pick<CommandRun<State, unknown>, 'stream'> & ByLastEvent<State>,
  known: RecordedEvent | 'none' | undefined,
): MaybePromise<Folded<State>> {
  const folded = (last: RecordedEvent | undefined): Folded<State> => ({
    state: fold(last === undefined ? [] : [last]),
    revision: last?.revision,
  });
  if (known !== undefined) return folded(known === 'none' ? undefined : known);
  const last = log.readLast(stream);
  return last instanceof Promise ? last.then(folded) : folded(last);
}

/** How many streams of a log have their state cached, at most. */
const REMEMBERED = 200;
/**
 * How many events are folded before other work gets its turn: folding a container with thousands of holds takes some
 * milliseconds.
 */
const FOLDED_AT_ONCE = 200;

/**
 * The cached states. A container's stream grows for years, and what was read of a stream never changes, so only the
 * events after the cached state are read.
 */
const remembered = new WeakMap<EventLog, GenerationCache<string, Folded<unknown> & { readonly by: unknown }>>();

/**
 * @param end the stream's end as the log reported it in a conflict, if it did: if the log has lost the end, nothing
 *   else tells it
 */
async function foldWhole<State>(
  log: EventLog,
  run: Pick<CommandRun<State, unknown>, 'stream'> & ByWholeStream<State>,
  end: ExpectedRevision | undefined,
): Promise<Folded<State>> {
  const { stream, otherwise } = run;
  try {
    const folded = await foldStream(log, run);
    if (folded.revision === undefined && otherwise !== undefined) await assertEndNotLost(log, stream);
    return folded;
  } catch (error) {
    if (!(error instanceof UnreadableEvent) || otherwise === undefined) throw error;
    const last = await log.readLast(stream);
    const state = await otherwise(last?.position ?? 0);
    if (state === undefined) throw error;
    return { state, revision: last?.revision ?? (end === 'no-stream' ? undefined : end) };
  }
}

async function foldStream<State>(
  log: EventLog,
  { stream, initial, evolve, otherwise }: Pick<CommandRun<State, unknown>, 'stream'> & ByWholeStream<State>,
): Promise<Folded<State>> {
  let streams = remembered.get(log);
  if (streams === undefined) remembered.set(log, (streams = new GenerationCache(REMEMBERED)));
  const known = streams.get(stream);
  let folded: Folded<State> = known?.by === evolve ? (known as Folded<State>) : { state: initial, revision: undefined };
  const events = await log.readStream(stream, { fromRevision: (folded.revision ?? -1) + 1 });
  for (const [index, event] of events.entries()) {
    if (index > 0 && index % FOLDED_AT_ONCE === 0) await turn();
    // The events before this one are lost, and nobody ever decided on a state without them.
    if (otherwise !== undefined && event.revision !== (folded.revision ?? -1) + 1) throw eventsLost(event);
    folded = { state: evolve(folded.state, event), revision: event.revision };
  }
  if (events.length > 0) streams.set(stream, { ...folded, by: evolve });
  return folded;
}

/**
 * Appends one event to a stream, chosen by the stream's last event. If somebody else appends in the meantime, the event
 * is chosen again by the new last event. Events that another program has appended count for nothing: this one is
 * appended after them.
 *
 * @param next the event that follows the last one; undefined when there is nothing to add
 * @returns the event's position; undefined when nothing was appended
 * @throws whatever the log throws, and then the outcome is unknown
 */
export async function appendNext(
  log: EventLog,
  stream: string,
  next: (last: RecordedEvent | undefined) => NewEvent | undefined | Promise<NewEvent | undefined>,
): Promise<number | undefined> {
  let end: ExpectedRevision = 'no-stream';
  for (;;) {
    const last = await log.readLast(stream);
    const event = await next(last);
    if (event === undefined) return undefined;
    const isBehind = end !== 'no-stream' && (last === undefined || last.revision < end);
    const expectedRevision = isBehind ? end : (last?.revision ?? 'no-stream');
    const result = await log.append([{ stream, expectedRevision, events: [event] }]);
    if (result.kind === 'appended') return result.position;
    // If the last event read next is still before this revision, the stream ends with another program's events.
    end = result.actualRevision;
  }
}

/**
 * The events that a command has decided, ready to be recorded.
 *
 * @param versions the version in which each type of event is written now
 */
export function newEvents<Type extends string>(
  context: CommandContext,
  events: readonly { readonly type: Type; readonly data: object }[],
  versions: Readonly<Record<Type, number>>,
): NewEvent[] {
  return events.map((event) => newEvent(context, event, versions[event.type]));
}

/** An event with the time, actor and request of its command. */
export function newEvent(
  context: CommandContext,
  event: { readonly type: string; readonly data: object },
  version: number,
): NewEvent {
  return {
    id: context.newId(),
    type: event.type,
    version,
    data: event.data as Readonly<Record<string, unknown>>,
    occurredAtMs: context.nowMs,
    actor: context.actor,
    correlationId: context.correlationId,
    causationId: context.correlationId,
  };
}
