import { allDone } from '@epitaph/core/all-done.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { BatchOperation, BatchResult } from '../store/api/items-api.ts';
import { charge, chargeOfWrite } from './charge.ts';
import { containerHeaders, sessionHeaders } from './containers.ts';
import {
  badRequest,
  describeError,
  tooLarge,
  tooManyRequests,
  WireError,
  wireShapes,
  type WireShape,
} from './errors.ts';
import { decodeOperations, encodeResults, isHybridRow } from './hybrid-row.ts';
import { checkItemId, itemOf, readItemBody, type ItemBody } from './item-body.ts';
import { isJsonObject, parseExactJson } from './json.ts';
import { readPartitionKeyHeader, wholeKeyOf } from './partition-key.ts';
import { readPatch } from './patch.ts';
import { renameItem, stepsOf, type Rename } from './rename.ts';
import {
  atLeastOf,
  etagIn,
  headerFlag,
  ownerGone,
  partitionKeyHeader,
  type Answer,
  type CosmosRequest,
} from './request.ts';
import { answeringRangeId, scopeOf } from './scope.ts';
import { withSystemProperties } from './system-properties.ts';

/** Source: Cosmos DB, "Transactional batch operations": at most 100 operations, 2 MB a request. */
const MAX_OPERATIONS = 100;
const MAX_BODY_BYTES = 2 * 1024 * 1024;

const MISMATCH = "PartitionKey extracted from document doesn't match the one specified in the header";

const operationTypes = ['Create', 'Upsert', 'Read', 'Delete', 'Replace', 'Patch'] as const;
type OperationType = (typeof operationTypes)[number];

/** The .NET client's numbers of the operation types. */
const numberedTypes: ReadonlyMap<unknown, OperationType> = new Map([
  [0, 'Create'],
  [1, 'Patch'],
  [2, 'Read'],
  [4, 'Delete'],
  [5, 'Replace'],
  [20, 'Upsert'],
]);

/** One operation as it was sent. */
interface SentOperation {
  readonly type: OperationType;
  readonly id: unknown;
  /** JSON text from a HybridRow, a parsed value from a JSON body. */
  readonly body: { readonly text: Buffer } | { readonly value: unknown } | undefined;
  /** JSON text, as in the header. */
  readonly partitionKey: string | undefined;
  readonly ifMatch: string | undefined;
  readonly ifNoneMatch: string | undefined;
  readonly minimal: boolean;
}

/** What one operation came to, before it is written in the format of the request. */
interface OperationResult {
  readonly statusCode: number;
  readonly subStatusCode?: number | undefined;
  readonly requestCharge: number;
  readonly eTag?: string | undefined;
  /** JSON text. */
  readonly resourceBody?: string | undefined;
  readonly message?: string | undefined;
  readonly retryAfterMilliseconds?: number | undefined;
}

/** What an operation asks for. */
type Asked = BatchOperation | Rename;

const FAILED_DEPENDENCY: OperationResult = { statusCode: 424, requestCharge: 0 };

/** Characters of documents in an answer. Source: Cosmos DB, "Service quotas" (maximum response size, 4 MB). */
const MAX_ANSWER_CHARACTERS = 4 * 1024 * 1024;

/** Bytes of large documents that were patched, likewise: it is more, for a client that repeats a patch has it done late. */
const MAX_BULK_PATCHED_BYTES = 32 * 1024 * 1024;

const ANSWER_TOO_LARGE = 'Response size is too large.';

const charactersOf = ({ resourceBody }: OperationResult): number => resourceBody?.length ?? 0;

/** What was read and no longer fits into the answer: it is paid for, and clients read it once more. */
const answerTooLarge = (requestCharge: number): OperationResult => ({
  statusCode: wireShapes.answerTooLarge.status,
  subStatusCode: wireShapes.answerTooLarge.substatus,
  requestCharge,
  message: ANSWER_TOO_LARGE,
});

const failed = ({ statusCode }: OperationResult): boolean => statusCode >= 400;

/** `POST …/docs` with `x-ms-cosmos-is-batch-request`: a transactional batch, or a bulk of independent operations. */
export async function answerBatch(request: CosmosRequest, container: ContainerState): Promise<Answer> {
  const operations = readOperations(request);
  const rangeId = answeringRangeId(request, container, scopeOf(request, container));
  const isAtomic = headerFlag(request.headers, 'x-ms-cosmos-batch-atomic');
  const { results, position } = isAtomic
    ? await runBatch(request, container, operations)
    : await runBulk(request, container, operations);
  const body = isHybridRow(request.body!) ? encodeResults(results) : `[${results.map(resultText).join(',')}]`;
  return {
    status: results.every(({ statusCode }) => statusCode < 300) ? 200 : 207,
    body,
    charge: Math.round(results.reduce((sum, { requestCharge }) => sum + requestCharge, 0) * 100) / 100,
    // A batch that failed for want of an item names no path, like the operation alone.
    headers:
      isAtomic && results.some(({ statusCode }) => statusCode === 404)
        ? sessionHeaders(rangeId, position)
        : containerHeaders(request.segments[1]!, container, position, rangeId),
  };
}

function readOperations({ body, headers, limits }: CosmosRequest): readonly SentOperation[] {
  if (body === undefined || body.length === 0) throw badRequest('The batch request has no body.');
  if (body.length > MAX_BODY_BYTES) throw tooLarge();
  const minimal = headers['prefer'] === 'return=minimal';
  const operations = isHybridRow(body)
    ? decodeOperations(body).map((row) => operationOfRow(row, minimal))
    : // The documents may nest as deep as alone; the batch is two levels around them.
      operationsOfJson(parseExactJson(body, limits.jsonDepth + 2), minimal);
  if (operations.length === 0) throw badRequest('Batch request has no operations.');
  if (operations.length > MAX_OPERATIONS) {
    throw badRequest(`Batch request has more operations than what is supported. There may be ${MAX_OPERATIONS}.`);
  }
  return operations;
}

function operationsOfJson(body: unknown, minimal: boolean): readonly SentOperation[] {
  if (!Array.isArray(body)) throw badRequest('The body of a batch request is an array of operations.');
  return body.map((value: unknown): SentOperation => {
    if (!isJsonObject(value)) throw badRequest('An operation of the batch is not an object.');
    const type = operationTypes.find((known) => known === value['operationType']);
    if (type === undefined) {
      throw badRequest(
        `The operation type '${String(value['operationType']).slice(0, 100)}' is not one of ${operationTypes.join(', ')}.`,
      );
    }
    return {
      type,
      id: value['id'],
      body: Object.hasOwn(value, 'resourceBody') ? { value: value['resourceBody'] } : undefined,
      partitionKey: textOf(value, 'partitionKey'),
      ifMatch: etagIn(textOf(value, 'ifMatch')),
      ifNoneMatch: etagIn(textOf(value, 'ifNoneMatch')),
      // The Java client says it of each operation, and nothing of the whole.
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

/**
 * What an operation asks of the store.
 *
 * @param header the partition key header, for operations that say no key of their own
 * @throws WireError or Refusal for what can't be asked
 */
function toStore(
  { limits }: CosmosRequest,
  container: ContainerState,
  sent: SentOperation,
  header: string | undefined,
): Asked {
  const { definition } = container;
  const { type, ifMatch, ifNoneMatch } = sent;
  const precondition =
    ifMatch === undefined && ifNoneMatch === undefined
      ? undefined
      : // A read that names the etag it has is answered that nothing is new, whichever way it names it.
        { ifMatch, ifNoneMatch: ifNoneMatch ?? (type === 'Read' ? ifMatch : undefined) };
  const given = readPartitionKeyHeader(definition, sent.partitionKey ?? header);
  if (type === 'Create' || type === 'Upsert' || type === 'Replace') {
    const item = documentOf(sent, container, limits);
    if (given !== undefined && given.key !== item.partitionKey) throw new WireError('partitionKeyMismatch', MISMATCH);
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
): ItemBody {
  if (body === undefined) throw badRequest('An operation of the batch has no resourceBody.');
  if ('text' in body) return readItemBody(definition, body.text, limits);
  if (!isJsonObject(body.value)) throw badRequest('The resourceBody of an operation is not a JSON object.');
  return itemOf(definition, body.value);
}

function valueOf({ body }: SentOperation, limits: CosmosRequest['limits']): unknown {
  if (body === undefined) return undefined;
  return 'text' in body ? parseExactJson(body.text, limits.jsonDepth) : body.value;
}

interface Ran {
  readonly results: readonly OperationResult[];
  readonly position: number;
}

/** All of them, in order, or none. */
async function runBatch(
  request: CosmosRequest,
  container: ContainerState,
  sent: readonly SentOperation[],
): Promise<Ran> {
  const { store, caller, headers } = request;
  // Where a client says the range alone, each operation says the key that they share.
  const isOfRange = headers['x-ms-documentdb-partitionkeyrangeid'] !== undefined;
  const header = partitionKeyHeader(headers) ?? (isOfRange ? sent[0]!.partitionKey : undefined);
  const given = readPartitionKeyHeader(container.definition, header);
  if (given === undefined || !given.complete) {
    throw badRequest('A transactional batch needs the whole partition key that its operations share.');
  }
  const operations: Asked[] = [];
  let unreadable: { readonly error: unknown } | undefined;
  for (const operation of sent) {
    try {
      const asked = toStore(request, container, operation, header);
      const { partitionKey } = 'item' in asked ? asked.item : asked;
      if (partitionKey !== given.key) throw new WireError('partitionKeyMismatch', MISMATCH);
      operations.push(asked);
    } catch (error) {
      unreadable = { error };
      break;
    }
  }
  const refused = (index: number, error: unknown): Ran => ({
    results: sent.map((operation, at) => (at === index ? failure(operation, error) : FAILED_DEPENDENCY)),
    position: store.headPosition(),
  });
  // With an operation that can't be done nothing is written; which one is the first to fail is still to be said.
  const dryRun = unreadable !== undefined;
  if (operations.length === 0) return refused(0, unreadable!.error);
  const steps: BatchOperation[] = [];
  /** Of each step, which operation it is of. */
  const owners: number[] = [];
  for (const [index, asked] of operations.entries()) {
    for (const step of asked.kind === 'rename' ? stepsOf(asked) : [asked]) owners[steps.push(step) - 1] = index;
  }
  // A batch that reads nothing needs nothing of the session: what it meets the log decides.
  const atLeast = operations.some(({ kind }) => kind === 'read') ? atLeastOf(request) : undefined;
  const outcome = await store.batchItems(caller, container, steps, { dryRun, atLeast });
  if (outcome.kind === 'refused') return refused(owners[outcome.index]!, outcome.refusal);
  if (unreadable !== undefined) return refused(operations.length, unreadable.error);
  const results = operations.map((asked, index) =>
    // A rename answers with its last step, what was written.
    shown(container, sent[index]!, asked, outcome.results[owners.lastIndexOf(index)]!),
  );
  return { results: wholeOrNone(operations, results), position: outcome.position };
}

/** Of a batch of reads alone, whose documents are too many for an answer, none: what was written can't be refused any more. */
function wholeOrNone(operations: readonly Asked[], results: readonly OperationResult[]): readonly OperationResult[] {
  const characters = results.reduce((sum, result) => sum + charactersOf(result), 0);
  if (characters <= MAX_ANSWER_CHARACTERS || results.length === 1) return results;
  if (operations.some(({ kind }) => kind !== 'read')) return results;
  const spent = results.reduce((sum, { requestCharge }) => sum + requestCharge, 0);
  return results.map((_, index) => (index === results.length - 1 ? answerTooLarge(spent) : FAILED_DEPENDENCY));
}

/**
 * Each by itself, also in what it costs: once the container's budget is spent the rest are told to come again. Operations
 * on one item go in order, those on different ones side by side, so that they share the log's commits; where one failure
 * is to stop the rest, one goes after the other.
 */
async function runBulk(
  request: CosmosRequest,
  container: ContainerState,
  sent: readonly SentOperation[],
): Promise<Ran> {
  const { headers } = request;
  const header = partitionKeyHeader(headers);
  const goesOn = headerFlag(headers, 'x-ms-cosmos-batch-continue-on-error');
  const results: OperationResult[] = [];
  let characters = 0;
  let patchedBytes = 0;
  const fitting = (result: OperationResult, kind: Asked['kind']): OperationResult => {
    const more = charactersOf(result);
    if (kind === 'read' && more > 0 && characters > 0 && characters + more > MAX_ANSWER_CHARACTERS) {
      return answerTooLarge(result.requestCharge);
    }
    characters += more;
    return result;
  };
  const tails = new Map<string, Promise<void>>();
  for (const [index, operation] of sent.entries()) {
    let asked: Asked;
    try {
      asked = toStore(request, container, operation, header);
    } catch (error) {
      results[index] = failure(operation, error);
      if (goesOn) continue;
      break;
    }
    const { partitionKey } = 'item' in asked ? asked.item : asked;
    const ids = [...('item' in asked ? [asked.item.id] : []), ...('id' in asked ? [asked.id] : [])];
    const names = goesOn ? ids.map((id) => `${partitionKey}\n${id}`) : [''];
    // What is refused here is done when it is asked for again; afterwards it can't be refused.
    const beforeLarge = (bytes: number): void => {
      if (operation.minimal) return;
      if (patchedBytes > 0 && patchedBytes + bytes > MAX_BULK_PATCHED_BYTES) {
        throw new WireError('answerTooLarge', ANSWER_TOO_LARGE);
      }
      patchedBytes += bytes;
    };
    const doing = asked.kind === 'patch' ? { ...asked, patch: { ...asked.patch, beforeLarge } } : asked;
    const run = async () => {
      try {
        results[index] = fitting(await runCharged(request, container, operation, doing), asked.kind);
      } catch (error) {
        results[index] = failure(operation, error);
      }
    };
    const tail = Promise.all(names.map((name) => tails.get(name) ?? Promise.resolve())).then(run);
    for (const name of names) tails.set(name, tail);
    if (goesOn) continue;
    await tail;
    if (failed(results[index]!)) break;
  }
  // A defect of one must not end the request while others are still under way.
  await allDone([...tails.values()]);
  return {
    results: sent.map((_, index) => results[index] ?? FAILED_DEPENDENCY),
    position: request.store.headPosition(),
  };
}

/** Within the container's budget, as a request of its own would be. */
async function runCharged(
  request: CosmosRequest,
  container: ContainerState,
  sent: SentOperation,
  asked: Asked,
): Promise<OperationResult> {
  const units = request.store.requestUnits;
  const kind = asked.kind === 'read' ? 'read' : 'write';
  const waitMs = units.admit(container, kind);
  if (waitMs > 0) return failure(sent, tooManyRequests(waitMs));
  let spent: number = charge.refusedWrite;
  try {
    const result = await runOne(request, container, sent, asked).catch((error: unknown) => failure(sent, error));
    spent = result.requestCharge;
    return result;
  } finally {
    units.charge(container, kind, spent);
  }
}

async function runOne(
  request: CosmosRequest,
  container: ContainerState,
  sent: SentOperation,
  asked: Asked,
): Promise<OperationResult> {
  const { store, caller } = request;
  const { precondition } = asked;
  switch (asked.kind) {
    case 'write': {
      const { resource, created } = await store.writeItem(caller, container, asked.operation, asked.item, precondition);
      return shown(container, sent, asked, { kind: 'written', item: resource, created });
    }
    case 'rename': {
      const { resource, created } = await renameItem(request, container, asked);
      return shown(container, sent, asked, { kind: 'written', item: resource, created });
    }
    case 'patch': {
      const { id, partitionKey, patch } = asked;
      const { resource, created } = await store.patchItem(caller, container, id, partitionKey, patch, precondition);
      return shown(container, sent, asked, { kind: 'written', item: resource, created });
    }
    case 'delete': {
      const { id, partitionKey } = asked;
      const { bytes } = await store.deleteItem(caller, container, id, partitionKey, precondition);
      return shown(container, sent, asked, { kind: 'deleted', bytes });
    }
    case 'read': {
      const item = await store.readItem(container, asked.id, asked.partitionKey, atLeastOf(request));
      return shown(container, sent, asked, { kind: 'read', item });
    }
    default:
      return asked satisfies never;
  }
}

function shown(
  container: ContainerState,
  { minimal }: SentOperation,
  asked: Asked,
  result: BatchResult,
): OperationResult {
  if (result.kind === 'deleted') return { statusCode: 204, requestCharge: charge.delete(result.bytes) };
  const { item } = result;
  const resourceBody = withSystemProperties(container, item);
  if (result.kind === 'read') {
    const ifNoneMatch = asked.precondition?.ifNoneMatch;
    const unchanged = ifNoneMatch !== undefined && (ifNoneMatch === item.etag || ifNoneMatch === '*');
    return unchanged
      ? { statusCode: 304, requestCharge: charge.refusedRead, eTag: item.etag }
      : { statusCode: 200, requestCharge: charge.pointRead(resourceBody.length), eTag: item.etag, resourceBody };
  }
  return {
    statusCode: result.created && asked.kind !== 'rename' ? 201 : 200,
    requestCharge: chargeOfWrite(container.definition, item.json, 'item' in asked ? asked.item.document : undefined),
    eTag: item.etag,
    ...(minimal ? {} : { resourceBody }),
  };
}

/** @throws the error itself when it is no expected "no" */
function failure(sent: SentOperation, error: unknown): OperationResult {
  const described = describeError(ownerGone(error) ?? error);
  if (described === undefined) throw error;
  let shape: WireShape = described.shape;
  // A write that is on record but not yet seen by readers: who asked for it must learn that it may be there.
  if (error instanceof Refusal && error.code === 'session-not-available' && sent.type !== 'Read') {
    shape = wireShapes.requestTimeout;
  }
  return {
    statusCode: shape.status,
    subStatusCode: shape.substatus,
    requestCharge:
      shape.status === 429 ? charge.throttled : sent.type === 'Read' ? charge.refusedRead : charge.refusedWrite,
    message: described.message,
    retryAfterMilliseconds:
      shape.retryAfterSeconds === undefined ? undefined : Math.ceil(shape.retryAfterSeconds * 1000),
  };
}

function resultText({ resourceBody, ...result }: OperationResult): string {
  const text = JSON.stringify(result);
  return resourceBody === undefined ? text : `${text.slice(0, -1)},"resourceBody":${resourceBody}}`;
}
