import type { ItemRow } from '@epitaph/projections/read-model-store.ts';
import { documentFilter, type DocumentFilter, type Json, type QueryParameter } from '@epitaph/query';
import { planOptionsOf } from '../plan-options.ts';
import type { FactCache, KnownFacts } from './known-facts.ts';
import type { Run } from './query-run.ts';

/** The properties of a document by which it is filtered. */
interface KnownPart {
  readonly part: Json;
  readonly bytes: number;
}

/**
 * Tells which documents a query's filter excludes, by their properties that an earlier query has read, whatever values
 * these were compared with. Such documents need not be opened.
 */
export class KnownFilter {
  readonly #filter: DocumentFilter;
  readonly #facts: KnownFacts<KnownPart>;
  #used = 0;

  private constructor(filter: DocumentFilter, facts: KnownFacts<KnownPart>) {
    this.#filter = filter;
    this.#facts = facts;
    facts.runBegins();
  }

  /** @returns undefined if the filter needs whole documents or takes long, or if its properties are read for the first time */
  static of({ plan, request, moment, context, isSlow, isFirst }: Run, cache: FactCache): KnownFilter | undefined {
    if (isSlow) return undefined;
    const { state } = moment.within;
    const filter = documentFilter(
      plan,
      request.parameters as readonly QueryParameter[],
      planOptionsOf(state.definition),
      context,
    );
    if (filter === undefined) return undefined;
    const facts = cache.of<KnownPart>(state, `properties ${JSON.stringify(filter.properties)}`, isFirst);
    return facts.asked > 1 ? new KnownFilter(filter, facts) : undefined;
  }

  /** If the filter excludes a document by what is known of it: the part of it that says so. It can stand for the document. */
  excluded({ position }: ItemRow): Json | undefined {
    const known = this.#facts.get(position);
    if (known === undefined) return undefined;
    this.#used += 1;
    return this.#filter.excludes(known.part) ? known.part : undefined;
  }

  /** Remembers the properties of a document that was opened. */
  opened({ position }: ItemRow, document: Json): void {
    if (this.#facts.get(position) !== undefined) return;
    const part = this.#filter.partOf(document);
    if (part !== undefined) this.#facts.keep(position, part);
  }

  /** Must be called at the end of the run. */
  end(isWhole: boolean): void {
    this.#facts.runEnds(isWhole ? this.#used : undefined);
  }
}
