import { type Decision, etagDiffers } from '../decision.ts';
import { unreachable } from '../invariant.ts';
import { decideInitialThroughput, decideThroughput, type ThroughputRefusal } from '../throughput/provisioning.ts';
import type { DatabaseCommand } from './commands.ts';
import type { DatabaseEvent } from './events.ts';
import type { DatabaseState } from './state.ts';

export type DatabaseRefusal =
  | { readonly reason: 'not-found' }
  | { readonly reason: 'already-exists' }
  | { readonly reason: 'precondition-failed' }
  /** Only a database that was created with a throughput has one that can be changed. */
  | { readonly reason: 'no-throughput' }
  /** The rid is taken by another name: the caller tries the next candidate. */
  | { readonly reason: 'rid-taken' }
  | ThroughputRefusal;

export type DatabaseDecision = Decision<DatabaseEvent, DatabaseRefusal>;

/** Decides a command on one database. */
export function decideDatabase(state: DatabaseState | undefined, command: DatabaseCommand): DatabaseDecision {
  const refuse = (
    reason: Exclude<DatabaseRefusal['reason'], ThroughputRefusal['reason']> | 'precondition-failed',
  ): DatabaseDecision => ({ kind: 'refused', refusal: { reason } });
  switch (command.type) {
    case 'CreateDatabase': {
      if (state !== undefined) {
        return refuse(state.status === 'live' && state.name === command.name ? 'already-exists' : 'rid-taken');
      }
      const provisioned = decideInitialThroughput(command.throughput);
      if (provisioned.kind === 'refused') return provisioned;
      return {
        kind: 'accepted',
        events: [{ type: 'DatabaseCreated', data: { name: command.name } }, ...provisioned.events],
      };
    }
    case 'ChangeThroughput':
      if (state === undefined || state.status === 'deleted') return refuse('not-found');
      if (state.throughput.kind === 'none') return refuse('no-throughput');
      return decideThroughput(state, command);
    case 'DeleteDatabase':
      if (state === undefined || state.status === 'deleted') return refuse('not-found');
      if (etagDiffers(state.etag, command.ifMatch)) return refuse('precondition-failed');
      return { kind: 'accepted', events: [{ type: 'DatabaseDeleted', data: {} }] };
    default:
      return unreachable(command);
  }
}
