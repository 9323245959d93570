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
 * A container's state according to the read models, once these have reached a position of the log. Undefined if they
 * have nothing of it.
 */
export type KnownContainer = (rid: string, position: number) => Promise<ContainerState | undefined>;

/**
 * Decides a command on a container on its whole stream, and records the decision.
 *
 * @param known called if the stream is damaged, or the log has lost events of it. Holds and erasures must be possible
 *   then, too, and the read models have what was intact when they read it
 * @param isLate called last, before anything is recorded
 * @throws {DecidedTooLate} if `isLate` says so, or a TTL change or a delete reaches the log too late; nothing is
 *   recorded then
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

/**
 * Whether items end at the time of the decision, or some time after it. No other node's write may come between that
 * time and the record.
 */
const countsFromItsTime = ({ events }: Extract<ContainerDecision, { readonly kind: 'accepted' }>): boolean =>
  events.some(({ type }) => COUNT_FROM_THEIR_TIME.has(type));
