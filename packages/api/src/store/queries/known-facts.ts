import { hash } from 'node:crypto';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { FoundPlaces } from '@epitaph/query';
import { inThisHeap } from '../heap.ts';

/** Bytes of all known facts. */
const MOST_BYTES = inThisHeap(32 * 1024 * 1024);
/** Most are empty: of questions that were asked once. */
const MOST_QUESTIONS = 64;

/** Bytes of an entry, besides its fact. */
const ENTRY_BYTES = 96;

/** What is known of a version of an item. */
interface Fact {
  /** The approximate bytes that it takes in memory. */
  readonly bytes: number;
}

const bytesOfEntry = ({ bytes }: Fact): number => ENTRY_BYTES + bytes;

/**
 * What one question has found out about some versions of items, by the positions of the versions. A fact depends on
 * nothing but the version, so it stays valid whatever is written.
 */
export class KnownFacts<Kind extends Fact> {
  readonly definition: ContainerDefinition;
  /** How many queries have asked the question. Further pages of a query don't count. */
  asked = 0;
  bytes = 0;
  /** Whether there was no room for some facts, while many of those that are kept are of versions that were replaced. */
  isStale = false;
  #isFull = false;
  readonly #facts = new Map<number, Kind>();
  #runs = 0;
  /** Positions that were erased during a run, which may have read their content before. */
  readonly #erased = new Set<number>();
  readonly #makeRoom: (facts: { readonly bytes: number }, bytes: number) => boolean;

  /** @param makeRoom returns whether there is room for so many bytes more */
  constructor(
    definition: ContainerDefinition,
    makeRoom: (facts: { readonly bytes: number }, bytes: number) => boolean,
  ) {
    this.definition = definition;
    this.#makeRoom = makeRoom;
  }

  get(position: number): Kind | undefined {
    return this.#facts.get(position);
  }

  /** Keeps a fact if there is room for it. */
  keep(position: number, fact: Kind): void {
    // Another run may have kept the same.
    if (this.#erased.has(position) || this.#facts.has(position)) return;
    const bytes = bytesOfEntry(fact);
    if (!this.#makeRoom(this, bytes)) {
      this.#isFull = true;
      return;
    }
    this.#facts.set(position, fact);
    this.bytes += bytes;
  }

  erased(positions: readonly number[]): void {
    for (const position of positions) {
      const fact = this.#facts.get(position);
      if (fact !== undefined) this.bytes -= bytesOfEntry(fact);
      this.#facts.delete(position);
      if (this.#runs > 0) this.#erased.add(position);
    }
  }

  /** Must be called before a run reads content that it may keep. */
  runBegins(): void {
    this.#runs += 1;
  }

  /** @param used how many of the facts the run used; undefined if it was broken off */
  runEnds(used: number | undefined): void {
    if (this.#isFull && used !== undefined && used < this.#facts.size / 2) this.isStale = true;
    this.#runs -= 1;
    if (this.#runs === 0) this.#erased.clear();
  }
}

/** What is known of the order of one query's rows: the places of the rows of some documents. */
export type KnownOrder = KnownFacts<FoundPlaces>;

/**
 * Remembers facts of documents from one page of a query to the next, and from one query to another. Otherwise all
 * documents would be opened again to find out which rows come next, or which documents a filter selects.
 *
 * The facts are content. So whatever is erased must be erased here too.
 */
export class FactCache {
  /** By the question; the least recently used first. */
  readonly #byQuestion = new Map<string, KnownFacts<Fact>>();

  /**
   * What is known from a question about documents of a container; nothing if it is asked for the first time.
   *
   * @param question a text that determines what the facts are
   * @param isFirst whether the first page of a query asks
   */
  of<Kind extends Fact>({ rid, definition }: ContainerState, question: string, isFirst: boolean): KnownFacts<Kind> {
    const key = hash('sha256', `${rid} ${question}`);
    const known = this.#byQuestion.get(key);
    // A definition may have computed properties, so another one has other facts.
    const facts = known?.definition === definition && !known.isStale ? known : this.#none(definition);
    this.#byQuestion.delete(key);
    this.#byQuestion.set(key, facts);
    if (isFirst) facts.asked += 1;
    if (this.#byQuestion.size > MOST_QUESTIONS) this.#forgetOther(facts);
    return facts as KnownFacts<Kind>;
  }

  /** @param positions of the erased versions; undefined if they are unknown */
  erased(positions: readonly number[] | undefined): void {
    if (positions === undefined) this.#byQuestion.clear();
    else for (const facts of this.#byQuestion.values()) facts.erased(positions);
  }

  #none(definition: ContainerDefinition): KnownFacts<Fact> {
    return new KnownFacts<Fact>(definition, (facts, bytes) => {
      while (facts.bytes + this.#bytesBeside(facts) + bytes > MOST_BYTES) if (!this.#forgetOther(facts)) return false;
      return true;
    });
  }

  #bytesBeside(facts: object): number {
    let sum = 0;
    for (const other of this.#byQuestion.values()) if (other !== facts) sum += other.bytes;
    return sum;
  }

  /** Forgets the least recently used facts besides the given ones. Returns false if there are none. */
  #forgetOther(facts: object): boolean {
    for (const [key, other] of this.#byQuestion) if (other !== facts) return this.#byQuestion.delete(key);
    return false;
  }
}
