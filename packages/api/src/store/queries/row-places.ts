import type { ItemRow } from '@epitaph/projections/read-model-store.ts';
import { DocumentPlaces, type Json, type RowPlace } from '@epitaph/query';
import { Stub } from './candidates.ts';
import type { KnownOrder } from './known-facts.ts';
import type { Run } from './query-run.ts';

/** The places of the rows of documents, for one run of a query: those that are known, and others that it finds and keeps. */
export class RowPlaces {
  /** How many documents' places were known. */
  used = 0;
  readonly #run: Run;
  readonly #order: KnownOrder;
  readonly #found: DocumentPlaces;

  constructor(run: Run, order: KnownOrder) {
    this.#run = run;
    this.#order = order;
    this.#found = new DocumentPlaces(run.plan, run.context);
  }

  /** The units of work beyond those that are free for each document. */
  get extraWork(): number {
    return this.#found.extraWork;
  }

  /**
   * Calls `take` with the place of each row of a document, and counts the document as examined if its places were not
   * known. A first page is charged as if none were, so that its charge does not depend on what others have asked.
   */
  each(row: ItemRow, document: Json, take: (place: RowPlace) => void): void {
    const run = this.#run;
    const known = this.#order.get(row.position);
    if (known !== undefined) {
      this.used += 1;
      if (run.isFirst) {
        run.examined += 1;
        run.extraWork += known.extraWork;
      }
      for (const place of known.rows) take(place);
      return;
    }
    // Erased since its places were known.
    if (Stub.rowOf(document) !== undefined) return;
    run.examined += 1;
    const places = this.#found.of(document, take);
    if (places !== undefined) this.#order.keep(row.position, places);
  }
}
