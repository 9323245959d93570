import type { CommandContext } from '@epitaph/core/command-context.ts';
import type { Decision } from '@epitaph/core/decision.ts';
import { handleCommand, newEvents } from '@epitaph/core/handle-command.ts';
import type { KeyedMutex } from '@epitaph/core/keyed-mutex.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { StoreParts } from '../parts.ts';

interface Recordable {
  readonly type: string;
  readonly data: object;
}

/** A command on an entry of the catalog. */
interface EntryCommand<State, Event extends Recordable, Refusal> {
  readonly stream: string;
  readonly evolve: (state: State | undefined, event: RecordedEvent) => State;
  readonly decide: (state: State | undefined) => Decision<Event, Refusal>;
  /** The version that is written now, for each type of event. */
  readonly versions: Readonly<Record<Event['type'], number>>;
  /** The entry in the read models. If the log has lost a part of it, the entry can still be deleted. */
  readonly known?: () => State | undefined;
  /** Runs one command at a time: if two ran at once, one would lose the append and have to decide again. */
  readonly order?: KeyedMutex;
}

/** Decides a command on an entry of the catalog. Resolves once the catalog shows what was recorded. */
export async function onEntry<State, Event extends Recordable, Refusal>(
  parts: StoreParts,
  context: CommandContext,
  { stream, evolve, decide, versions, known, order }: EntryCommand<State, Event, Refusal>,
): Promise<{
  readonly decision: Decision<Event, Refusal>;
  /** The entry after the command; unchanged if that was refused. */
  readonly state: State | undefined;
  readonly position: number;
}> {
  const handle = () =>
    handleCommand<State | undefined, Decision<Event, Refusal>>(parts.ports.log, {
      stream,
      load: 'all',
      initial: undefined,
      evolve,
      otherwise:
        known &&
        (async (position) => {
          await parts.projected(position);
          return known();
        }),
      decide,
      record: (decided) =>
        decided.kind === 'accepted'
          ? { events: newEvents<Event['type']>(context, decided.events, versions) }
          : undefined,
    });
  const { decision, state, position } = await (order === undefined ? handle() : order.run(stream, handle));
  return { decision, state, position: await parts.shown(position) };
}
