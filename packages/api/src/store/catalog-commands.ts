import type { CommandContext } from '@epitaph/core/command-context.ts';
import type { ContainerCommand } from '@epitaph/core/container/commands.ts';
import { decideContainer, type ContainerDecision, type ContainerRefusal } from '@epitaph/core/container/decide.ts';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { foldContainer } from '@epitaph/core/container/evolve.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { containerEventVersions } from '@epitaph/core/container/upcast.ts';
import { decideDatabase, type DatabaseDecision } from '@epitaph/core/database/decide.ts';
import { foldDatabase } from '@epitaph/core/database/evolve.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { databaseStream } from '@epitaph/core/database/stream-name.ts';
import { databaseEventVersions } from '@epitaph/core/database/upcast.ts';
import { type ErrorCode, Refusal } from '@epitaph/core/errors.ts';
import { handleCommand, newEvent } from '@epitaph/core/handle-command.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import type { DefaultTtl } from '@epitaph/core/ttl/ttl-value.ts';
import type { StoreParts } from './parts.ts';
import { containerRid, databaseRid } from './rids.ts';
import type { Caller, Precondition, Written } from './store-api.ts';

/** Commands on databases and containers. */
export class CatalogCommands {
  readonly #parts: StoreParts;
  readonly #policyGraceSeconds: number;

  constructor(parts: StoreParts, policyGraceSeconds: number) {
    this.#parts = parts;
    this.#policyGraceSeconds = policyGraceSeconds;
  }

  async createDatabase(caller: Caller, name: string): Promise<Written<DatabaseState>> {
    for (let incarnation = 0; ; incarnation++) {
      const rid = databaseRid(name, incarnation);
      const { decision, position } = await this.#onDatabase(this.#parts.command(caller), rid, (state) =>
        decideDatabase(state, { type: 'CreateDatabase', name }),
      );
      if (decision.kind === 'accepted') {
        return { resource: this.#parts.catalog.databaseByRid(rid)!, position, created: true };
      }
      // A number used up by an earlier incarnation, or by another name with the same hash.
      if (decision.refusal.reason !== 'rid-taken') throw refusal(decision.refusal.reason, 'database-not-found');
    }
  }

  async deleteDatabase(caller: Caller, name: string, precondition: Precondition = {}): Promise<{ position: number }> {
    const database = this.database(name);
    return this.#parts.containerOrder.run(database.rid, async () => {
      const { decision, position } = await this.#onDatabase(this.#parts.command(caller), database.rid, (state) =>
        decideDatabase(state, { type: 'DeleteDatabase', ifMatch: precondition.ifMatch }),
      );
      if (decision.kind === 'refused') throw refusal(decision.refusal.reason, 'database-not-found');
      return { position };
    });
  }

  database(name: string): DatabaseState {
    const found = this.#parts.catalog.databaseByName(name);
    if (found === undefined) throw new Refusal('database-not-found');
    return found;
  }

  container(database: string, name: string): ContainerState {
    const found = this.#parts.catalog.containerByName(this.database(database).rid, name);
    if (found === undefined) throw new Refusal('container-not-found');
    return found.state;
  }

  async createContainer(
    caller: Caller,
    database: string,
    name: string,
    definition: ContainerDefinition,
    defaultTtl: DefaultTtl,
  ): Promise<Written<ContainerState>> {
    const databaseOf = this.database(database).rid;
    for (let incarnation = 0; ; incarnation++) {
      const rid = containerRid(databaseOf, name, incarnation);
      const context = this.#parts.command(caller);
      const { decision, position } = await this.#onContainer(context, rid, {
        type: 'CreateContainer',
        databaseRid: databaseOf,
        name,
        definition,
        defaultTtl,
        policyGraceSeconds: this.#policyGraceSeconds,
        nowMs: context.nowMs,
      });
      if (decision.kind === 'accepted') {
        return { resource: this.#parts.catalog.containerByRid(rid)!.state, position, created: true };
      }
      if (decision.refusal.reason !== 'rid-taken') throw containerRefusal(decision.refusal);
    }
  }

  replaceContainer(
    caller: Caller,
    database: string,
    name: string,
    definition: ContainerDefinition,
    defaultTtl: DefaultTtl,
    precondition: Precondition = {},
  ): Promise<Written<ContainerState>> {
    return this.#change(caller, database, name, {
      type: 'ReplaceContainer',
      definition,
      defaultTtl,
      ifMatch: precondition.ifMatch,
    });
  }

  async deleteContainer(
    caller: Caller,
    database: string,
    name: string,
    precondition: Precondition = {},
  ): Promise<{ position: number }> {
    const { position } = await this.#change(caller, database, name, {
      type: 'DeleteContainer',
      ifMatch: precondition.ifMatch,
    });
    return { position };
  }

  async setPolicyGrace(
    caller: Caller,
    database: string,
    name: string,
    seconds: number,
    reason?: string,
  ): Promise<ContainerState> {
    const { resource } = await this.#change(caller, database, name, { type: 'ChangePolicyGrace', seconds, reason });
    return resource;
  }

  /**
   * A command on a container that is there. Items and readers of the container wait while it is under way: nobody
   * reads by the old policy at an instant at which the new one is in force.
   */
  #change(
    caller: Caller,
    database: string,
    name: string,
    command: DistributiveOmit<ContainerCommand, 'nowMs'>,
  ): Promise<Written<ContainerState>> {
    const { rid } = this.container(database, name);
    return this.#parts.containerOrder.run(rid, async () => {
      const context = this.#parts.policyCommand(caller, this.#parts.catalog.containerByRid(rid)!.number);
      const { decision, position } = await this.#onContainer(context, rid, { ...command, nowMs: context.nowMs });
      if (decision.kind === 'refused') throw containerRefusal(decision.refusal);
      return { resource: this.#parts.catalog.containerByRid(rid)!.state, position, created: false };
    });
  }

  async #onDatabase(
    context: CommandContext,
    rid: string,
    decide: (state: DatabaseState | undefined) => DatabaseDecision,
  ): Promise<{ decision: DatabaseDecision; position: number }> {
    const handled = await handleCommand(this.#parts.ports.log, {
      stream: databaseStream(rid),
      load: 'all',
      fold: foldDatabase,
      decide,
      record: (decision: DatabaseDecision) =>
        decision.kind === 'accepted'
          ? { events: decision.events.map((event) => newEvent(context, event, databaseEventVersions[event.type])) }
          : undefined,
    });
    return { decision: handled.decision, position: await this.#afterwards(handled.position) };
  }

  async #onContainer(
    context: CommandContext,
    rid: string,
    command: ContainerCommand,
  ): Promise<{ decision: ContainerDecision; position: number }> {
    const handled = await handleCommand(this.#parts.ports.log, {
      stream: containerStream(rid),
      load: 'all',
      fold: foldContainer,
      decide: (state) => decideContainer(state, command),
      record: (decision: ContainerDecision) =>
        decision.kind === 'accepted'
          ? { events: decision.events.map((event) => newEvent(context, event, containerEventVersions[event.type])) }
          : undefined,
    });
    return { decision: handled.decision, position: await this.#afterwards(handled.position) };
  }

  async #afterwards(position: number | undefined): Promise<number> {
    if (position === undefined) return this.#parts.ports.log.head();
    await this.#parts.projected(position);
    return position;
  }
}

type DistributiveOmit<Union, Key extends PropertyKey> = Union extends unknown ? Omit<Union, Key> : never;

const refusalCodes = {
  'already-exists': 'already-exists',
  'precondition-failed': 'precondition-failed',
} as const satisfies Record<string, ErrorCode>;

function refusal(reason: 'not-found' | 'already-exists' | 'precondition-failed' | 'rid-taken', notFound: ErrorCode) {
  if (reason === 'not-found') return new Refusal(notFound);
  invariant(reason !== 'rid-taken', 'only a creation meets a rid that is taken');
  return new Refusal(refusalCodes[reason]);
}

function containerRefusal({ reason }: ContainerRefusal): Refusal {
  switch (reason) {
    case 'partition-key-fixed':
      return new Refusal('bad-request', "A container's partition key can't be changed.");
    case 'ttl-needs-indexing':
      return new Refusal(
        'bad-request',
        "A container with indexing mode 'none' can't have a defaultTtl: time to live needs the index. Leave out one of the two.",
      );
    default:
      return refusal(reason, 'container-not-found');
  }
}
