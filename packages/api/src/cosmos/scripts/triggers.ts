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
import { headerText, unicodeHeaderText, type CosmosRequest } from '../request.ts';
import { inTransaction, type Recorded, type Transaction } from './transaction.ts';

const HEADERS = {
  pre: 'x-ms-documentdb-pre-trigger-include',
  post: 'x-ms-documentdb-post-trigger-include',
} as const;

/** The most triggers of each type that a request may name. Each of them is run separately. */
const MAX_TRIGGERS = 10;

type Operation = 'create' | 'upsert' | 'replace' | 'delete';

/** A request's operation on an item for which triggers are run. */
export type Triggered =
  | { readonly operation: 'create' | 'upsert'; readonly item: ItemToWrite; readonly ifMatch?: string | undefined }
  | {
      readonly operation: 'replace';
      /** The id of the item to replace. The new item may have another id. */
      readonly id: string;
      readonly item: ItemToWrite;
      readonly ifMatch?: string | undefined;
    }
  | ({ readonly operation: 'delete'; readonly ifMatch?: string | undefined } & ItemName);

/** The outcome of an operation with triggers. */
export interface Outcome {
  /** The item as it was written, or as it was before it was deleted. */
  readonly item: ShownItem;
  readonly created: boolean;
  /** The body that a trigger has set for the response; undefined if none has. */
  readonly body: string | undefined;
  readonly position: number;
  readonly charge: number;
}

export const namesTriggers = ({ headers }: Pick<CosmosRequest, 'headers'>): boolean =>
  Object.values(HEADERS).some((header) => (headerText(headers, header) ?? '') !== '');

/**
 * Refuses triggers for an operation that does not support them. A client that names triggers relies on them, so the
 * operation must not be carried out without them.
 *
 * @throws WireError 400 if the request names triggers
 */
export function refuseTriggers(request: Pick<CosmosRequest, 'headers'>, what: string): void {
  if (namesTriggers(request)) throw badRequest(`Triggers are not run for ${what}.`);
}

/**
 * Runs the pre-triggers that the request names, then the operation, then the post-triggers. All their writes are recorded
 * together, or none.
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
  /** The index of the request's own operation among those of the transaction; of its last one, if it consists of several. */
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
  // Triggers find the item to be replaced by the `_self` in the body. For a delete, the body is the whole item.
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

/**
 * The triggers that a request names, in the request's order.
 *
 * @throws WireError 400 for a trigger that does not exist, or that is of another type or for another operation
 */
function triggersOf(
  { store, headers }: CosmosRequest,
  container: ContainerState,
  type: 'pre' | 'post',
  operation: Operation,
): readonly ScriptState[] {
  const names = (unicodeHeaderText(headers, HEADERS[type]) ?? '')
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
  if (names.length > MAX_TRIGGERS)
    throw badRequest(`A request can name at most ${MAX_TRIGGERS} triggers of each type.`);
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

/** Whether a trigger is for an operation. An upsert creates or replaces, so triggers for these are run for it, too. */
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
