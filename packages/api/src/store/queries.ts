import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { isExpired } from '@epitaph/core/ttl/watermarks.ts';
import type { ItemRow } from '@epitaph/projections/read-model-store.ts';
import {
  type Evaluation,
  isOrderedByDocument,
  type Json,
  OrderedPage,
  parseQuery,
  planQuery,
  type QueryParameter,
  type QueryPlan,
  startEvaluation,
} from '@epitaph/query';
import type { Documents } from './documents.ts';
import type { Moment, StoreParts } from './parts.ts';
import type { QueryPage, QueryRequest } from './store-api.ts';

/** Rows of the read model fetched at a time. */
const SCAN_SIZE = 256;
/** Documents looked at for one page of a streaming query before it answers with what it has. */
const MAX_EXAMINED = 20_000;

interface Candidate {
  readonly row: ItemRow;
  readonly document: Json;
}

interface Batch {
  readonly documents: readonly Candidate[];
  /** No batch follows. */
  readonly isLast: boolean;
}

/** Runs queries: the plan's clear columns pick the rows, the evaluator sees the documents one after the other. */
export class Queries {
  readonly #parts: StoreParts;
  readonly #documents: Documents;

  constructor(parts: StoreParts, documents: Documents) {
    this.#parts = parts;
    this.#documents = documents;
  }

  async query(container: ContainerState, request: QueryRequest): Promise<QueryPage> {
    const plan = planQuery(parseQuery(request.sql), request.parameters as readonly QueryParameter[]);
    await this.#parts.seen(request.atLeast);
    const moment = await this.#parts.moment(container);
    if (plan.countOnly && plan.pushdown.complete && isUnfiltered(plan) && request.partitionKey === undefined) {
      const rows = request.continuation === undefined ? [await this.#countAll(moment)] : [];
      return { rows, examined: 0 };
    }
    if (isOrderedByDocument(plan) && request.continuation?.kind !== 'skip') return this.#sorted(moment, request, plan);
    return plan.streaming && plan.readsDocuments
      ? this.#stream(moment, request, plan)
      : this.#whole(moment, request, plan);
  }

  #countAll({ within, marks }: Moment) {
    return this.#parts.readModel.countVisible(within.number, marks);
  }

  /** A query whose rows come in document order: each page goes on after the last document of the one before. */
  async #stream(moment: Moment, request: QueryRequest, plan: QueryPlan): Promise<QueryPage> {
    const start = request.continuation?.kind === 'after' ? request.continuation.birth : 0;
    const evaluation = startEvaluation(plan, { nowMs: moment.nowMs });
    const rows: Json[] = [];
    let examined = 0;
    for await (const { documents, isLast } of this.#candidates(moment, request, plan, start)) {
      for (const [index, { row, document }] of documents.entries()) {
        examined += 1;
        evaluation.offer(document);
        for (const found of evaluation.takeRows()) rows.push(found);
        // Between documents only, so that a page never ends inside what one document gives.
        if (rows.length < request.maxItemCount && examined < MAX_EXAMINED) continue;
        // Clients take a page without a continuation for the last one, and some count on it.
        return isLast && !givesRows(evaluation, documents, index + 1)
          ? { rows, examined }
          : { rows, examined, continuation: { kind: 'after', birth: row.birth } };
      }
    }
    return { rows, examined };
  }

  /** ORDER BY over documents: each page goes on after the place of the last row of the one before. */
  async #sorted(moment: Moment, request: QueryRequest, plan: QueryPlan): Promise<QueryPage> {
    const last = request.continuation?.kind === 'sorted' ? request.continuation : undefined;
    if (last !== undefined && last.keys.length !== plan.orderBy.length) {
      throw new Refusal('bad-request', 'Invalid Continuation Token');
    }
    const after = last && { keys: last.keys.map(([value]) => value as Json | undefined), document: last.birth };
    const given = last?.rows ?? 0;
    const left = Math.max(0, (plan.top ?? plan.limit ?? Number.POSITIVE_INFINITY) - given);
    const size = Math.min(request.maxItemCount, left);
    const offset = last === undefined ? (plan.offset ?? 0) : 0;
    if (size === 0) return { rows: [], examined: 0 };
    // One row more than fits says that there is another page.
    const page = new OrderedPage(plan, { nowMs: moment.nowMs }, after, offset + size + 1);
    let examined = 0;
    for await (const { documents } of this.#candidates(moment, request, plan, 0)) {
      for (const { row, document } of documents) {
        examined += 1;
        page.offer(document, row.birth);
      }
    }
    const found = page.rows().slice(offset);
    const shown = found.slice(0, size);
    const rows = shown.map(({ row }) => row);
    const end = shown.at(-1);
    if (end === undefined || found.length <= size || size === left) return { rows, examined };
    const keys = end.keys.map((value) => (value === undefined ? [] : [value]));
    return {
      rows,
      examined,
      continuation: { kind: 'sorted', keys, birth: end.document, rows: given + rows.length },
    };
  }

  /** Any other query is evaluated anew for each page, and the page is a piece of its answer. */
  async #whole(moment: Moment, request: QueryRequest, plan: QueryPlan): Promise<QueryPage> {
    const skip = request.continuation?.kind === 'skip' ? request.continuation.rows : 0;
    const rows: Json[] = [];
    let produced = 0;
    const take = (found: readonly Json[]) => {
      for (const row of found) {
        if (produced >= skip && rows.length <= request.maxItemCount) rows.push(row);
        produced += 1;
      }
    };
    const evaluation = startEvaluation(plan, { nowMs: moment.nowMs });
    let examined = 0;
    let wantsMore = plan.readsDocuments;
    if (wantsMore) {
      for await (const { documents } of this.#candidates(moment, request, plan, 0)) {
        for (const { document } of documents) {
          examined += 1;
          wantsMore = evaluation.offer(document);
          take(evaluation.takeRows());
          // One row more than fits says that there is another page.
          wantsMore &&= rows.length <= request.maxItemCount;
          if (!wantsMore) break;
        }
        if (!wantsMore) break;
      }
    }
    if (rows.length <= request.maxItemCount) {
      evaluation.finish();
      take(evaluation.takeRows());
    }
    return rows.length > request.maxItemCount
      ? { rows: rows.slice(0, -1), examined, continuation: { kind: 'skip', rows: skip + request.maxItemCount } }
      : { rows, examined };
  }

  /** Visible documents that the clear columns don't rule out, in order of birth, in batches. */
  async *#candidates(
    { within, marks }: Moment,
    { partitionKey, signal }: QueryRequest,
    { pushdown, needsBody }: QueryPlan,
    afterBirth: number,
  ): AsyncGenerator<Batch> {
    const wanted = (row: ItemRow) =>
      (pushdown.ids === undefined || pushdown.ids.includes(row.id)) &&
      (pushdown.ts?.min === undefined || row.ts >= pushdown.ts.min) &&
      (pushdown.ts?.max === undefined || row.ts <= pushdown.ts.max);
    const decode = async (rows: readonly ItemRow[]) => {
      const found: Candidate[] = [];
      for (const row of rows) {
        if (!wanted(row)) continue;
        const document = needsBody ? await this.#documents.parse(within.state, row) : { id: row.id, _ts: row.ts };
        if (document !== undefined) found.push({ row, document });
      }
      return found;
    };
    // An id within a known partition is a look-up, not a scan.
    if (partitionKey !== undefined && pushdown.ids !== undefined) {
      const rows: ItemRow[] = [];
      for (const id of new Set(pushdown.ids)) {
        const row = await this.#parts.readModel.findItem(within.number, partitionKey, id);
        if (row !== undefined && row.birth > afterBirth && !isExpired(row, marks)) rows.push(row);
      }
      yield { documents: await decode(rows.toSorted((left, right) => left.birth - right.birth)), isLast: true };
      return;
    }
    for (;;) {
      signal?.throwIfAborted();
      const rows = await this.#parts.readModel.scanItems(within.number, {
        partitionKey,
        afterBirth,
        limit: SCAN_SIZE,
        marks,
      });
      const isLast = rows.length < SCAN_SIZE;
      yield { documents: await decode(rows), isLast };
      const last = rows.at(-1);
      if (last === undefined || isLast) return;
      afterBirth = last.birth;
      // Long scans give way, so that they hold no other request.
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

/** Whether any of the documents from `start` gives a row of a streaming query. */
function givesRows(evaluation: Evaluation, documents: readonly Candidate[], start: number): boolean {
  for (let index = start; index < documents.length; index += 1) {
    evaluation.offer(documents[index]!.document);
    if (evaluation.takeRows().length > 0) return true;
  }
  return false;
}

function isUnfiltered({ pushdown }: QueryPlan): boolean {
  return pushdown.ids === undefined && pushdown.ts === undefined && pushdown.paths.length === 0;
}
