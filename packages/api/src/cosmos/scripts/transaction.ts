import { randomInt, randomUUID } from 'node:crypto';
import { currentPolicy } from '@epitaph/core/container/decide.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { type ErrorCode, Refusal } from '@epitaph/core/errors.ts';
import { KeyedMutex } from '@epitaph/core/keyed-mutex.ts';
import type { ScriptState } from '@epitaph/core/script/state.ts';
import { readOwnTtl } from '@epitaph/core/ttl/ttl-value.ts';
import { hasUniqueKeys } from '@epitaph/core/unique-key/values.ts';
import { type Json, parseJson, parseQuery } from '@epitaph/query';
import type { Script, ScriptAnswer, ScriptHost, ScriptOperation, ScriptOutcome } from '@epitaph/scripts';
import { charge, chargeOfWrite, rounded, workOfText } from '../../request-units/charge.ts';
import type { BatchOperation, BatchResult, ItemToWrite, ShownItem } from '../../store/api/items-api.ts';
import { containerSelf, systemPropertiesOf, withSystemProperties } from '../../store/items/system-properties.ts';
import { birthOfItemRid, itemRid } from '../../store/rids.ts';
import { decodeContinuation, encodeContinuation } from '../continuation.ts';
import { badRequest, describeError, tooLarge, WireError } from '../errors.ts';
import { itemOf } from '../item-body.ts';
import { isJsonObject, parseExactText } from '../json.ts';
import { type CosmosRequest, databaseOf, scriptRunner } from '../request.ts';
import type { QueryBody } from '../feed.ts';
import { failureOf } from './failures.ts';
import { functionsFor } from './functions.ts';
import { otherKeyInScript, Overtaken, RecordedItems } from './recorded-items.ts';
import { type Found, rowsOver } from './rows-over.ts';
import { UniqueValues } from './unique-values.ts';

/** How often a script is run, if other writers conflict with it, before its client is told to retry. */
const MAX_ATTEMPTS = 5;
/** The most bytes of documents that a script may write, and the most characters of query results that are kept for it. */
const MAX_BYTES = 16 * 1024 * 1024;
/** The rows of a page for a script that asks for no page size. It is the default of Cosmos DB's server-side API. */
const PAGE_ROWS = 100;

/** Runs the scripts of a partition key one after the other. If they ran concurrently, they would only conflict with each other. */
const order = new KeyedMutex();

/** The first of the stand-in births, for items that are not recorded yet. No log reaches such a position. */
const FIRST_STAND_IN = 2 ** 50;

/** Refusals that a script gets at once when it writes. If one of them comes only at recording, another writer came in between. */
const HEARD: ReadonlySet<ErrorCode> = new Set([
  'already-exists',
  'precondition-failed',
  'item-not-found',
  'unique-key-taken',
]);

/** A script's result, and its writes as recorded. */
export interface Recorded<Result> {
  readonly result: Result;
  readonly results: readonly BatchResult[];
  readonly position: number;
  readonly charge: number;
  /** Replaces the stand-in etags and rids in a text of the script by those that the recorded items have, and their `_ts`. */
  readonly asRecorded: (text: string) => string;
}

/**
 * Does some work in one partition key, and records all its writes at once. If another writer has changed an item since the
 * work saw it, nothing is recorded, and the work is done again.
 *
 * @throws WireError 449 if other writers conflict with each attempt; Refusal for writes that can't be recorded
 */
export function inTransaction<Result>(
  request: CosmosRequest,
  container: ContainerState,
  partitionKey: string,
  work: (transaction: Transaction) => Promise<Result>,
): Promise<Recorded<Result>> {
  return order.run(`${container.rid} ${partitionKey}`, async () => {
    let spent = 0;
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      request.signal().throwIfAborted();
      const transaction = new Transaction(request, container, partitionKey);
      try {
        const result = await work(transaction);
        const recorded = await transaction.record();
        spent += transaction.charge;
        if (recorded !== undefined) return { result, charge: rounded(spent), ...recorded };
      } catch (error) {
        spent += transaction.charge;
        if (error instanceof Overtaken) continue;
        if (error instanceof Error) spentUntil.set(error, spent);
        throw error;
      } finally {
        transaction.end();
      }
    }
    const error = new WireError('retryWith', 'Conflicting requests were made to the resource. Please retry.');
    spentUntil.set(error, spent);
    throw error;
  });
}

/** By error, the request charge of the script that ended with it. */
export const spentUntil = new WeakMap<Error, number>();

/** An item as a script sees it. If it is not recorded yet, its etag and rid are stand-ins. */
type Seen = ShownItem;

/** The writes of scripts in one partition key, until they are recorded. Only the scripts themselves see them. */
export class Transaction implements ScriptHost {
  readonly #request: CosmosRequest;
  readonly #container: ContainerState;
  readonly #partitionKey: string;
  readonly #recorded: RecordedItems;
  /** By id, each item that the scripts have written, as it is now; undefined for a deleted one. */
  readonly #written = new Map<string, Seen | undefined>();
  /** By birth, which may be a stand-in, the id of each of these items. A link by rid may lead to one that was deleted since. */
  readonly #created = new Map<number, string>();
  readonly #operations: BatchOperation[] = [];
  /** Undefined for a container without unique keys. */
  readonly #uniqueValues: UniqueValues | undefined;
  /** For each operation, the item as it was shown to the script; undefined for a delete. */
  readonly #shown: (Seen | undefined)[] = [];
  /** Results of queries over the script's own writes, while there are more pages to read. */
  readonly #found = new Map<string, Found>();
  #foundCharacters = 0;
  readonly #ended = new AbortController();
  /** Aborted when the request or the transaction ends: nobody waits for the scripts' operations then. */
  readonly #signal: AbortSignal;
  /** The id of the event that stored the running script; undefined while none is running. */
  #causationId: string | undefined;
  #bytes = 0;
  #nextBirth = FIRST_STAND_IN + randomInt(2 ** 40);
  #charge = 0;

  constructor(request: CosmosRequest, container: ContainerState, partitionKey: string) {
    this.#request = request;
    this.#container = container;
    this.#partitionKey = partitionKey;
    const { store, caller } = request;
    this.#recorded = new RecordedItems(store, container, partitionKey);
    if (hasUniqueKeys(container.definition)) {
      this.#uniqueValues = new UniqueValues(container.definition, (operations) =>
        store.batchItems(caller, container, operations, { dryRun: true }),
      );
    }
    this.#signal = AbortSignal.any([request.signal(), this.#ended.signal]);
  }

  /** Aborts operations that are still running for a script that has ended. */
  end(): void {
    this.#ended.abort();
  }

  get charge(): number {
    return this.#charge;
  }

  /**
   * Runs a script to its end. Its writes are recorded with the event that stored the script as their cause.
   *
   * @throws WireError if the script failed
   */
  async run(
    { name, body: source, etag }: ScriptState,
    given: Omit<Script, 'name' | 'source' | 'collection'>,
  ): Promise<Extract<ScriptOutcome, { kind: 'done' }>> {
    // The link is made of names, since the request may have used rids.
    const alt = `dbs/${databaseOf(this.#request).name}/colls/${this.#container.name}`;
    const links = { self: containerSelf(this.#container), alt };
    this.#causationId = unquoted(etag);
    this.#recorded.scriptBegins();
    let outcome: ScriptOutcome;
    try {
      outcome = await scriptRunner(this.#request).run({ ...given, name, source, collection: links }, this, {
        of: this.#container.rid,
        signal: this.#request.signal(),
      });
    } finally {
      this.#causationId = undefined;
      await this.#recorded.scriptEnded();
    }
    this.#charge += charge.script(outcome.workedMs);
    if (outcome.kind === 'done') return outcome;
    throw failureOf(`The script '${name}'`, outcome);
  }

  /** Carries out an operation of the script. The script is told expected refusals; any other error ends it. */
  async operate(operation: ScriptOperation): Promise<ScriptAnswer> {
    this.#request.signal().throwIfAborted();
    try {
      return await this.#answer(operation);
    } catch (error) {
      const failed = failedFor(error);
      if (failed === undefined) throw error;
      return failed;
    }
  }

  /**
   * Writes an item, for a script or as a request's own operation, between its triggers.
   *
   * @throws Refusal or WireError if the item can't be written
   */
  async write(operation: 'create' | 'upsert' | 'replace', item: ItemToWrite, ifMatch?: string): Promise<Seen> {
    this.#checkItem(item);
    const before = await this.find(item.id);
    if (operation === 'create' && before !== undefined) throw new Refusal('already-exists');
    if (operation === 'replace' && before === undefined) throw new Refusal('item-not-found');
    this.#checkMatch(before, ifMatch);
    await this.#uniqueValues?.assertFree(item);
    return this.#put(item, before);
  }

  #put(item: ItemToWrite, before: Seen | undefined, isRename = false): Seen {
    this.#bytes += Buffer.byteLength(item.json);
    this.#charge += chargeOfWrite(this.#container.definition, item.json, item.document);
    const seen: Seen = {
      ...item,
      birth: before?.birth ?? this.#nextBirth++,
      ts: Math.floor(this.#request.store.nowMs() / 1000),
      etag: `"${randomUUID()}"`,
    };
    const guard = this.#guard(item.id);
    this.#operations.push({
      kind: 'write',
      // Whether an upsert creates or replaces was decided by what the script saw. If another writer came in between, the
      // operation is refused, and the script is run again.
      operation: before === undefined ? 'create' : 'replace',
      item,
      isRename,
      precondition: guard,
      causationId: this.#causationId,
    });
    this.#uniqueValues?.changed(item.id, before, item.document);
    this.#shown.push(seen);
    this.#written.set(item.id, seen);
    this.#created.set(seen.birth, item.id);
    return seen;
  }

  /** Replaces an item. With another id it becomes another item, as it does for requests, and is charged as a replace. */
  async replace(id: string, item: ItemToWrite, ifMatch?: string): Promise<Seen> {
    if (item.id === id) return this.write('replace', item, ifMatch);
    this.#checkItem(item);
    const before = await this.findExisting(id);
    this.#checkMatch(before, ifMatch);
    if ((await this.find(item.id)) !== undefined) throw new Refusal('already-exists');
    await this.#uniqueValues?.assertFree(item, id);
    this.#remove(id, before);
    return this.#put(item, undefined, true);
  }

  async delete(id: string, ifMatch?: string): Promise<Seen> {
    const before = await this.findExisting(id);
    this.#checkMatch(before, ifMatch);
    this.#charge += charge.delete(Buffer.byteLength(before.json));
    this.#remove(id, before);
    return before;
  }

  #remove(id: string, before: Seen): void {
    this.#uniqueValues?.changed(id, before, undefined);
    this.#operations.push({
      kind: 'delete',
      id,
      partitionKey: this.#partitionKey,
      precondition: this.#guard(id),
      causationId: this.#causationId,
    });
    this.#shown.push(undefined);
    this.#written.set(id, undefined);
  }

  /** @returns undefined if another writer came in between, so that nothing was recorded */
  async record(): Promise<Omit<Recorded<unknown>, 'result' | 'charge'> | undefined> {
    const { store, caller } = this.#request;
    if (this.#operations.length === 0) {
      return { results: [], position: store.headPosition(), asRecorded: (text) => text };
    }
    const outcome = await store.batchItems(caller, this.#container, this.#operations);
    if (outcome.kind === 'refused') {
      if (HEARD.has(outcome.refusal.code)) return undefined;
      throw outcome.refusal;
    }
    const { results, position } = outcome;
    const now = new Map<string, string>();
    // All that is recorded together has the same time.
    let ts = 0;
    for (const [index, result] of results.entries()) {
      const shown = this.#shown[index];
      if (shown === undefined || result.kind !== 'written') continue;
      ({ ts } = result.item);
      now.set(unquoted(shown.etag), unquoted(result.item.etag));
      now.set(itemRid(this.#container.rid, shown.birth), itemRid(this.#container.rid, result.item.birth));
    }
    const asRecorded = (text: string): string =>
      text
        .replaceAll(SHOWN_TIMES, (found, before: string, etag: string) => (now.has(etag) ? `${before}${ts}` : found))
        .replaceAll(STAND_INS, (found) => now.get(found) ?? found);
    return { results, position, asRecorded };
  }

  /** The number of write operations so far. */
  get place(): number {
    return this.#operations.length;
  }

  async #answer(operation: ScriptOperation): Promise<ScriptAnswer> {
    switch (operation.kind) {
      case 'create':
      case 'upsert':
        return this.#show(
          await this.write(operation.kind, this.#itemIn(operation.body, operation.makesId)),
          this.#hasCreated() ? 201 : 200,
        );
      case 'replace': {
        const item = this.#itemIn(operation.body, false);
        return this.#show(await this.replace(await this.#idOf(operation.link), item, operation.ifMatch));
      }
      case 'delete':
        await this.delete(await this.#idOf(operation.link), operation.ifMatch);
        return { kind: 'done', status: 204 };
      case 'read': {
        const found = await this.find(await this.#idOf(operation.link));
        this.#charge += found === undefined ? charge.refusedRead : charge.pointRead(Buffer.byteLength(found.json));
        if (found === undefined) throw new Refusal('item-not-found');
        return found.etag === operation.ifNoneMatch ? { kind: 'failed', status: 304, message: '' } : this.#show(found);
      }
      case 'list':
        return this.#query({ sql: 'SELECT * FROM c', parameters: [] }, operation);
      case 'query': {
        const parameters = parseExactText(Buffer.from(operation.parameters), this.#request.limits.jsonDepth);
        return this.#query({ sql: operation.query, parameters: parametersIn(parameters) }, operation);
      }
      default:
        return operation satisfies never;
    }
  }

  #show = (item: Seen, status = 200): ScriptAnswer => ({
    kind: 'done',
    status,
    body: withSystemProperties(this.#container, item),
  });

  /** Whether the last write operation creates its item. */
  #hasCreated(): boolean {
    const last = this.#operations.at(-1);
    return last?.kind === 'write' && last.operation === 'create';
  }

  #itemIn(body: string, makesId: boolean): ItemToWrite {
    const document = parseExactText(Buffer.from(body), this.#request.limits.jsonDepth);
    if (!isJsonObject(document)) throw badRequest('The document is not a JSON object.');
    const { id } = document;
    // An empty id counts as none, as it does in Cosmos DB.
    const isMade = makesId && !id;
    return itemOf(this.#container.definition, isMade ? { ...document, id: randomUUID() } : document);
  }

  /** Resolves a link to the id of an item. The link consists of names, or of rids as a `_self` does. */
  async #idOf(link: string): Promise<string> {
    const segments = link.split('/').filter((segment) => segment !== '');
    const [dbs, , colls, collection, docs, name] = segments;
    if (segments.length !== 6 || dbs !== 'dbs' || colls !== 'colls' || docs !== 'docs') {
      throw badRequest(`'${link.slice(0, 200)}' is not the link of a document.`);
    }
    if (collection !== this.#container.rid) {
      if (collection === this.#container.name) return name!;
      throw badRequest('A script can only reach documents of its own collection.');
    }
    const birth = birthOfItemRid(this.#container.rid, name!);
    if (birth === undefined) return name!;
    const id = this.#created.get(birth) ?? (await this.#recorded.idBornAt(birth));
    // The script has deleted the item of the link. If it has created one with the same id since, that is another item.
    if (this.#written.has(id) && this.#written.get(id)?.birth !== birth) throw new Refusal('item-not-found');
    return id;
  }

  /** The item as the script sees it; undefined if there is none. */
  async find(id: string): Promise<Seen | undefined> {
    return this.#written.has(id) ? this.#written.get(id) : this.#recorded.find(id);
  }

  /** @throws Refusal if the script sees no such item */
  async findExisting(id: string): Promise<Seen> {
    const found = await this.find(id);
    if (found === undefined) throw new Refusal('item-not-found');
    return found;
  }

  /** @throws WireError for an item of another partition key, or one that is too large; Refusal for an invalid ttl */
  #checkItem(item: ItemToWrite): void {
    if (item.partitionKey !== this.#partitionKey) throw otherKeyInScript();
    const { defaultTtl } = currentPolicy(this.#container, this.#request.store.nowMs());
    if (defaultTtl !== null && readOwnTtl(item.document).kind === 'unreadable') throw new Refusal('invalid-ttl');
    const bytes = Buffer.byteLength(item.json);
    if (bytes > this.#request.limits.itemBytes || this.#bytes + bytes > MAX_BYTES) throw tooLarge();
  }

  /** The precondition for the first operation on an item. Later operations on it need none, since all are recorded at once. */
  #guard(id: string): BatchOperation['precondition'] {
    const etag = this.#recorded.etagOf(id);
    return etag === undefined || this.#written.has(id) ? undefined : { ifMatch: etag };
  }

  #checkMatch(before: Seen | undefined, ifMatch: string | undefined): void {
    if (ifMatch === undefined || (before !== undefined && (ifMatch === '*' || ifMatch === before.etag))) return;
    throw new Refusal('precondition-failed');
  }

  /**
   * A page of a query. If the script has written before the first page, the query sees the script's own writes up to then.
   * Otherwise it sees the recorded items. The further pages see the same as the first.
   */
  async #query(
    { sql, parameters }: Pick<QueryBody, 'sql' | 'parameters'>,
    { pageSize = PAGE_ROWS, continuation }: { readonly pageSize?: number; readonly continuation?: string },
  ): Promise<ScriptAnswer> {
    const rows = Math.min(pageSize < 1 ? PAGE_ROWS : pageSize, this.#request.limits.pageItems);
    const [query = '', from] = continuation?.split(':') ?? [];
    const left = this.#found.get(query);
    if (left !== undefined) return this.#pageOf(query, left, Number(from), rows);
    if (continuation === undefined && this.#written.size > 0) {
      const asked = { sql, parameters };
      const found = await rowsOver(this.#documents(), asked, this.#request, this.#container, this.#signal);
      this.#charge += found.charge;
      return this.#pageOf(randomUUID(), found, 0, rows);
    }
    const { limits } = this.#request;
    const where = { of: this.#container.rid, key: this.#partitionKey };
    const page = await this.#recorded.query({
      sql,
      parameters,
      maxItemCount: rows,
      isAwaited: true,
      userFunctions: functionsFor(this.#request, this.#container, sql),
      ...decodeContinuation(continuation, where),
      signal: this.#signal,
    });
    if (givesItems(sql, limits)) this.#recorded.rememberRows(page.rows);
    const body = `[${page.texts.join(',')}]`;
    this.#charge += charge.query(page.examined, Buffer.byteLength(body), page.extraWork + workOfText(sql));
    const next = page.continuation === undefined ? {} : { continuation: encodeContinuation(page, where) };
    return { kind: 'done', body, ...next };
  }

  #pageOf(query: string, found: Found, from: number, size: number): ScriptAnswer {
    const to = from + size;
    const body = `[${found.rows.slice(from, to).join(',')}]`;
    if (found.rows.length <= to) return { kind: 'done', body };
    this.#keep(query, found);
    return { kind: 'done', body, continuation: `${query}:${to}` };
  }

  /** Keeps a query's rows for its further pages. If all kept rows are too large together, the oldest queries can't be continued. */
  #keep(query: string, found: Found): void {
    if (this.#found.has(query)) return;
    this.#found.set(query, found);
    this.#foundCharacters += found.characters;
    for (const [first, { characters }] of this.#found) {
      if (this.#foundCharacters <= MAX_BYTES) return;
      this.#found.delete(first);
      this.#foundCharacters -= characters;
    }
  }

  /** The items of the partition key with the script's own writes, in pages. */
  async *#documents(): AsyncGenerator<readonly Json[]> {
    const begun = new Set<string>();
    for await (const items of this.#recorded.all()) {
      const seen = items
        .map((item) => (this.#written.has(item.id) ? this.#written.get(item.id) : item))
        .filter((item) => item !== undefined);
      for (const { id } of seen) begun.add(id);
      yield seen.map((item) => this.#document(item));
    }
    const others = [...this.#written.values()].filter((item) => item !== undefined && !begun.has(item.id));
    yield others.map((item) => this.#document(item!));
  }

  #document(item: Seen): Json {
    const own = parseJson(item.json) as { readonly [name: string]: Json };
    return { ...own, ...systemPropertiesOf(this.#container, item) };
  }
}

/** Matches etags and rids in the text of a response. */
const STAND_INS = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Za-z0-9+-]{22}==/g;

/**
 * Matches the `_ts` of a document in the text of a response, after the document's etag: the script saw the time at which it
 * wrote. The text may be JSON in a string, as scripts often answer: then there are more backslashes.
 */
const SHOWN_TIMES =
  /(_etag\\*":\\*"\\+"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\\+"\\*",\\*"_attachments\\*":\\*"attachments\/\\*",\\*"_ts\\*":)\d+/g;

/** The answer that tells a script about an error; undefined for an error that ends the script instead. */
function failedFor(error: unknown): ScriptAnswer | undefined {
  const described = describeError(error);
  if (described === undefined) return undefined;
  const { status } = described.shape;
  const isOfItem = error instanceof Refusal && error.code === 'item-not-found';
  // Any other 404 is about the container or the session. The script would take it to mean the item.
  if (status >= 500 || (status === 404 && !isOfItem) || (error as Error).name === 'AbortError') return undefined;
  return { kind: 'failed', status, message: described.message };
}

const unquoted = (etag: string): string => etag.slice(1, -1);

/** Whether the rows of a query are whole items. */
function givesItems(sql: string, limits: CosmosRequest['limits']): boolean {
  const { selection, from } = parseQuery(sql, { maxLength: limits.queryCharacters });
  if (selection.kind === 'star') return true;
  return selection.kind === 'value' && selection.expression.kind === 'identifier' && from.length === 1;
}

function parametersIn(value: unknown): QueryBody['parameters'] {
  if (Array.isArray(value) && value.every((one) => isJsonObject(one) && typeof one['name'] === 'string')) {
    return value as QueryBody['parameters'];
  }
  throw badRequest("The query's parameters are not an array of objects with a name.");
}
