import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { BatchOperation, ItemToWrite } from '../store/api/items-api.ts';
import { badRequest, tooLarge } from './errors.ts';
import { decodeOperations, isHybridRow } from './hybrid-row.ts';
import { checkItemId, itemOf, readItemBody } from './item-body.ts';
import { asShown, isJsonObject, parseExactJson } from './json.ts';
import { otherKey, readPartitionKeyHeader, wholeKeyOf } from './partition-key.ts';
import { readPatch } from './patch.ts';
import type { Rename } from './rename.ts';
import { etagIn, type CosmosRequest } from './request.ts';

/** Source: Cosmos DB, "Transactional batch operations": at most 100 operations, 2 MB a request. */
const MAX_OPERATIONS = 100;
const MAX_BODY_BYTES = 2 * 1024 * 1024;

const operationTypes = ['Create', 'Upsert', 'Read', 'Delete', 'Replace', 'Patch'] as const;
type OperationType = (typeof operationTypes)[number];

/** The .NET client's numbers for the operation types. */
const numberedTypes: ReadonlyMap<unknown, OperationType> = new Map([
  [0, 'Create'],
  [1, 'Patch'],
  [2, 'Read'],
  [4, 'Delete'],
  [5, 'Replace'],
  [20, 'Upsert'],
]);

export interface SentOperation {
  readonly type: OperationType;
  readonly id: unknown;
  /** JSON text from a HybridRow, or a parsed value from a JSON body. */
  readonly body: { readonly text: Buffer } | { readonly value: unknown } | undefined;
  /** JSON text, as in the header. */
  readonly partitionKey: string | undefined;
  readonly ifMatch: string | undefined;
  readonly ifNoneMatch: string | undefined;
  readonly minimal: boolean;
}

/** An operation in the form that the store takes, or a rename, which takes two of them. */
export type Asked = BatchOperation | Rename;

/** @throws WireError for a body that is no batch, or too large a batch */
export function readOperations({ body, headers, limits }: CosmosRequest): readonly SentOperation[] {
  if (body === undefined || body.length === 0) throw badRequest('The batch request has no body.');
  if (body.length > MAX_BODY_BYTES) throw tooLarge();
  const minimal = headers['prefer'] === 'return=minimal';
  const operations = isHybridRow(body)
    ? decodeOperations(body).map((row) => operationOfRow(row, minimal))
    : // The documents may nest as deep as alone; the batch is two levels around them.
      operationsOfJson(parseExactJson(body, limits.jsonDepth + 2), minimal);
  if (operations.length === 0) throw badRequest('Batch request has no operations.');
  if (operations.length > MAX_OPERATIONS) {
    throw badRequest(`Batch request has more operations than what is supported. The maximum is ${MAX_OPERATIONS}.`);
  }
  return operations;
}

function operationsOfJson(body: unknown, minimal: boolean): readonly SentOperation[] {
  if (!Array.isArray(body)) throw badRequest('The body of a batch request must be an array of operations.');
  return body.map((value: unknown): SentOperation => {
    if (!isJsonObject(value)) throw badRequest('An operation of the batch is not an object.');
    const type = operationTypes.find((known) => known === value['operationType']);
    if (type === undefined) {
      throw badRequest(
        `The operation type '${asShown(value['operationType'])}' is not one of ${operationTypes.join(', ')}.`,
      );
    }
    return {
      type,
      id: value['id'],
      body: Object.hasOwn(value, 'resourceBody') ? { value: value['resourceBody'] } : undefined,
      partitionKey: textOf(value, 'partitionKey'),
      ifMatch: etagIn(textOf(value, 'ifMatch')),
      ifNoneMatch: etagIn(textOf(value, 'ifNoneMatch')),
      // The Java client sets this on each operation and not on the whole batch.
      minimal: minimal || value['minimalReturnPreference'] === true,
    };
  });
}

function textOf(operation: Readonly<Record<string, unknown>>, name: string): string | undefined {
  const value = operation[name] ?? undefined;
  if (value !== undefined && typeof value !== 'string') {
    throw badRequest(`The '${name}' of an operation of the batch is not a string.`);
  }
  return value;
}

function operationOfRow(row: ReturnType<typeof decodeOperations>[number], minimal: boolean): SentOperation {
  const type = numberedTypes.get(row.get('operationType'));
  if (type === undefined) throw badRequest('An operation of the batch has a type that is not supported.');
  for (const name of ['timeToLiveInSeconds', 'effectivePartitionKey', 'binaryId']) {
    if (row.has(name)) throw badRequest(`The '${name}' of an operation of a batch is not supported.`);
  }
  const text = (name: string): string | undefined => {
    const value = row.get(name);
    return value instanceof Buffer ? value.toString() : undefined;
  };
  const body = row.get('resourceBody');
  return {
    type,
    id: text('id'),
    body: body instanceof Buffer ? { text: body } : undefined,
    partitionKey: text('partitionKey'),
    ifMatch: etagIn(text('ifMatch')),
    ifNoneMatch: etagIn(text('ifNoneMatch')),
    minimal: minimal || row.get('minimalReturnPreference') === true,
  };
}

/** As with single requests, only reads and upserts have one. */
function ifNoneMatchOf({ type, ifMatch, ifNoneMatch }: SentOperation): string | undefined {
  if (type === 'Upsert') return ifNoneMatch;
  // A read with the current etag, in either header, is answered that nothing is new.
  return type === 'Read' ? (ifNoneMatch ?? ifMatch) : undefined;
}

/**
 * What an operation asks of the store.
 *
 * @param header the partition key header, for operations without a key of their own
 * @throws WireError or Refusal for an operation that can't be carried out
 */
export function toStore(
  { limits }: CosmosRequest,
  container: ContainerState,
  sent: SentOperation,
  header: string | undefined,
): Asked {
  const { definition } = container;
  const { type, ifMatch } = sent;
  const ifNoneMatch = ifNoneMatchOf(sent);
  const precondition = ifMatch === undefined && ifNoneMatch === undefined ? undefined : { ifMatch, ifNoneMatch };
  const given = readPartitionKeyHeader(definition, sent.partitionKey ?? header);
  if (type === 'Create' || type === 'Upsert' || type === 'Replace') {
    const item = documentOf(sent, container, limits);
    if (given !== undefined && given.key !== item.partitionKey) throw otherKey();
    if (type === 'Replace') {
      const id = checkItemId(sent.id);
      if (id !== item.id) return { kind: 'rename', id, item, precondition };
    }
    const operation = type.toLowerCase() as Lowercase<typeof type>;
    return { kind: 'write', operation, item, precondition };
  }
  const partitionKey = wholeKeyOf(given);
  const name = { id: checkItemId(sent.id), partitionKey, precondition };
  if (type === 'Read') return { kind: 'read', ...name };
  if (type === 'Delete') return { kind: 'delete', ...name };
  return { kind: 'patch', ...name, patch: readPatch(valueOf(sent, limits), container) };
}

function documentOf(
  { body }: SentOperation,
  { definition }: ContainerState,
  limits: CosmosRequest['limits'],
): ItemToWrite {
  if (body === undefined) throw badRequest('An operation of the batch has no resourceBody.');
  if ('text' in body) return readItemBody(definition, body.text, limits);
  if (!isJsonObject(body.value)) throw badRequest('The resourceBody of an operation is not a JSON object.');
  return itemOf(definition, body.value);
}

function valueOf({ body }: SentOperation, limits: CosmosRequest['limits']): unknown {
  if (body === undefined) return undefined;
  return 'text' in body ? parseExactJson(body.text, limits.jsonDepth) : body.value;
}
