import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import type { ScriptState } from '@epitaph/core/script/state.ts';
import type { ItemToWrite, ShownItem } from '../../store/api/items-api.ts';
import { withSystemProperties } from '../../store/items/system-properties.ts';
import { quotaHeaders } from '../containers.ts';
import { badRequest } from '../errors.ts';
import { readItemBody } from '../item-body.ts';
import { headerText, type CosmosRequest } from '../request.ts';
import { inTransaction, type Recorded, type Transaction } from './transaction.ts';

const HEADERS = {
  pre: 'x-ms-documentdb-pre-trigger-include',
  post: 'x-ms-documentdb-post-trigger-include',
} as const;

/** Triggers that a request may name of each type: each is a run of its own. */
const MAX_TRIGGERS = 10;

type Operation = 'create' | 'upsert' | 'replace' | 'delete';

/** What a request asks to do with an item, with triggers. */
export type Triggered =
  | { readonly operation: 'create' | 'upsert'; readonly item: ItemToWrite; readonly ifMatch?: string | undefined }
  | {
      readonly operation: 'replace';
      /** Which is to be replaced; the item may have another. */
      readonly id: string;
      readonly item: ItemToWrite;
      readonly ifMatch?: string | undefined;
    }
  | ({ readonly operation: 'delete'; readonly ifMatch?: string | undefined } & ItemName);

/** What an operation with triggers came to. */
export interface Outcome {
  /** The item as it was written, or as it was before it was deleted. */
  readonly item: ShownItem;
  readonly created: boolean;
  /** What a trigger has put in place of the answer's body. */
  readonly body: string | undefined;
  readonly position: number;
  readonly charge: number;
}

/** Whether a request names triggers. */
export const namesTriggers = ({ headers }: Pick<CosmosRequest, 'headers'>): boolean =>
  Object.values(HEADERS).some((header) => (headerText(headers, header) ?? '') !== '');

/**
 * A request that names triggers counts on them: carried out without, it would be another than was asked for.
 *
 * @throws WireError 400 for one that none are run for
 */
export function refuseTriggers(request: Pick<CosmosRequest, 'headers'>, what: string): void {
  if (namesTriggers(request)) throw badRequest(`Triggers are not run for ${what}.`);
}

/**
 * Does what is asked for, and what the triggers do that the request names: those before, the operation, those after. All of
 * it is recorded together, or nothing.
 */
export async function withTriggers(
  request: CosmosRequest,
  container: ContainerState,
  asked: Triggered,
): Promise<Outcome> {
  const { operation } = asked;
  const pre = triggersOf(request, container, 'pre', operation);
  const post = triggersOf(request, container, 'post', operation);
  const { partitionKey } = asked.operation === 'delete' ? asked : asked.item;
  const recorded = await inTransaction(request, container, partitionKey, (transaction) =>
    run(request, container, transaction, asked, { pre, post }),
  );
  return outcomeOf(recorded);
}

interface Ran {
  /** Which of the transaction's operations the request's own is, the last of them where it is several. */
  readonly place: number;
  readonly seen: ShownItem;
  readonly body: string | undefined;
}

async function run(
  request: CosmosRequest,
  container: ContainerState,
  transaction: Transaction,
  asked: Triggered,
  { pre, post }: { readonly pre: readonly ScriptState[]; readonly post: readonly ScriptState[] },
): Promise<Ran> {
  const operationType = `${asked.operation[0]!.toUpperCase()}${asked.operation.slice(1)}`;
  const isOfExisting = asked.operation === 'replace' || asked.operation === 'delete';
  const before = isOfExisting ? await transaction.findExisting(asked.id) : undefined;
  let item = asked.operation === 'delete' ? undefined : asked.item;
  // Triggers go by its `_self` to find what is to be replaced, and by all of it for what is to be deleted.
  const requestNow = () => ({
    operationType,
    body: before === undefined ? item!.json : withSystemProperties(container, { ...before, ...item }),
  });
  for (const trigger of pre) {
    const { requestBody } = await transaction.run(trigger, { kind: 'pre-trigger', request: requestNow(), logs: false });
    if (item !== undefined && requestBody !== undefined) {
      item = readItemBody(container.definition, Buffer.from(requestBody), request.limits);
    }
  }
  const seen = await carryOut(transaction, asked, item);
  const place = transaction.place - 1;
  const shown = withSystemProperties(container, seen);
  let body: string | undefined;
  for (const trigger of post) {
    const values = quotaHeaders(request.store, container);
    const response = asked.operation === 'delete' ? { values } : { body: body ?? shown, values };
    const given = { kind: 'post-trigger', request: requestNow(), response, logs: false } as const;
    const ran = await transaction.run(trigger, given);
    if (ran.body !== undefined) ({ body } = ran);
  }
  return { place, seen, body };
}

function carryOut(transaction: Transaction, asked: Triggered, item: ItemToWrite | undefined): Promise<ShownItem> {
  switch (asked.operation) {
    case 'delete':
      return transaction.delete(asked.id, asked.ifMatch);
    case 'replace':
      return transaction.replace(asked.id, item!, asked.ifMatch);
    default:
      return transaction.write(asked.operation, item!, asked.ifMatch);
  }
}

function outcomeOf({ result, results, position, charge, asRecorded }: Recorded<Ran>): Outcome {
  const { place, seen, body } = result;
  const own = results[place];
  invariant(own !== undefined && own.kind !== 'read', 'the operation of the request is among what was recorded');
  return {
    item: own.kind === 'written' ? own.item : seen,
    created: own.kind === 'written' && own.created,
    body: body === undefined ? undefined : asRecorded(body),
    position,
    charge,
  };
}

/** The triggers that a request names, in its order. @throws WireError 400 for one that is not there, or is for something else */
function triggersOf(
  { store, headers }: CosmosRequest,
  container: ContainerState,
  type: 'pre' | 'post',
  operation: Operation,
): readonly ScriptState[] {
  const names = (headerText(headers, HEADERS[type]) ?? '')
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
  if (names.length > MAX_TRIGGERS) throw badRequest(`A request can name ${MAX_TRIGGERS} triggers of a type at most.`);
  return names.map((name) => {
    const found = find(store, container, name);
    if (found?.trigger?.type.toLowerCase() !== type) {
      throw badRequest(`There is no ${type}-trigger '${name.slice(0, 255)}' in the container.`);
    }
    if (!isFor(found.trigger.operation, operation)) {
      throw badRequest(`The trigger '${name}' is for ${found.trigger.operation}, not for this operation.`);
    }
    return found;
  });
}

function find(store: CosmosRequest['store'], container: ContainerState, name: string): ScriptState | undefined {
  try {
    return store.scriptToRun(container, 'trigger', name);
  } catch (error) {
    if (error instanceof Refusal && error.code === 'script-not-found') return undefined;
    throw error;
  }
}

/** Whether a trigger is for an operation. An upsert is what it finds: a create or a replace. */
function isFor(triggerOperation: string, operation: Operation): boolean {
  switch (triggerOperation.toLowerCase()) {
    case 'all':
      return true;
    case 'create':
      return operation === 'create' || operation === 'upsert';
    case 'replace':
    case 'update':
      return operation === 'replace' || operation === 'upsert';
    case 'upsert':
      return operation === 'upsert';
    default:
      return operation === triggerOperation.toLowerCase();
  }
}
