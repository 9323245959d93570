import { DOCUMENT_SLOT } from '../compile/compile.ts';
import type { QueryPlan } from '../compile/plan.ts';
import { asQueryError, guardStack } from '../errors.ts';
import { bindSources, drain, groupAttempt, RowCollector, satisfies } from '../run/execute.ts';
import type { Frame } from '../run/frame.ts';
import type { Program } from '../run/program.ts';
import { BYTES_PER_CHARACTER, bytesOf } from '../values/memory.ts';
import type { Json } from '../values/values.ts';
import { type EvaluationContext, newFrame, type SharedContext } from './context.ts';
import { triedRows } from './trial.ts';

/** Size of a row that something else holds as well. */
const REFERENCE_BYTES = 8;

/**
 * Yields the rows of a query over documents. Only as many documents are read as the requested rows need; a plan that isn't streaming reads
 * all documents before its first row. If the caller stops early, the documents' iterator is closed. Rows share objects with the documents
 * and must not be changed. Throws a QueryError if a limit is exceeded.
 *
 * @param plan must not call user-defined functions, which are asynchronous
 */
export function* evaluate(
  plan: QueryPlan,
  documents: Iterable<Json>,
  context: EvaluationContext = {},
): Generator<Json, void, undefined> {
  if (plan.callsFunctions) throw new Error('Evaluations that call functions are started with startEvaluation.');
  const input = plan.derivedFrom === undefined ? documents : evaluate(plan.derivedFrom, documents, context);
  const rows =
    plan.streaming && plan.program.sources.length === 0
      ? filterAndProject(plan, input, newFrame(context))
      : collect(plan, input, newFrame(context));
  try {
    yield* rows;
  } catch (error) {
    throw asQueryError(error);
  }
}

/** A fast path for the common case: a filter and a projection over the documents themselves. */
function* filterAndProject(
  { program: { where, project } }: QueryPlan,
  documents: Iterable<Json>,
  frame: Frame,
): Generator<Json, void, undefined> {
  for (const document of documents) {
    frame.slots[DOCUMENT_SLOT] = document;
    frame.work.beginDocument();
    if (where !== undefined && !where(frame)) continue;
    const row = project(frame);
    if (row !== undefined) yield row;
  }
}

function* collect(plan: QueryPlan, documents: Iterable<Json>, frame: Frame): Generator<Json, void, undefined> {
  const run = new ProgramRun(plan, frame);
  if (!plan.readsDocuments) run.offer(null);
  else if (run.wantsDocuments) {
    for (const document of documents) {
      const wantsMore = run.offer(document);
      if (run.hasRows) yield* run.takeRows();
      if (!wantsMore) break;
    }
  }
  drain(run.finishing());
  yield* run.takeRows();
}

/** A run of one plan over the documents that it is given. Plans of queries in FROM have runs of their own. */
class ProgramRun {
  readonly #program: Program;
  readonly #frame: Frame;
  readonly #collector: RowCollector;
  readonly #accept = (): boolean => {
    const { work } = this.#frame;
    const { made } = work;
    const wantsMore = this.#collector.accept();
    work.keepOf(made, 0);
    return wantsMore;
  };
  #rows: Json[] = [];
  /** The bytes of these rows. A single row of a document, as most have, is taken at once and does not count. */
  #heldBytes = 0;
  #isFinishing = false;

  constructor({ program }: QueryPlan, frame: Frame) {
    this.#program = program;
    this.#frame = frame;
    this.#collector = new RowCollector(program, frame, (row) => {
      if (this.#rows.length > 0) {
        const bytes = this.#isFinishing ? REFERENCE_BYTES : bytesOf(row);
        frame.work.lookThrough(bytes / BYTES_PER_CHARACTER);
        this.#heldBytes += frame.memory.hold(bytes);
      }
      this.#rows.push(row);
      return true;
    });
  }

  get wantsDocuments(): boolean {
    return this.#collector.wantsRows;
  }

  get hasRows(): boolean {
    return this.#rows.length > 0;
  }

  offer(document: Json): boolean {
    this.#frame.work.beginDocument();
    return this.offerRow(document);
  }

  /** Takes a row of the current document, which another plan has made. */
  offerRow(row: Json): boolean {
    if (!this.wantsDocuments) return false;
    this.#frame.slots[DOCUMENT_SLOT] = row;
    return bindSources(this.#program.sources, 0, this.#frame, this.#accept) && this.wantsDocuments;
  }

  /** Takes a row that the program would make. */
  deliver(row: Json): void {
    this.#collector.deliver(row);
  }

  /** Offers documents from an index on, until one gives rows or no more are wanted. Returns the index after it. */
  offerSome(documents: readonly Json[], start: number): number {
    let index = start;
    while (index < documents.length && this.wantsDocuments && this.#rows.length === 0) {
      this.offer(documents[index]!);
      index += 1;
    }
    return index;
  }

  *finishing(): Generator<void, void, undefined> {
    this.#isFinishing = true;
    for (const _ of this.#collector.finishing(groupAttempt(this.#program))) {
      yield;
      // Each group has its own time limit, as each document has.
      this.#frame.work.beginDocument();
    }
  }

  takeRows(): Json[] {
    const rows = this.#rows;
    this.#frame.memory.release(this.#heldBytes);
    this.#heldBytes = 0;
    this.#rows = [];
    return rows;
  }
}

/**
 * An evaluation to which the caller offers the documents, for callers that read documents asynchronously or must yield to other work in
 * between.
 */
export interface Evaluation {
  /** False if no further document can change the answer. Then continue with `finishing`. */
  readonly wantsDocuments: boolean;
  /** Whether there are rows that were not taken yet. */
  readonly hasRows: boolean;
  /**
   * Takes documents from an index on, until there are rows to take or no more documents are wanted. Returns the index after the last one
   * taken. If the plan calls functions, the documents must have been {@link tried} before.
   */
  offer(documents: readonly Json[], start: number): number;
  /** Takes a row of a document, instead of the document. Only for a plan whose rows are made as documents are offered. */
  offerRow(row: Json): void;
  /** The rows since the last call. Rows that need all documents come after `finishing`. */
  takeRows(): Json[];
  /**
   * Must be called once, after the last document. It pauses before work that may take as long as a document, and whenever missing calls
   * must be settled.
   */
  finishing(): Generator<void, void, undefined>;
  /** The units of work beyond those that are free for each document. */
  readonly extraWork: number;
}

/** Runs the steps between pauses, each guarded against an overflow of the stack. */
function* guarded(steps: Iterator<void>): Generator<void, void, undefined> {
  while (guardStack(() => steps.next()).done !== true) yield;
}

/** After the last document: offers rows that replace documents, until no more are wanted. */
function* offering(rows: Iterable<Json | undefined>, offer: (row: Json) => boolean): Generator<void, void, undefined> {
  for (const row of rows) {
    if (row !== undefined && !guardStack(() => offer(row))) break;
    yield;
  }
}

/** Begins an evaluation. Its methods throw the same errors as `evaluate`. */
export function startEvaluation(plan: QueryPlan, context: SharedContext = {}): Evaluation {
  const frame = newFrame(context);
  const { work } = frame;
  const run = new ProgramRun(plan, frame);
  if (plan.derivedFrom === undefined) {
    const isOne = !plan.readsDocuments;
    if (isOne && !plan.callsFunctions) guardStack(() => run.offer(null));
    return {
      get wantsDocuments() {
        return plan.readsDocuments && run.wantsDocuments;
      },
      get hasRows() {
        return run.hasRows;
      },
      offer: (documents, start) => (plan.readsDocuments ? guardStack(() => run.offerSome(documents, start)) : start),
      offerRow: (row) => run.deliver(row),
      takeRows: () => run.takeRows(),
      *finishing() {
        if (isOne && plan.callsFunctions) yield* offering(triedRows(plan, context, [null]), (row) => run.offer(row));
        yield* guarded(run.finishing());
      },
      get extraWork() {
        return work.extra;
      },
    };
  }
  const inner = startEvaluation(plan.derivedFrom, { ...context, work });
  const pass = (): void => {
    if (inner.hasRows) guardStack(() => inner.takeRows().every((row) => run.offerRow(row)));
  };
  const wantsDocuments = (): boolean => inner.wantsDocuments && run.wantsDocuments;
  return {
    get wantsDocuments() {
      return wantsDocuments();
    },
    get hasRows() {
      return run.hasRows;
    },
    offer: (documents, start) => {
      let index = start;
      while (index < documents.length && wantsDocuments() && !run.hasRows) {
        index = inner.offer(documents, index);
        pass();
      }
      return index;
    },
    offerRow: (row) => run.deliver(row),
    takeRows: () => run.takeRows(),
    *finishing() {
      yield* inner.finishing();
      yield* offering(triedRows(plan, context, inner.takeRows()), (row) => run.offer(row));
      yield* guarded(run.finishing());
    },
    get extraWork() {
      return work.extra;
    },
  };
}

/** Whether a document satisfies the plan's WHERE, for the condition of a patch. */
export function matches(plan: QueryPlan, document: Json, context: EvaluationContext = {}): boolean {
  return guardStack(() => {
    const frame = newFrame(context);
    frame.slots[DOCUMENT_SLOT] = document;
    return satisfies(plan.program, frame);
  });
}
