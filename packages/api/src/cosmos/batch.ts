import { allDone } from '@epitaph/core/all-done.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { BatchOperation } from '../store/api/items-api.ts';
import { Pace } from '@epitaph/core/turn.ts';
import { Places } from '@epitaph/core/places.ts';
import { hasUniqueKeys } from '@epitaph/core/unique-key/values.ts';
import { charge, rounded } from '../request-units/charge.ts';
import { containerHeaders, sessionHeaders } from './containers.ts';
import { badRequest, tooManyRequests, WireError, wireShapes } from './errors.ts';
import { type Asked, readOperations, type SentOperation, toStore } from './batch-operations.ts';
import {
  ANSWER_TOO_LARGE,
  answerTooLarge,
  charactersOf,
  failed,
  FAILED_DEPENDENCY,
  failure,
  type OperationResult,
  resultText,
  shown,
} from './batch-results.ts';
import { encodeResults, isHybridRow } from './hybrid-row.ts';
import { otherKey, readPartitionKeyHeader } from './partition-key.ts';
import { renameItem, stepsOf } from './rename.ts';
import {
  atLeastOf,
  headerFlag,
  isJavaScriptClient,
  partitionKeyHeader,
  type Answer,
  type CosmosRequest,
} from './request.ts';
import { answeringRangeId, scopeOf } from './scope.ts';

/** The most characters of documents in an answer. Source: Cosmos DB, "Service quotas" (maximum response size, 4 MB). */
const MAX_ANSWER_CHARACTERS = 4 * 1024 * 1024;

/**
 * The most bytes of large documents that one bulk patches, for the same reason. It is higher, because a client that
 * repeats a patch gets it done late.
 */
const MAX_BULK_PATCHED_BYTES = 32 * 1024 * 1024;

/**
 * Reads of a bulk at the same time. Documents that are read from the disk are opened one after the other, without a
 * turn for others.
 */
const READS_AT_ONCE = 4;

/** `POST …/docs` with `x-ms-cosmos-is-batch-request`: a transactional batch, or a bulk of independent operations. */
export async function answerBatch(request: CosmosRequest, container: ContainerState): Promise<Answer> {
  const operations = readOperations(request);
  const rangeId = answeringRangeId(request, container, scopeOf(request, container));
  const isAtomic = headerFlag(request.headers, 'x-ms-cosmos-batch-atomic');
  const { results, position } = isAtomic
    ? await runBatch(request, container, operations)
    : await runBulk(request, container, operations);
  const mayBeOfAnother = results.some(
    ({ statusCode, subStatusCode }) =>
      subStatusCode === wireShapes.ownerNotFound.substatus || statusCode === wireShapes.badRequest.status,
  );
  // All operations are then meant for the container that has the name now. Whatever some of them did was deleted with the other container,
  // so the request is repeated as a whole.
  if (mayBeOfAnother && (await request.isRenamed?.()) === true) throw new Refusal('container-not-found');
  const body = isHybridRow(request.body!) ? encodeResults(results) : `[${results.map(resultText).join(',')}]`;
  return {
    status: results.every(({ statusCode }) => statusCode < 300) ? 200 : 207,
    body,
    charge: rounded(results.reduce((sum, { requestCharge }) => sum + requestCharge, 0)),
    // A batch that failed because an item is missing has no path in its answer, like the operation alone.
    headers:
      isAtomic && results.some(({ statusCode }) => statusCode === 404)
        ? sessionHeaders(rangeId, position)
        : containerHeaders(request.segments[1]!, container, position, rangeId),
  };
}

interface Ran {
  readonly results: readonly OperationResult[];
  readonly position: number;
}

/** Runs all operations in order, or none. */
async function runBatch(
  request: CosmosRequest,
  container: ContainerState,
  sent: readonly SentOperation[],
): Promise<Ran> {
  const { store, caller, headers } = request;
  // If the client names only the range, each operation names the key that they share.
  const isOfRange = headers['x-ms-documentdb-partitionkeyrangeid'] !== undefined;
  const header = partitionKeyHeader(headers) ?? (isOfRange ? sent[0]!.partitionKey : undefined);
  const given = readPartitionKeyHeader(container.definition, header);
  if (given === undefined || !given.complete) {
    throw badRequest('A transactional batch needs the full partition key, which all its operations share.');
  }
  const { operations, unreadable } = asFarAsReadable(request, container, sent, { header, key: given.key });
  const refused = (index: number, error: unknown): Ran => ({
    results: sent.map((operation, at) => (at === index ? failure(operation, error) : FAILED_DEPENDENCY)),
    position: store.headPosition(),
  });
  // If an operation can't be done, nothing is written. The dry run only finds out which operation is the first to fail.
  const dryRun = unreadable !== undefined;
  if (operations.length === 0) return refused(0, unreadable!.error);
  const steps: BatchOperation[] = [];
  /** For each step, the index of its operation. */
  const owners: number[] = [];
  for (const [index, asked] of operations.entries()) {
    for (const step of asked.kind === 'rename' ? stepsOf(asked) : [asked]) owners[steps.push(step) - 1] = index;
  }
  // A batch without reads does not need its session token: the log decides what it finds.
  const atLeast = operations.some(({ kind }) => kind === 'read') ? await atLeastOf(request) : undefined;
  const outcome = await store.batchItems(caller, container, steps, { dryRun, atLeast });
  if (outcome.kind === 'refused') {
    const index = owners[outcome.index]!;
    // A stored document is never too large by itself.
    const isOfRead = outcome.refusal.code === 'too-large' && operations[index]!.kind === 'read';
    return refused(index, isOfRead ? new WireError('answerTooLarge', ANSWER_TOO_LARGE) : outcome.refusal);
  }
  if (unreadable !== undefined) return refused(operations.length, unreadable.error);
  const results = operations.map((asked, index) =>
    // A rename is answered with its last step, which is the written item.
    shown(container, sent[index]!, asked, outcome.results[owners.lastIndexOf(index)]!),
  );
  return { results: wholeOrNone(operations, results), position: outcome.position };
}

/** The operations of a transactional batch, up to the first that can't be carried out at all. */
function asFarAsReadable(
  request: CosmosRequest,
  container: ContainerState,
  sent: readonly SentOperation[],
  { header, key }: { readonly header: string | undefined; readonly key: string },
): { readonly operations: readonly Asked[]; readonly unreadable?: { readonly error: unknown } } {
  const operations: Asked[] = [];
  for (const operation of sent) {
    try {
      const asked = toStore(request, container, operation, header);
      if (partitionKeyOf(asked) !== key) throw otherKey();
      operations.push(asked);
    } catch (error) {
      return { operations, unreadable: { error } };
    }
  }
  return { operations };
}

const partitionKeyOf = (asked: Asked): string => ('item' in asked ? asked.item : asked).partitionKey;

/**
 * If the documents of a batch of reads are too many for an answer, the batch fails. A batch that wrote something can't
 * be refused any more.
 */
function wholeOrNone(operations: readonly Asked[], results: readonly OperationResult[]): readonly OperationResult[] {
  const characters = results.reduce((sum, result) => sum + charactersOf(result), 0);
  if (characters <= MAX_ANSWER_CHARACTERS || results.length === 1) return results;
  if (operations.some(({ kind }) => kind !== 'read')) return results;
  const spent = results.reduce((sum, { requestCharge }) => sum + requestCharge, 0);
  return results.map((_, index) => (index === results.length - 1 ? answerTooLarge(spent) : FAILED_DEPENDENCY));
}

/**
 * Runs each operation by itself and charges it by itself: once the container's budget is spent, the remaining ones must
 * be sent again. Operations on one item run in order, those on different items side by side, so that they share the
 * log's commits. If one failure must stop the rest, all run one after the other. An operation that is refused because a
 * unique key's value is taken is repeated when the operations before it are done, since they may have released the
 * value.
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
  const room = new AnswerRoom();
  // Each read may open a large document, so only a few run at a time, and other work gets its turn in between.
  const reading = new Places(READS_AT_ONCE);
  const tails = new Map<string, Promise<void>>();
  /** By partition key, within which a value of a unique key can be released. */
  const keyTails = hasUniqueKeys(container.definition) ? new Map<string, Promise<unknown>>() : undefined;
  for (const [index, operation] of sent.entries()) {
    let asked: Asked;
    try {
      asked = toStore(request, container, operation, header);
    } catch (error) {
      results[index] = failure(operation, error);
      if (goesOn) continue;
      break;
    }
    const names = goesOn ? namesOf(asked) : [''];
    // A patch that is refused here is done when the client sends it again; once done, it can't be refused.
    const beforeLarge = (bytes: number): void => {
      if (!operation.minimal) room.takeForPatch(bytes);
    };
    const doing = asked.kind === 'patch' ? { ...asked, patch: { ...asked.patch, beforeLarge } } : asked;
    const earlier = keyTails?.get(partitionKeyOf(asked));
    const run = async () => {
      try {
        const carryOut = () => runCharged(request, container, operation, doing, earlier);
        const paced = async () => {
          await paceOfReads.step();
          return carryOut();
        };
        const result = await (asked.kind === 'read' ? reading.run(paced) : carryOut());
        results[index] = room.fitting(result, asked.kind);
      } catch (error) {
        results[index] = failure(operation, error);
      }
    };
    const tail = Promise.all(names.map((name) => tails.get(name) ?? Promise.resolve())).then(run);
    for (const name of names) tails.set(name, tail);
    // Whatever the results: a defect belongs to the request, and an unhandled rejection would end the process.
    keyTails?.set(partitionKeyOf(asked), Promise.allSettled([earlier, tail]));
    if (goesOn) continue;
    await tail;
    if (failed(results[index]!)) break;
  }
  // A defect in one operation must not end the request while others are still under way.
  await allDone([...tails.values()]);
  const all = sent.map((_, index) => results[index] ?? FAILED_DEPENDENCY);
  return {
    results: isJavaScriptClient(headers) ? waitedForInTurn(all) : all,
    position: request.store.headPosition(),
  };
}

/**
 * Makes the waiting times of refused operations add up to the right one. `@azure/cosmos` 4.10.1 waits for each refused operation of a bulk
 * request in turn, so full waiting times would add up to their sum. Instead, each operation gets only the difference from the one before.
 */
function waitedForInTurn(results: readonly OperationResult[]): OperationResult[] {
  let waitedMs = 0;
  return results.map((result) => {
    const { retryAfterMilliseconds: toldMs } = result;
    if (result.statusCode !== wireShapes.tooManyRequests.status || toldMs === undefined) return result;
    const moreMs = Math.max(1, toldMs - waitedMs);
    waitedMs += moreMs;
    return { ...result, retryAfterMilliseconds: moreMs };
  });
}

/** Shared by the reads of all bulks. */
const paceOfReads = new Pace();

/** The items that an operation is on. A rename is on two. */
function namesOf(asked: Asked): string[] {
  const ids = [...('item' in asked ? [asked.item.id] : []), ...('id' in asked ? [asked.id] : [])];
  return ids.map((id) => `${partitionKeyOf(asked)}\n${id}`);
}

/** The room that is left for documents in the answer of a bulk. The first document always fits. */
class AnswerRoom {
  #characters = 0;
  #patchedBytes = 0;

  /**
   * The result of an operation; for a read that does not fit, a result that says so. A write has been done and is
   * always reported.
   */
  fitting(result: OperationResult, kind: Asked['kind']): OperationResult {
    const more = charactersOf(result);
    const isOver = this.#characters > 0 && this.#characters + more > MAX_ANSWER_CHARACTERS;
    if (kind === 'read' && more > 0 && isOver) return answerTooLarge(result.requestCharge);
    this.#characters += more;
    return result;
  }

  /** @throws WireError when there is no room for another large document to be patched */
  takeForPatch(bytes: number): void {
    if (this.#patchedBytes > 0 && this.#patchedBytes + bytes > MAX_BULK_PATCHED_BYTES) {
      throw new WireError('answerTooLarge', ANSWER_TOO_LARGE);
    }
    this.#patchedBytes += bytes;
  }
}

/**
 * Runs an operation within the container's budget, as if it were a request of its own.
 *
 * @param earlier resolves when the operations are done that may release values of unique keys
 */
async function runCharged(
  request: CosmosRequest,
  container: ContainerState,
  sent: SentOperation,
  asked: Asked,
  earlier: Promise<unknown> | undefined,
): Promise<OperationResult> {
  const admission = request.store.requestUnits.admit(container, asked.kind === 'read' ? 'read' : 'write');
  if (admission.waitMs > 0) return failure(sent, tooManyRequests(admission.waitMs));
  let spent: number = charge.refusedWrite;
  try {
    const run = () => runOne(request, container, sent, asked);
    const runAfter = async (error: unknown) => {
      if (earlier === undefined || !(error instanceof Refusal && error.code === 'unique-key-taken')) throw error;
      await earlier;
      return run();
    };
    const result = await run()
      .catch(runAfter)
      .catch((error: unknown) => failure(sent, error));
    spent = result.requestCharge;
    return result;
  } finally {
    admission.charge(spent);
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
      const item = await store.readItem(container, asked.id, asked.partitionKey, await atLeastOf(request));
      return shown(container, sent, asked, { kind: 'read', item });
    }
    default:
      return asked satisfies never;
  }
}
