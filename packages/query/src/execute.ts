import { createAccumulator, tooManyRows } from './aggregates.ts';
import type { Accumulator } from './aggregates.ts';
import { queryError } from './errors.ts';
import type { Frame } from './frame.ts';
import type { Grouping, Program, Source } from './program.ts';
import { Ranking } from './ranking.ts';
import { isLastFirst, Sorter } from './sorter.ts';
import { stableKey } from './values.ts';
import type { Json, Value } from './values.ts';

/** Takes a row; answers false when it wants no more. */
export type Emit = (row: Json) => boolean;

interface Group {
  readonly keys: readonly Value[];
  readonly accumulators: readonly Accumulator[];
}

function takeStep(frame: Frame): void {
  frame.stepsLeft -= 1;
  if (frame.stepsLeft < 0) {
    throw queryError(
      'tooComplex',
      'The query iterates over too many array elements of one document. Filter inside the JOIN, or join fewer arrays.',
    );
  }
}

/**
 * Calls `onBinding` for every combination of the sources' values, the last source fastest. Answers false when
 * `onBinding` wanted no more.
 */
export function bindSources(
  sources: readonly Source[],
  index: number,
  frame: Frame,
  onBinding: () => boolean,
): boolean {
  const source = sources[index];
  if (source === undefined) return onBinding();
  const bind = (value: Json): boolean => {
    takeStep(frame);
    frame.slots[source.slot] = value;
    return bindSources(sources, index + 1, frame, onBinding);
  };
  const bindAll = (value: Value): boolean => {
    if (value === undefined) return true;
    if (!source.iterates) return bind(value);
    return !Array.isArray(value) || value.every(bind);
  };
  return source.kind === 'path' ? bindAll(source.run(frame)) : runProgram(source.program, frame, bindAll);
}

/** Runs a subquery in the frame of the query around it. Answers false when `emit` wanted no more. */
export function runProgram(program: Program, frame: Frame, emit: Emit): boolean {
  let wanted = true;
  const collector = new RowCollector(program, frame, (row) => {
    wanted = emit(row);
    return wanted;
  });
  if (collector.wantsRows) bindSources(program.sources, 0, frame, () => collector.accept());
  collector.finish();
  return wanted;
}

/** What happens to a row once its aliases are bound: WHERE, groups, order, projection, DISTINCT, OFFSET and LIMIT. */
export class RowCollector {
  readonly #program: Program;
  readonly #frame: Frame;
  readonly #emit: Emit;
  readonly #groups: Map<string, Group> | undefined;
  /** The one group of aggregates without GROUP BY. */
  readonly #only: Group | undefined;
  readonly #sorter: Sorter<Json> | undefined;
  readonly #ranking: Ranking | undefined;
  readonly #seen: Set<string> | undefined;
  #toSkip: number;
  #toEmit: number;

  constructor(program: Program, frame: Frame, emit: Emit) {
    this.#program = program;
    this.#frame = frame;
    this.#emit = emit;
    this.#toSkip = program.offset;
    this.#toEmit = program.limit ?? Number.POSITIVE_INFINITY;
    this.#seen = program.distinct ? new Set() : undefined;
    if (program.rank !== undefined) this.#ranking = new Ranking(program.rank, frame.maxBufferedRows);
    if (program.orderBy.length > 0) {
      // Rows that DISTINCT drops later must not push others out of the heap.
      const capacity = program.distinct ? Number.POSITIVE_INFINITY : this.#toSkip + this.#toEmit;
      this.#sorter = new Sorter(program.orderBy, capacity, frame.maxBufferedRows, isLastFirst(program));
    }
    if (program.grouping !== undefined) {
      this.#groups = new Map();
      // Without GROUP BY there is one group, and it exists even when there are no rows.
      if (program.grouping.keys.length === 0) this.#only = this.#group('', []);
    }
  }

  /** False once no further row can change the answer. */
  get wantsRows(): boolean {
    return this.#toEmit > 0;
  }

  /** Takes the row that the frame is bound to. Answers false when no more rows are wanted. */
  accept(): boolean {
    const { where, grouping } = this.#program;
    if (this.#ranking !== undefined) return this.#rank(this.#ranking);
    if (where !== undefined && !where(this.#frame)) return true;
    if (grouping === undefined) return this.#order();
    this.#accumulate(grouping);
    return true;
  }

  /** Emits what could not be emitted before the last row was seen. */
  finish(): void {
    const frame = this.#frame;
    if (this.#groups !== undefined) {
      for (const group of this.#groups.values()) {
        this.#program.grouping?.keys.forEach(({ index }, place) => {
          frame.groupKeys[index] = group.keys[place];
        });
        this.#program.grouping?.aggregates.forEach(({ index }, place) => {
          frame.aggregates[index] = group.accumulators[place]?.result();
        });
        if (!this.#order()) return;
      }
    }
    for (const row of this.#sorter?.sorted() ?? this.#ranking?.sorted() ?? []) {
      if (!this.#deliver(row)) return;
    }
  }

  #rank(ranking: Ranking): boolean {
    const frame = this.#frame;
    const { where, project } = this.#program;
    const facts = ranking.observe(frame);
    if (where !== undefined && !where(frame)) return true;
    const row = project(frame);
    if (row !== undefined) ranking.add(facts, row);
    return true;
  }

  #accumulate({ keys, aggregates }: Grouping): void {
    const { accumulators } = this.#only ?? this.#groupOf(keys);
    for (let place = 0; place < aggregates.length; place += 1) {
      accumulators[place]!.add(aggregates[place]!.argument(this.#frame));
    }
  }

  #groupOf(keys: Grouping['keys']): Group {
    const values = keys.map(({ run }) => run(this.#frame));
    const text = values.length === 1 ? stableKey(values[0]) : values.map(stableKey).join(',');
    return this.#groups?.get(text) ?? this.#group(text, values);
  }

  #group(text: string, keys: readonly Value[]): Group {
    const { maxBufferedRows } = this.#frame;
    if ((this.#groups?.size ?? 0) >= maxBufferedRows) throw tooManyRows(maxBufferedRows);
    const accumulators =
      this.#program.grouping?.aggregates.map(({ name }) => createAccumulator(name, maxBufferedRows)) ?? [];
    const group = { keys, accumulators };
    this.#groups?.set(text, group);
    return group;
  }

  #order(): boolean {
    const frame = this.#frame;
    if (this.#sorter === undefined) return this.#deliver(this.#program.project(frame));
    const keys = this.#program.orderBy.map(({ run }) => run(frame));
    if (this.#sorter.keeps(keys)) {
      const row = this.#program.project(frame);
      if (row !== undefined) this.#sorter.add(keys, row);
    }
    return true;
  }

  #deliver(row: Value): boolean {
    if (this.#toEmit <= 0) return false;
    if (row === undefined) return true;
    if (this.#seen !== undefined) {
      const key = stableKey(row);
      if (this.#seen.has(key)) return true;
      if (this.#seen.size >= this.#frame.maxBufferedRows) {
        throw tooManyRows(this.#frame.maxBufferedRows);
      }
      this.#seen.add(key);
    }
    if (this.#toSkip > 0) {
      this.#toSkip -= 1;
      return true;
    }
    this.#toEmit -= 1;
    return this.#emit(row) && this.#toEmit > 0;
  }
}
