import type { CommandContext } from '../command-context.ts';
import { handleCommand, newEvent, type Handled } from '../handle-command.ts';
import type { EventLog } from '../log/event-log.ts';
import type { ContainerCommand } from './commands.ts';
import { decideContainer, type ContainerDecision } from './decide.ts';
import { evolveContainer } from './evolve.ts';
import type { ContainerState } from './state.ts';
import { containerStream } from './stream-name.ts';
import { containerEventVersions } from './upcast.ts';

/** Decides a command on a container by its whole stream, and records what was decided. */
export function handleContainer(
  log: EventLog,
  context: CommandContext,
  rid: string,
  command: ContainerCommand,
): Promise<Handled<ContainerDecision>> {
  return handleCommand<ContainerState | undefined, ContainerDecision>(log, {
    stream: containerStream(rid),
    load: 'all',
    initial: undefined,
    evolve: evolveContainer,
    decide: (state) => decideContainer(state, command),
    record: (decision) =>
      decision.kind === 'accepted'
        ? { events: decision.events.map((event) => newEvent(context, event, containerEventVersions[event.type])) }
        : undefined,
  });
}
