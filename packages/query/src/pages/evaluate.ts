import { DOCUMENT_SLOT } from '../compile/compile.ts';
import type { QueryPlan } from '../compile/plan.ts';
import { asQueryError, guardStack } from '../errors.ts';
import { bindSources, drain, groupAttempt, RowCollector } from '../run/execute.ts';
import type { Frame } from '../run/frame.ts';
import type { Program } from '../run/program.ts';
import { BYTES_PER_CHARACTER, bytesOf } from '../values/memory.ts';
import type { Json } from '../values/values.ts';
import { type EvaluationContext, newFrame, type SharedContext } from './context.ts';
import { triedRows } from './trial.ts';

/** Of a row that something else holds as well. */
const REFERENCE_BYTES = 8;

/**
 * The rows of a query over documents, pulled one at a time: no more documents are taken than the rows asked for
 * need. What isn't streaming takes all documents before its first row. Leaving off early closes the documents' iterator.
 * Rows share structure with the documents and must not be changed. Throws a QueryError when a limit is passed.
 *
 * @param plan one that calls no user-defined functions, which are waited for
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

/** The common case, a filter and a projection over the documents themselves, without the machinery of the rest. */
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

/** One plan over the documents it is handed, without those it may be derived from. */
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
  /** Bytes that they are held as: most documents give one row, which is taken at once and does not count. */
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

  /** Takes a row of the document at hand, which another plan has made of it. */
  offerRow(row: Json): boolean {
    if (!this.wantsDocuments) return false;
    this.#frame.slots[DOCUMENT_SLOT] = row;
    return bindSources(this.#program.sources, 0, this.#frame, this.#accept) && this.wantsDocuments;
  }

  /** Offers documents from an index on until one gives rows or no more are wanted; answers the index behind it. */
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
      // Each group has its time, as each document had.
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
 * An evaluation that is handed its documents instead of pulling them, for callers that read them asynchronously or
 * have to let others run in between.
 */
export interface Evaluation {
  /** False: no further document can change the answer, go on with `finishing`. */
  readonly wantsDocuments: boolean;
  /** Rows have come out that were not taken yet. */
  readonly hasRows: boolean;
  /**
   * Takes documents from an index on, up to the first after which there are rows to take or no more documents are
   * wanted. Answers the index behind it. Those of a plan that calls functions are to have been {@link tried} before.
   */
  offer(documents: readonly Json[], start: number): number;
  /** The rows that have come out since the last call; those that need all documents come after `finishing`. */
  takeRows(): Json[];
  /**
   * Says that there are no more documents; pauses where as much may follow as for a document, and where the calls that are
   * missing have to be settled. To be called once.
   */
  finishing(): Generator<void, void, undefined>;
  /** Units of work done beyond those that every document takes. */
  readonly extraWork: number;
}

/** Each step to the next pause with the stack guarded. */
function* guarded(steps: Iterator<void>): Generator<void, void, undefined> {
  while (guardStack(() => steps.next()).done !== true) yield;
}

/** Offers what takes the place of documents when there are no more of these, until no more are wanted. */
function* offering(rows: Iterable<Json | undefined>, offer: (row: Json) => boolean): Generator<void, void, undefined> {
  for (const row of rows) {
    if (row !== undefined && !guardStack(() => offer(row))) break;
    yield;
  }
}

/** Begins an evaluation; its methods throw what `evaluate` throws. */
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
    const { where, sources } = plan.program;
    return !bindSources(sources, 0, frame, () => where !== undefined && !where(frame));
  });
}
