import type { CommandContext } from '@epitaph/core/command-context.ts';
import type { ContainerRefusal } from '@epitaph/core/container/decide.ts';
import { handleContainer } from '@epitaph/core/container/handle.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { RetentionCommand } from '@epitaph/core/retention/commands.ts';
import { MAX_STANDING_HOLDS } from '@epitaph/core/retention/decide.ts';
import type { StoreParts } from '../parts.ts';

/**
 * Records in a container's stream what is kept, or erased on request. The container may be deleted.
 *
 * @returns the position, once readers see it; undefined when there was nothing to record
 */
export async function recordRetention(
  parts: StoreParts,
  context: CommandContext,
  rid: string,
  command: RetentionCommand,
): Promise<number | undefined> {
  const { nowMs } = context;
  const { decision, position } = await parts.retentionOrder.run(`${rid} ${command.type}`, () =>
    handleContainer(parts.ports.log, context, rid, { ...command, nowMs }, parts.knownContainer),
  );
  if (decision.kind === 'refused') throw retentionRefusal(decision.refusal);
  if (position !== undefined) await parts.projected(position);
  return position;
}

export const tooManyHolds = (): Refusal =>
  new Refusal('bad-request', `The container has ${MAX_STANDING_HOLDS} holds in force, which is the maximum.`);

function retentionRefusal(refused: ContainerRefusal): Refusal {
  switch (refused.reason) {
    case 'hold-not-found':
      return new Refusal('hold-not-found');
    case 'hold-exists':
      return new Refusal('already-exists', 'A hold of that id was placed by somebody else meanwhile.');
    case 'too-many-holds':
      return tooManyHolds();
    default:
      return new Refusal('container-not-found');
  }
}
