import type { z } from 'zod';
import { invariant, InvariantViolation } from './invariant.ts';
import type { RecordedEvent } from './log/recorded-event.ts';

type Data = Readonly<Record<string, unknown>>;

type EventSchemas = Readonly<Record<string, z.ZodType>>;

/** The closed union of the events that some schemas are of, by their types. */
export type EventOf<Schemas extends EventSchemas> = {
  [Type in keyof Schemas & string]: { readonly type: Type; readonly data: z.infer<Schemas[Type]> };
}[keyof Schemas & string];

/**
 * The version that each type of event is written in today.
 *
 * @param later those that are not the first one
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

/** An event that this version of the store can't read: of an unknown type, from the future, or damaged. Says what to do. */
export class UnreadableEvent extends Error {
  override readonly name = 'UnreadableEvent';
}

/** One that a newer version has written: nothing is lost, so nothing is gone on with as if it were. */
class NewerEvent extends UnreadableEvent {}

export const WHEN_DAMAGED = 'Restore the event log from a backup.';

/** @throws whatever does not say that the log is damaged */
export function unlessDamaged(error: unknown): undefined {
  if (error instanceof UnreadableEvent || error instanceof InvariantViolation) return undefined;
  throw error;
}

/** Has the data of an event that is damaged throw, so that only who asks for them is told. */
export function withUnreadableData(event: RecordedEvent, cause: unknown): void {
  const get = (): never => {
    const what = `${event.type} at ${event.position} is damaged: ${(cause as Error).message}`;
    throw new UnreadableEvent(`${what}. ${WHEN_DAMAGED}`, { cause });
  };
  Object.defineProperty(event, 'data', { get, enumerable: false });
}

/** @throws whatever is not of an event that is damaged or lost: of one that a newer version has written, too */
export function assertLost(error: unknown): asserts error is UnreadableEvent {
  if (!(error instanceof UnreadableEvent) || error instanceof NewerEvent) throw error;
}

/** Why the log can't give the data of an event; undefined where it can. */
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
 * Brings a recorded event to its current version and checks it against its schema. The log is never rewritten:
 * old events stay as they were recorded and are read through here for ever.
 *
 * @throws {UnreadableEvent} for what can't be read; going on without it would falsify history.
 */
export function parseEvent<Schemas extends EventSchemas>(
  event: RecordedEvent,
  schemas: Schemas,
  versions: Readonly<Record<string, number>>,
  upcasters: Upcasters = {},
): EventOf<Schemas> {
  // Of one that is damaged in the log its type may be lost, too.
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
