import type { z } from 'zod';
import { invariant, InvariantViolation } from './invariant.ts';
import type { RecordedEvent } from './log/recorded-event.ts';

type Data = Readonly<Record<string, unknown>>;

type EventSchemas = Readonly<Record<string, z.ZodType>>;

/** The closed union of the events of some schemas, by type. */
export type EventOf<Schemas extends EventSchemas> = {
  [Type in keyof Schemas & string]: { readonly type: Type; readonly data: z.infer<Schemas[Type]> };
}[keyof Schemas & string];

/**
 * The version in which each type of event is written at present.
 *
 * @param later the versions that are not 1
 */
export function versionsOf<Schemas extends EventSchemas>(
  schemas: Schemas,
  later: { readonly [Type in keyof Schemas]?: number } = {},
): Readonly<Record<keyof Schemas & string, number>> {
  const first = Object.fromEntries(Object.keys(schemas).map((type) => [type, 1]));
  return { ...(first as Record<keyof Schemas & string, number>), ...later };
}

/** For each event type, step n (from 1) turns data of version n into data of version n + 1. */
export type Upcasters = Readonly<Record<string, readonly ((data: Data) => Data)[]>>;

/**
 * An event that this version of the store can't read: of an unknown type, of a newer version, or damaged. The message
 * says what to do.
 */
export class UnreadableEvent extends Error {
  override readonly name = 'UnreadableEvent';
}

/**
 * An event that a newer version of the store has written. Nothing is lost, so the store must not continue as it may
 * after a loss.
 */
class NewerEvent extends UnreadableEvent {}

export const WHEN_DAMAGED = 'Restore the event log from a backup.';

/** @throws the error, unless it says that the log is damaged */
export function unlessDamaged(error: unknown): undefined {
  if (error instanceof UnreadableEvent || error instanceof InvariantViolation) return undefined;
  throw error;
}

/** Makes reading the data of a damaged event throw, so that only callers that need the data get the error. */
export function withUnreadableData(event: RecordedEvent, cause: unknown): void {
  const get = (): never => {
    const what = `${event.type} at ${event.position} is damaged: ${(cause as Error).message}`;
    throw new UnreadableEvent(`${what}. ${WHEN_DAMAGED}`, { cause });
  };
  Object.defineProperty(event, 'data', { get, enumerable: false });
}

/** @throws the error, unless it says that an event is damaged or lost. An event of a newer version is neither. */
export function assertLost(error: unknown): asserts error is UnreadableEvent {
  if (!(error instanceof UnreadableEvent) || error instanceof NewerEvent) throw error;
}

/** Why the log can't return the data of an event. Undefined if it can. */
export function whyUnreadable(event: RecordedEvent): string | undefined {
  try {
    const { data: _ } = event;
    return undefined;
  } catch (error) {
    if (error instanceof UnreadableEvent) return error.message;
    throw error;
  }
}

/**
 * Converts a recorded event to the current version and checks it against its schema. The log is never rewritten: old
 * events stay as they were recorded and are always read through this function.
 *
 * @throws {UnreadableEvent} for an event that can't be read; going on without it would falsify history
 */
export function parseEvent<Schemas extends EventSchemas>(
  event: RecordedEvent,
  schemas: Schemas,
  versions: Readonly<Record<string, number>>,
  upcasters: Upcasters = {},
): EventOf<Schemas> {
  // Read first, because this throws if the event is damaged in the log, and then its type may be wrong, too.
  const { data: recorded } = event;
  // Own names only: `toString` is no event type.
  const schema = Object.hasOwn(schemas, event.type) ? schemas[event.type] : undefined;
  const current = versions[event.type];
  if (schema === undefined || current === undefined) {
    throw new NewerEvent(
      `${event.stream} has an event of unknown type ${event.type} at ${event.position}, written by a newer Epitaph. Start that version, or a later one.`,
    );
  }
  if (event.version > current) {
    throw new NewerEvent(
      `${event.type} at ${event.position} has version ${event.version}, written by a newer Epitaph; this one reads up to ${current}. Start that version, or a later one.`,
    );
  }
  if (event.version < 1) {
    throw new UnreadableEvent(
      `${event.type} at ${event.position} is damaged: there is no version ${event.version}. ${WHEN_DAMAGED}`,
    );
  }
  let data = recorded;
  for (let version = event.version; version < current; version++) {
    const step = upcasters[event.type]?.[version - 1];
    invariant(step !== undefined, `no upcaster for ${event.type} from version ${version}`);
    data = step(data);
  }
  const parsed = schema.safeParse(data);
  if (!parsed.success) {
    const issues = parsed.error.issues.map(({ path, message }) => [...path, message].join(': '));
    throw new UnreadableEvent(`${event.type} at ${event.position} is damaged: ${issues.join('; ')}. ${WHEN_DAMAGED}`);
  }
  return { type: event.type, data: parsed.data } as EventOf<Schemas>;
}
