import type { CommandContext } from '../command-context.ts';
import { handleCommand, newEvents, type HandledWhole } from '../handle-command.ts';
import { DecidedTooLate } from '../log/decided-too-late.ts';
import type { EventLog } from '../log/event-log.ts';
import type { ContainerCommand } from './commands.ts';
import { decideContainer, type ContainerDecision } from './decide.ts';
import type { ContainerEvent } from './events.ts';
import { evolveContainer } from './evolve.ts';
import { recordedByMs } from './recorded-by.ts';
import type { ContainerState } from './state.ts';
import { containerStream } from './stream-name.ts';
import { containerEventVersions } from './upcast.ts';

/**
 * What the read models have of a container, by its rid, once they have come to a position of the log; undefined for one of which
 * they have nothing.
 */
export type KnownContainer = (rid: string, position: number) => Promise<ContainerState | undefined>;

/**
 * Decides a command on a container by its whole stream, and records what was decided.
 *
 * @param known asked where that is damaged, or the log has lost some of it: what is to be kept, or erased, can be asked for
 *   there as well, and the read models have what was whole when they read it
 * @param isLate asked last, before anything is recorded
 * @throws {DecidedTooLate} where it is, or a TTL change or a delete comes to the log that late; nothing is recorded then
 */
export function handleContainer(
  log: EventLog,
  context: CommandContext,
  rid: string,
  command: ContainerCommand,
  known: KnownContainer,
  isLate: () => boolean = () => false,
): Promise<HandledWhole<ContainerState | undefined, ContainerDecision>> {
  return handleCommand<ContainerState | undefined, ContainerDecision>(log, {
    stream: containerStream(rid),
    load: 'all',
    initial: undefined,
    evolve: evolveContainer,
    otherwise: (position) => known(rid, position),
    decide: (state) => decideContainer(state, command),
    record: (decision) => {
      if (decision.kind !== 'accepted') return undefined;
      if (isLate()) throw new DecidedTooLate();
      return {
        events: newEvents(context, decision.events, containerEventVersions),
        notAfterMs: countsFromItsTime(decision) ? recordedByMs(command.nowMs, command.policyDelayMs) : undefined,
      };
    },
  });
}

const COUNT_FROM_THEIR_TIME = new Set<ContainerEvent['type']>([
  'ContainerTtlChanged',
  'ContainerTtlWithdrawn',
  'PartitionKeyDeleted',
  'ContainerDeleted',
]);

/** Whether items end at the time of what was decided, or a while after it: what others write must not come between that and its record. */
const countsFromItsTime = ({ events }: Extract<ContainerDecision, { readonly kind: 'accepted' }>): boolean =>
  events.some(({ type }) => COUNT_FROM_THEIR_TIME.has(type));
