import { createAccumulator } from '../functions/aggregates.ts';
import type { Accumulator } from '../functions/aggregates.ts';
import { BYTES_PER_CHARACTER, bytesOf, type Memory, textBytes } from '../values/memory.ts';
import { BETWEEN_PAUSES, sorting } from '../values/sorting.ts';
import { stableKey } from '../values/values.ts';
import type { Json, Value } from '../values/values.ts';
import { attempted, PENDING, whenReady } from './calls.ts';
import { askTime, boundedIn, type Frame } from './frame.ts';
import { placeAmongOthers } from './place.ts';
import type { Grouping, Program, Source } from './program.ts';
import { Ranking } from './ranking.ts';
import { compareKeys, isLastFirst, Sorter } from './sorter.ts';

/** Takes a row. Returns false if it wants no more rows. */
export type Emit = (row: Json) => boolean;

/** Bytes that a group takes besides its values, including those for sorting. */
const GROUP_BYTES = 270;
/** Bytes of the state of an aggregate that keeps no values. */
const ACCUMULATOR_BYTES = 64;

/** Evaluates, for the group that a frame is bound to, everything that is evaluated after the last row. */
type GroupAttempt = (frame: Frame) => void;

/** How to try groups whose rows call user-defined functions; undefined if they call none. */
export function groupAttempt({ callsFunctions, orderBy, project }: Program): GroupAttempt | undefined {
  if (!callsFunctions) return undefined;
  return (frame) => {
    for (const { run } of orderBy) run(frame);
    project(frame);
  };
}

interface Group {
  readonly keys: readonly Value[];
  readonly accumulators: readonly Accumulator[];
}

/** The groups of GROUP BY, or the single group of aggregates without GROUP BY. */
export class Groups {
  readonly #grouping: Grouping;
  readonly #memory: Memory;
  readonly #groups = new Map<string, Group>();
  /** The single group of aggregates without GROUP BY, which exists even if there are no rows. */
  readonly #only: Group | undefined;

  constructor(grouping: Grouping, memory: Memory) {
    this.#grouping = grouping;
    this.#memory = memory;
    if (grouping.keys.length === 0) this.#only = this.#added('', []);
  }

  /** Adds the row that the frame is bound to. */
  accumulate(frame: Frame): void {
    const { keys, aggregates } = this.#grouping;
    const { accumulators } = this.#only ?? this.#groupOf(keys, frame);
    for (let place = 0; place < aggregates.length; place += 1) {
      accumulators[place]!.add(boundedIn(frame, aggregates[place]!.argument(frame)));
    }
  }

  /** Adds a row by its {@link rowValues}. */
  add(values: readonly Value[]): void {
    const { keys, aggregates } = this.#grouping;
    const { accumulators } = this.#only ?? this.#groupWith(values.slice(0, keys.length));
    for (let place = 0; place < aggregates.length; place += 1) accumulators[place]!.add(values[keys.length + place]);
  }

  /**
   * Binds the frame to one group after the other, in no particular order. Yields the place of each group among the others, or undefined for
   * a pause.
   */
  *bound(frame: Frame, attempt?: GroupAttempt): Generator<readonly Value[] | undefined, void, undefined> {
    for (const group of this.#whenReady(this.#groups.values(), frame, attempt, (one) => one)) {
      if (group !== undefined) this.#bind(frame, group);
      yield group && placeAmongOthers(group.keys);
    }
  }

  /**
   * Does the same in the order of the places. A place depends only on the group's keys, not on its rows. So a caller that continues after a
   * group finds the next one, whatever was removed meanwhile.
   */
  *boundInOrder(frame: Frame, attempt?: GroupAttempt): Generator<readonly Value[] | undefined, void, undefined> {
    const placed: { readonly group: Group; readonly place: readonly Value[] }[] = [];
    for (const group of this.#groups.values()) {
      placed.push({ group, place: placeAmongOthers(group.keys) });
      // Keys may be large.
      yield;
    }
    const inOrder = yield* sorting(placed, (a, b) => compareKeys(a.place, b.place, []));
    for (const one of this.#whenReady(inOrder, frame, attempt, ({ group }) => group)) {
      if (one !== undefined) this.#bind(frame, one.group);
      yield one?.place;
    }
  }

  #whenReady<Item>(
    items: Iterable<Item>,
    frame: Frame,
    attempt: GroupAttempt | undefined,
    groupOf: (item: Item) => Group,
  ): Iterable<Item | undefined> {
    if (attempt === undefined) return items;
    const trial = { ...frame, slots: [], work: frame.work.another() };
    return whenReady(frame.calls!, [...items], (item) => {
      trial.work.beginDocument();
      this.#bind(trial, groupOf(item));
      attempt(trial);
    });
  }

  #bind(frame: Frame, { keys, accumulators }: Group): void {
    this.#grouping.keys.forEach(({ index }, at) => {
      frame.groupKeys[index] = keys[at];
    });
    this.#grouping.aggregates.forEach(({ index }, at) => {
      frame.aggregates[index] = accumulators[at]?.result();
    });
  }

  #groupOf(keys: Grouping['keys'], frame: Frame): Group {
    return this.#groupWith(groupKeys(keys, frame));
  }

  #groupWith(values: readonly Value[]): Group {
    const text = values.length === 1 ? stableKey(values[0]) : values.map(stableKey).join(',');
    return this.#groups.get(text) ?? this.#added(text, values);
  }

  #added(text: string, keys: readonly Value[]): Group {
    const { aggregates } = this.#grouping;
    this.#memory.hold(GROUP_BYTES + textBytes(text) + bytesOf(keys as Json[]) + ACCUMULATOR_BYTES * aggregates.length);
    const accumulators = aggregates.map(({ name }) => createAccumulator(name, this.#memory));
    const group = { keys, accumulators };
    this.#groups.set(text, group);
    return group;
  }
}

function groupKeys(keys: Grouping['keys'], frame: Frame): Value[] {
  const values = keys.map(({ run }) => {
    const value = run(frame);
    askTime(frame, value);
    return value;
  });
  boundedIn(frame, values as Json[]);
  return values;
}

/** The values by which {@link Groups} take the row that the frame is bound to: those of GROUP BY, and the arguments of the aggregates. */
export function rowValues({ keys, aggregates }: Grouping, frame: Frame): Value[] {
  const values = groupKeys(keys, frame);
  for (const { name, argument } of aggregates) {
    const value = boundedIn(frame, argument(frame));
    // COUNT(c) counts documents, but needs none of their content.
    values.push(name === 'COUNT' && value !== undefined ? true : value);
  }
  return values;
}

/**
 * Calls `onBinding` for every combination of the sources' values; the last source changes fastest. Returns false if `onBinding` wanted no
 * more.
 */
export function bindSources(
  sources: readonly Source[],
  index: number,
  frame: Frame,
  onBinding: () => boolean,
): boolean {
  const source = sources[index];
  if (source === undefined) return onBinding();
  if (source.onlyIf !== undefined && !source.onlyIf(frame)) return true;
  const bind = (value: Json): boolean => {
    frame.work.step();
    frame.slots[source.slot] = value;
    return bindSources(sources, index + 1, frame, onBinding);
  };
  const bindAll = (value: Value): boolean => {
    if (value === undefined) return true;
    if (!source.iterates) return bind(value);
    return !Array.isArray(value) || value.every(bind);
  };
  return source.kind === 'path' ? bindAll(source.run(frame)) : runSource(source.program, frame, bindAll);
}

/** Whether the document that the frame is bound to satisfies WHERE, with any combination of the sources' values. */
export const satisfies = ({ sources, where }: Program, frame: Frame): boolean =>
  !bindSources(sources, 0, frame, () => where !== undefined && !where(frame));

/** Runs a query in FROM. If its rows are pending, everything else is still tried. */
function runSource(program: Program, frame: Frame, emit: Emit): boolean {
  if (!program.callsFunctions) return runProgram(program, frame, emit);
  return attempted((within: Frame) => runProgram(program, within, emit), true)(frame);
}

/** Runs all steps without pauses. */
export function drain(steps: Iterator<void>): void {
  while (steps.next().done !== true);
}

/** Runs a subquery in the frame of the query around it. Returns false if `emit` wanted no more rows. */
export function runProgram(program: Program, frame: Frame, emit: Emit): boolean {
  const { memory, calls } = frame;
  const { heldBytes } = memory;
  const misses = program.callsFunctions ? calls!.misses : undefined;
  let wanted = true;
  const collector = new RowCollector(program, frame, (row) => {
    wanted = emit(row);
    return wanted;
  });
  try {
    if (collector.wantsRows) bindSources(program.sources, 0, frame, () => collector.accept());
    // If rows are pending, an aggregate over the others would be wrong.
    if (misses !== undefined && calls!.misses > misses) throw PENDING;
    drain(collector.finishing());
    if (misses !== undefined && calls!.misses > misses) throw PENDING;
  } finally {
    memory.releaseTo(heldBytes);
  }
  return wanted;
}

/** Processes rows whose aliases are bound: WHERE, groups, order, projection, DISTINCT, OFFSET and LIMIT. */
export class RowCollector {
  readonly #program: Program;
  readonly #frame: Frame;
  readonly #emit: Emit;
  readonly #groups: Groups | undefined;
  readonly #sorter: Sorter<Json> | undefined;
  readonly #ranking: Ranking<Json> | undefined;
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
    if (program.rank !== undefined) this.#ranking = new Ranking(program.rank, frame.memory);
    if (program.orderBy.length > 0 || (program.distinct && program.grouping !== undefined)) {
      // With DISTINCT the heap has no limit: rows that are dropped later must not push out others.
      const capacity = program.distinct ? Number.POSITIVE_INFINITY : this.#toSkip + this.#toEmit;
      this.#sorter = new Sorter(program.orderBy, capacity, frame.memory, isLastFirst(program));
    }
    if (program.grouping !== undefined) this.#groups = new Groups(program.grouping, frame.memory);
  }

  /** False once no further row can change the answer. */
  get wantsRows(): boolean {
    return this.#toEmit > 0;
  }

  /** Takes the row that the frame is bound to. Returns false if no more rows are wanted. */
  accept(): boolean {
    const { where, weight } = this.#program;
    this.#frame.work.addRow(weight);
    if (this.#ranking !== undefined) return this.#rank(this.#ranking);
    if (where !== undefined) {
      const { made } = this.#frame.work;
      const isWanted = where(this.#frame);
      this.#frame.work.keepOf(made, 0);
      if (!isWanted) return true;
    }
    if (this.#groups === undefined) return this.#order();
    this.#groups.accumulate(this.#frame);
    return true;
  }

  /**
   * Emits the rows that could not be emitted before the last row was seen. Pauses before each group, and from time to time.
   *
   * @param attempt given by an outermost query; a subquery is tried as part of the query around it
   */
  *finishing(attempt?: GroupAttempt): Generator<void, void, undefined> {
    for (const place of this.#placed(attempt)) {
      yield;
      if (place === undefined) continue;
      this.#frame.work.addRow(this.#program.weight);
      if (!this.#order(place)) break;
    }
    const sorted = this.#sorter?.sorted() ?? this.#ranking?.sorted();
    if (sorted === undefined) return;
    let delivered = 0;
    for (const row of yield* sorted) {
      if (!this.deliver(row)) return;
      delivered += 1;
      // DISTINCT reads whole rows, which may be large.
      if (this.#seen !== undefined || (delivered & (BETWEEN_PAUSES - 1)) === 0) yield;
    }
  }

  #placed(attempt: GroupAttempt | undefined): Iterable<readonly Value[] | undefined> {
    if (this.#groups === undefined) return [];
    return this.#sorter === undefined
      ? this.#groups.boundInOrder(this.#frame, attempt)
      : this.#groups.bound(this.#frame, attempt);
  }

  #rank(ranking: Ranking<Json>): boolean {
    const frame = this.#frame;
    const { where, project } = this.#program;
    const facts = ranking.observe(frame);
    if (where !== undefined && !where(frame)) return true;
    const row = project(frame);
    if (row !== undefined) ranking.add(facts, row, bytesOf(row));
    return true;
  }

  /** @param group the place, among the other groups, of the group that the frame is bound to */
  #order(group: readonly Value[] = []): boolean {
    const frame = this.#frame;
    const { orderBy, distinct, project } = this.#program;
    if (this.#sorter === undefined) return this.deliver(project(frame));
    const keys = orderBy.map(({ run }) => run(frame));
    if (distinct) {
      const row = project(frame);
      if (row !== undefined) this.#keep([...keys, ...placeAmongOthers([row])], row);
      return true;
    }
    keys.push(...group);
    if (this.#sorter.keeps(keys)) {
      const row = project(frame);
      if (row !== undefined) this.#keep(keys, row);
    }
    return true;
  }

  #keep(keys: readonly Value[], row: Json): void {
    this.#frame.work.lookThrough(this.#sorter!.add(keys, row, bytesOf(row)) / BYTES_PER_CHARACTER);
  }

  /** Takes a row that was made. Returns false if no more rows are wanted. */
  deliver(row: Value): boolean {
    if (this.#toEmit <= 0) return false;
    if (row === undefined) return true;
    if (this.#seen !== undefined) {
      const key = stableKey(row);
      this.#frame.work.lookThrough(key.length);
      if (this.#seen.has(key)) return true;
      this.#frame.memory.hold(textBytes(key));
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
