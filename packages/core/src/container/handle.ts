import type { CommandContext } from '../command-context.ts';
import { handleCommand, newEvent, type Handled } from '../handle-command.ts';
import type { EventLog } from '../log/event-log.ts';
import type { ContainerCommand } from './commands.ts';
import { decideContainer, type ContainerDecision } from './decide.ts';
import { evolveContainer } from './evolve.ts';
import type { ContainerState } from './state.ts';
import { containerStream } from './stream-name.ts';
import { containerEventVersions } from './upcast.ts';

/** So much time has passed since a command was given its own that nothing may be recorded by it. */
export class DecidedTooLate extends Error {
  override readonly name = 'DecidedTooLate';
}

/**
 * Decides a command on a container by its whole stream, and records what was decided.
 *
 * @param isLate asked last, before anything is recorded
 * @throws {DecidedTooLate} where it is; nothing is recorded then
 */
export function handleContainer(
  log: EventLog,
  context: CommandContext,
  rid: string,
  command: ContainerCommand,
  isLate: () => boolean = () => false,
): Promise<Handled<ContainerDecision>> {
  return handleCommand<ContainerState | undefined, ContainerDecision>(log, {
    stream: containerStream(rid),
    load: 'all',
    initial: undefined,
    evolve: evolveContainer,
    decide: (state) => decideContainer(state, command),
    record: (decision) => {
      if (decision.kind !== 'accepted') return undefined;
      if (isLate()) throw new DecidedTooLate();
      return { events: decision.events.map((event) => newEvent(context, event, containerEventVersions[event.type])) };
    },
  });
}
