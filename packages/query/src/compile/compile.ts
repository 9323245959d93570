import { queryError, type SourceLocation } from '../errors.ts';
import { isAggregate } from '../functions/aggregates.ts';
import type { BuiltIn } from '../functions/builtin.ts';
import { clockFunctions } from '../functions/clock.ts';
import { builtIns, planarBuiltIns } from '../functions/index.ts';
import type { Expression, FromSource, Query, RowCount } from '../language/ast.ts';
import { hasAggregate, isPart, nameOf, policyPath } from '../language/expression-facts.ts';
import { parseQuery } from '../language/parser.ts';
import { printExpression } from '../language/print.ts';
import { attempted } from '../run/calls.ts';
import { askTimeToCompare, assertTime, boundedIn, type Compiled, type CompiledTest, type Frame } from '../run/frame.ts';
import { computed, constant, node, type Node, timedNode } from '../run/node.ts';
import type { AggregateStep, Grouping, Program, Source } from '../run/program.ts';
import { compileLike } from '../values/like.ts';
import { equalValues, isNumeric, isObject, type Value } from '../values/values.ts';
import { buildArray, callingObjectBuilder, objectBuilder, withoutNonFinite } from './builders.ts';
import { checkArguments, compileCall, compileUserCall } from './call.ts';
import { allOf, compileBinary, compileLogical, compileUnary, decided, isPlainScalar } from './operators.ts';
import { propertyReader, readMember, slotPropertyReader } from './paths.ts';
import { conjuncts } from './pushdown.ts';
import { compileRank, isVectorDistance } from './rank.ts';
import { groupKeyOf, Scope } from './scope.ts';
import { subqueryRunner, withNegatedFilter } from './subquery.ts';

/** The largest count of rows that clients can represent: the .NET client fails at a plan with more. */
export const MAX_ROW_COUNT = 2_147_483_647;

/** One entry of a container's vector policy. */
export interface VectorEmbedding {
  /** The path as in the policy: `/a/b`. */
  readonly path: string;
  readonly distanceFunction: string;
}

/** A computed property of a container's documents. Its value is the result of a query: `SELECT VALUE LOWER(c.name) FROM c`. */
export interface ComputedProperty {
  readonly name: string;
  readonly query: string;
}

/** A compiled computed property, which reads its document from a slot. */
interface ComputedRun {
  readonly slot: number;
  readonly run: Compiled;
  readonly weight: number;
}

/** The slot of the documents that the caller offers. */
export const DOCUMENT_SLOT = 0;

/** How many calls of user-defined functions the text of a query may have. Cosmos DB allows ten. */
const MOST_USER_CALLS = 100;

/** The time spent on the document is checked after this many steps of matching. */
const MANY_COMPARISONS = 16 * 1024;

/** Compiles the syntax tree of one query to closures, with parameters bound and all names resolved. */
export class Compiler {
  readonly #parameters: ReadonlyMap<string, Value>;
  readonly #vectorEmbeddings: readonly VectorEmbedding[];
  readonly #isPlanar: boolean;
  readonly #needsParameters: boolean;
  /** The names of user-defined functions that may be called; undefined if none may. */
  readonly #userFunctions: ReadonlySet<string> | undefined;
  /** The queries of computed properties by their names. */
  readonly #computed: ReadonlyMap<string, string>;
  /** The compiled computed properties that the query reads. Each is compiled once, since a query may read it thousands of times. */
  readonly #computedRuns = new Map<string, ComputedRun>();
  /** Slots that hold a whole document: a subquery may give it another name. */
  readonly #documentSlots = new Set([DOCUMENT_SLOT]);
  /** Slots that computed properties read the document from. */
  readonly #computedSlots = new Set<number>();
  /** True while a computed property is compiled, which can't read another. */
  #insideComputed = false;
  /** The highest slot that was read since this was last reset. */
  #highestSlot = 0;
  /** Whether an expression was compiled, since this was last reset, that may have a different value for each row. */
  #variesByRow = false;
  /** The number of compiled calls of user-defined functions. */
  userCalls = 0;
  /** The first compiled call of a function whose value changes from one call to the next. */
  changing: { readonly name: string; readonly at: SourceLocation } | undefined;
  /** Whether a function of the current time was compiled. */
  readsClock = false;
  /** Whether a row may contain a number that JSON can't represent. */
  #hasNonFinite = false;
  /** Top-level properties of the documents that the query reads; undefined once it reads whole documents. */
  documentProperties: Set<string> | undefined = new Set();
  #slotCount = DOCUMENT_SLOT + 1;
  #aggregateCount = 0;
  #groupKeyCount = 0;
  /** The number of expressions compiled for the current query or subquery. It excludes those whose number does not affect the time. */
  #weight = 0;

  constructor(
    parameters: ReadonlyMap<string, Value>,
    vectorEmbeddings: readonly VectorEmbedding[],
    computed: ReadonlyMap<string, string>,
    {
      isPlanar,
      needsParameters,
      userFunctions,
    }: {
      readonly isPlanar: boolean;
      readonly needsParameters: boolean;
      readonly userFunctions: ReadonlySet<string> | undefined;
    },
  ) {
    this.#userFunctions = userFunctions;
    this.#isPlanar = isPlanar;
    this.#needsParameters = needsParameters;
    this.#parameters = parameters;
    this.#vectorEmbeddings = vectorEmbeddings;
    this.#computed = computed;
  }

  /** Makes a slot that no other alias of the query uses. */
  newSlot(): number {
    this.#slotCount += 1;
    return this.#slotCount - 1;
  }

  /** Compiles the clauses after FROM. `sources` are the compiled sources of FROM, and `scope` has their aliases. */
  program(query: Query, scope: Scope, sources: readonly Source[]): Program {
    const outerWeight = this.#weight;
    const { userCalls } = this;
    this.#weight = 0;
    const program = this.#program(query, scope, sources);
    this.#weight = outerWeight;
    const inSources = sources.some((source) => source.kind === 'query' && source.program.callsFunctions);
    return inSources || this.userCalls > userCalls ? { ...program, callsFunctions: true } : program;
  }

  /** Compiles a part of a row. If it calls functions, it is wrapped so that other parts are tried even if its result is pending. */
  #part<Result>(otherwise: Result, compile: () => (frame: Frame) => Result): (frame: Frame) => Result {
    const { userCalls } = this;
    const run = compile();
    return this.userCalls > userCalls ? attempted(run, otherwise) : run;
  }

  #program(query: Query, scope: Scope, from: readonly Source[]): Program {
    const { where, sources } = this.#conditions(query, scope, from);
    const grouping = this.#grouping(query, scope);
    const project = this.#part<Value>(undefined, () => this.#projection(query, scope));
    const isOneRow = grouping !== undefined && query.groupBy.length === 0;
    const rank = query.orderByRank === undefined ? undefined : compileRank(query, query.orderByRank, scope, this);
    const groups = scope.grouping;
    const orderBy = (rank === undefined ? query.orderBy : []).map(({ expression, direction }) => {
      if (direction !== undefined && isVectorDistance(expression)) {
        throw queryError(
          'sortedSimilarity',
          'Specifying a sorting order (ASC or DESC) with VectorDistance function is not supported.',
          expression.at,
        );
      }
      // For one row the order has no meaning. So ORDER BY may read values that are not grouped, as in Cosmos DB.
      if (isOneRow && !hasAggregate(expression)) scope.grouping = undefined;
      const run = this.#part<Value>(undefined, () => this.expression(expression, scope).run);
      scope.grouping = groups;
      return {
        run: isPart(expression) ? run : (frame: Frame) => boundedIn(frame, run(frame)),
        descending: direction === undefined ? this.isSimilarity(expression, scope) : direction === 'DESC',
      };
    });
    scope.grouping = undefined;
    if (query.top !== undefined && query.offset !== undefined) {
      throw queryError('syntax', "'TOP' can't be used together with 'OFFSET LIMIT'.", query.offset.at);
    }
    const limit = query.top ?? query.limit;
    return {
      sources,
      where,
      grouping,
      project,
      orderBy: isOneRow ? [] : orderBy,
      rank,
      distinct: query.distinct,
      offset: query.offset === undefined ? 0 : this.rowCount(query.offset, 'OFFSET'),
      limit: limit === undefined ? undefined : this.rowCount(limit, query.top === undefined ? 'LIMIT' : 'TOP'),
      weight: this.#weight,
      callsFunctions: false,
    };
  }

  /**
   * Splits WHERE: a condition that does not need the last source is checked as early as possible, so that a JOIN does not iterate over
   * arrays of documents that are excluded anyway.
   */
  #conditions(
    { where, orderByRank }: Query,
    scope: Scope,
    sources: readonly Source[],
  ): Pick<Program, 'where' | 'sources'> {
    if (where === undefined) return { where, sources };
    const early = sources.map((): CompiledTest[] => []);
    const late: CompiledTest[] = [];
    // Slots that a subquery reads also count for the query around it.
    let highestSlot = this.#highestSlot;
    let variesByRow = this.#variesByRow;
    for (const conjunct of conjuncts(where)) {
      this.#highestSlot = 0;
      this.#variesByRow = false;
      const test = this.#part(false, () => this.#test(conjunct, scope));
      const next = sources.findIndex(({ slot }) => slot > this.#highestSlot);
      // With ORDER BY RANK no condition is checked early: ranks also depend on documents that WHERE excludes.
      const isLate = next === -1 || this.#variesByRow || orderByRank !== undefined;
      (isLate ? late : early[next]!).push(test);
      highestSlot = Math.max(highestSlot, this.#highestSlot);
      variesByRow ||= this.#variesByRow;
    }
    this.#highestSlot = highestSlot;
    this.#variesByRow = variesByRow;
    return {
      where: allOf(late),
      sources: sources.map((source, index) => {
        const onlyIf = allOf(early[index]!);
        return onlyIf === undefined ? source : { ...source, onlyIf };
      }),
    };
  }

  /** The number of a TOP, OFFSET or LIMIT clause. */
  rowCount(count: RowCount, clause: string): number {
    const value = count.kind === 'literal' ? count.value : this.#parameter(count.name, count.at);
    if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= MAX_ROW_COUNT) return value;
    const isTooLarge = isNumeric(value) && value > MAX_ROW_COUNT;
    if (clause === 'TOP' && (isTooLarge || !Number.isInteger(value))) {
      throw queryError('topNotInteger', 'The count value provided for a TOP clause must be an integer.', count.at);
    }
    if (isTooLarge) {
      const kind = clause === 'LIMIT' ? 'limitTooLarge' : 'offsetTooLarge';
      throw queryError(kind, `The ${clause} count value exceeds the maximum allowed value.`, count.at);
    }
    const expected = `a whole number from 0 to ${MAX_ROW_COUNT}`;
    throw queryError('invalidValue', `The value of ${clause} has to be ${expected}.`, count.at);
  }

  /** Adds a source to a scope: compiles the expression that it reads, then declares its alias. */
  source(source: FromSource, scope: Scope): Source {
    const { collection, iterates } = source;
    if (collection.kind === 'query') {
      const inner = new Scope(scope);
      const program = this.#subqueryProgram(collection.query, inner);
      const slot = this.#declare(source.alias, scope, collection.at);
      return { kind: 'query', slot, program, iterates };
    }
    let read: Expression = { kind: 'identifier', name: collection.root, at: collection.at };
    for (const value of collection.keys) {
      const key: Expression = { kind: 'literal', value, at: collection.at };
      read = { kind: 'member', object: read, key, at: collection.at };
    }
    const { run } = this.expression(read, scope);
    const last = collection.keys.at(-1) ?? collection.root;
    const alias = source.alias ?? (typeof last === 'string' ? last : undefined);
    const isDocument =
      collection.keys.length === 0 &&
      !iterates &&
      this.#documentSlots.has(this.#resolve(collection.root, collection.at, scope));
    const slot = this.#declare(alias, scope, collection.at);
    if (isDocument) this.#documentSlots.add(slot);
    return { kind: 'path', slot, run, iterates };
  }

  #declare(alias: string | undefined, scope: Scope, at: SourceLocation): number {
    const slot = this.newSlot();
    if (alias === undefined) {
      // SELECT * uses the first slot, so the source needs an entry. No other name can be empty.
      if (scope.slots.size === 0) scope.slots.set('', slot);
      return slot;
    }
    if (scope.slots.has(alias)) {
      throw queryError('unresolvedIdentifier', `The alias '${alias}' is declared twice.`, at);
    }
    scope.slots.set(alias, slot);
    return slot;
  }

  #subqueryProgram(query: Query, scope: Scope): Program {
    const sources = query.from.map((source) => this.source(source, scope));
    return this.program(query, scope, sources);
  }

  // --- projection and groups

  #grouping(query: Query, scope: Scope): Grouping | undefined {
    const expressions = query.orderBy.map((item) => item.expression);
    if (query.selection.kind === 'value') expressions.push(query.selection.expression);
    if (query.selection.kind === 'list') {
      for (const { expression } of query.selection.items) expressions.push(expression);
    }
    if (query.groupBy.length === 0 && !expressions.some(hasAggregate)) return undefined;
    const names = new Map<string, number>();
    const keys = query.groupBy.map((expression) => {
      const index = this.#groupKeyCount;
      this.#groupKeyCount += 1;
      const run = this.#part<Value>(undefined, () => this.expression(expression, scope).run);
      names.set(printExpression(expression), index);
      return { run, index };
    });
    const aggregates: AggregateStep[] = [];
    const lengths = new Set([...names.keys()].map((text) => text.length));
    scope.grouping = { keys: names, lengths, aggregates };
    return { keys, aggregates };
  }

  #projection(query: Query, scope: Scope): Compiled {
    const run = this.#selected(query, scope);
    if (this.#hasNonFinite) return (frame) => withoutNonFinite(boundedIn(frame, run(frame)));
    const { selection } = query;
    if (selection.kind === 'star' || (selection.kind === 'value' && isPart(selection.expression))) return run;
    return (frame) => boundedIn(frame, run(frame));
  }

  #selected(query: Query, scope: Scope): Compiled {
    const { selection } = query;
    if (selection.kind === 'value') return this.expression(selection.expression, scope).run;
    if (selection.kind === 'star') {
      if (query.from.length === 0) {
        throw queryError('selectStar', "'SELECT *' is not valid if FROM clause is omitted.", selection.at);
      }
      if (query.groupBy.length > 0) {
        throw queryError('selectStarOfGroups', "'SELECT *' is not allowed with GROUP BY.", selection.at);
      }
      if (query.from.length > 1) {
        throw queryError('selectStar', "'SELECT *' is only valid with a single input set.", selection.at);
      }
      const slot = scope.slots.values().next().value ?? DOCUMENT_SLOT;
      this.#readSlot(slot, undefined);
      return (frame) => frame.slots[slot];
    }
    let unnamed = 0;
    const properties = selection.items.map(({ expression, alias }) => {
      let name = alias ?? nameOf(expression);
      if (name === undefined) {
        unnamed += 1;
        name = `$${unnamed}`;
      }
      const { userCalls } = this;
      const value = this.expression(expression, scope);
      return { name, value, calls: this.userCalls > userCalls };
    });
    return properties.filter(({ calls }) => calls).length > 1
      ? callingObjectBuilder(properties)
      : objectBuilder(properties);
  }

  // --- expressions

  /** @param path the whole path that begins with the expression, for error messages */
  expression(expression: Expression, scope: Scope, path = expression): Node {
    this.#weight += 1;
    const groupKey = groupKeyOf(expression, scope);
    if (groupKey !== undefined) {
      return { run: (frame) => frame.groupKeys[groupKey], constant: undefined };
    }
    switch (expression.kind) {
      case 'literal':
        return constant(expression.value);
      case 'parameter':
        return constant(this.#parameter(expression.name, expression.at));
      case 'identifier': {
        const number = this.#nonFinite(expression.name, scope);
        if (number !== undefined) return constant(number);
        const slot = this.#resolve(expression.name, expression.at, scope, path);
        this.#readSlot(slot, undefined);
        return { run: (frame) => frame.slots[slot], constant: undefined };
      }
      case 'member':
        return this.#member(expression, scope, path);
      case 'array': {
        const items = expression.items.map((item) => this.expression(item, scope));
        return node((frame) => buildArray(items, frame), items);
      }
      case 'object': {
        const properties = expression.properties.map(({ name, value }) => ({
          name,
          value: this.expression(value, scope),
        }));
        return node(
          objectBuilder(properties),
          properties.map(({ value }) => value),
        );
      }
      case 'unary':
        return compileUnary(expression.operator, this.expression(expression.operand, scope));
      case 'binary': {
        const left = this.expression(expression.left, scope);
        const right = this.expression(expression.right, scope);
        return timedNode(compileBinary(expression.operator, left, right), [left, right]);
      }
      case 'logical': {
        const operands = expression.operands.map((operand) => this.expression(operand, scope));
        const runs = operands.map((operand) => operand.run);
        const run = compileLogical(expression.operator, runs);
        return operands.every((operand) => operand.constant) ? computed(run) : { run, constant: undefined };
      }
      case 'in':
        return this.#in(expression, scope);
      case 'between': {
        const operand = this.expression(expression.operand, scope);
        const low = this.expression(expression.low, scope);
        const high = this.expression(expression.high, scope);
        return timedNode(this.#between(operand, low, high), [operand, low, high]);
      }
      case 'like':
        return this.#like(expression, scope);
      case 'conditional': {
        const test = this.expression(expression.test, scope);
        const whenTrue = this.expression(expression.whenTrue, scope);
        const otherwise = this.expression(expression.otherwise, scope);
        const run: Compiled = (frame) => (test.run(frame) === true ? whenTrue.run(frame) : otherwise.run(frame));
        return node(run, [test, whenTrue, otherwise]);
      }
      case 'call':
        return this.#call(expression, scope);
      case 'subquery':
        return this.#subquery(expression, scope);
    }
  }

  /** Compiles a condition of which only the value true matters, so that AND and OR may stop at the first operand that decides them. */
  #test(expression: Expression, scope: Scope): CompiledTest {
    if (expression.kind === 'logical') {
      const tests = expression.operands.map((operand) => this.#test(operand, scope));
      return decided(tests, expression.operator === 'OR');
    }
    const { run } = this.expression(expression, scope);
    return (frame) => run(frame) === true;
  }

  #parameter(name: string, at: SourceLocation): Value {
    if (this.#needsParameters && !this.#parameters.has(name)) {
      throw queryError('undeclaredParameter', `The parameter '${name}' is used but not given.`, at);
    }
    return this.#parameters.get(name);
  }

  #resolve(name: string, at: SourceLocation, scope: Scope, path?: Expression): number {
    for (let current: Scope | undefined = scope; current !== undefined; current = current.parent) {
      const slot = current.slots.get(name);
      if (slot === undefined) continue;
      if (current.grouping !== undefined) {
        const reference = path === undefined ? name : printExpression(path);
        throw queryError(
          'notGrouped',
          `Property reference '${reference}' is invalid in the select list because it is not contained in either an aggregate function or the GROUP BY clause.`,
          path?.at ?? at,
        );
      }
      this.#highestSlot = Math.max(this.#highestSlot, slot);
      return slot;
    }
    throw queryError('unresolvedIdentifier', `Identifier '${name}' could not be resolved.`, at);
  }

  /** The constants NaN and Infinity, unless an alias has this name. */
  #nonFinite(name: string, scope: Scope): number | undefined {
    if (name !== 'NaN' && name !== 'Infinity') return undefined;
    for (let current: Scope | undefined = scope; current !== undefined; current = current.parent) {
      if (current.slots.has(name)) return undefined;
    }
    this.#hasNonFinite = true;
    return Number(name);
  }

  #readSlot(slot: number, property: string | undefined): void {
    if (slot !== DOCUMENT_SLOT && !this.#computedSlots.has(slot)) return;
    if (property === undefined) this.documentProperties = undefined;
    else this.documentProperties?.add(property);
  }

  #member(expression: Extract<Expression, { kind: 'member' }>, scope: Scope, path: Expression): Node {
    const key = this.expression(expression.key, scope);
    const name = key.constant?.value;
    const { object } = expression;
    if (object.kind === 'identifier' && typeof name === 'string' && groupKeyOf(object, scope) === undefined) {
      const slot = this.#resolve(object.name, object.at, scope, path);
      const computed = this.#documentSlots.has(slot) && !this.#insideComputed ? this.#computed.get(name) : undefined;
      if (computed !== undefined) return this.#computedProperty(name, computed, slot);
      this.#readSlot(slot, name);
      return { run: slotPropertyReader(slot, name), constant: undefined };
    }
    const owner = this.expression(object, scope, path);
    const run: Compiled =
      typeof name === 'string'
        ? propertyReader(owner.run, name)
        : (frame) => readMember(owner.run(frame), key.run(frame));
    return node(run, [owner, key]);
  }

  /** Compiles a computed property into the expression that reads it, so that it is only computed if it is read. */
  #computedProperty(name: string, text: string, documentSlot: number): Node {
    const { slot, run, weight } = this.#computedRuns.get(name) ?? this.#compileComputed(name, text);
    this.#weight += weight;
    return {
      run: (frame) => {
        frame.work.passNodes(weight);
        frame.slots[slot] = frame.slots[documentSlot];
        return run(frame);
      },
      constant: undefined,
    };
  }

  #compileComputed(name: string, text: string): ComputedRun {
    const { from, selection } = parseQuery(text);
    const [source] = from;
    if (selection.kind !== 'value' || source?.collection.kind !== 'path') {
      throw queryError('notSupported', `The computed property's query ${JSON.stringify(text)} can't be evaluated.`);
    }
    const slot = this.newSlot();
    this.#computedSlots.add(slot);
    const scope = new Scope(undefined);
    scope.slots.set(source.alias ?? source.collection.root, slot);
    const [weight, highestSlot] = [this.#weight, this.#highestSlot];
    this.#insideComputed = true;
    try {
      const { run } = this.expression(selection.expression, scope);
      const compiled = { slot, run, weight: this.#weight - weight };
      this.#computedRuns.set(name, compiled);
      return compiled;
    } finally {
      this.#insideComputed = false;
      // The reading expression counts the slot of its own document instead.
      [this.#weight, this.#highestSlot] = [weight, highestSlot];
    }
  }

  #in(expression: Extract<Expression, { kind: 'in' }>, scope: Scope): Node {
    const operand = this.expression(expression.operand, scope);
    const items = expression.items.map((item) => this.expression(item, scope));
    const { run } = operand;
    const allConstant = items.every((item) => item.constant !== undefined);
    if (allConstant && items.every((item) => isPlainScalar(item.constant?.value))) {
      const values = new Set(items.map((item) => item.constant?.value));
      // The number of constants does not matter, since they are checked by one look-up in a set.
      this.#weight -= items.length;
      const lookUp: Compiled = (frame) => {
        const value = run(frame);
        return value === undefined ? undefined : values.has(value);
      };
      return node(lookUp, [operand]);
    }
    const search: Compiled = (frame) => {
      const value = run(frame);
      if (value === undefined) return undefined;
      return items.some((item) => {
        const other = item.run(frame);
        askTimeToCompare(frame, value, other);
        return equalValues(value, other);
      });
    };
    return { run: search, constant: undefined };
  }

  /** Compiles BETWEEN. The operand is evaluated once; otherwise nested BETWEENs would double the work at each level. */
  #between(operand: Node, low: Node, high: Node): Compiled {
    const slot = this.newSlot();
    const { run, constant: known } = operand;
    const bound: Node = known === undefined ? { run: (frame) => frame.slots[slot], constant: known } : operand;
    const isWithin = compileLogical('AND', [compileBinary('>=', bound, low), compileBinary('<=', bound, high)]);
    if (known !== undefined) return isWithin;
    return (frame) => {
      frame.slots[slot] = run(frame);
      return isWithin(frame);
    };
  }

  #like(expression: Extract<Expression, { kind: 'like' }>, scope: Scope): Node {
    const operand = this.expression(expression.operand, scope);
    const pattern = this.expression(expression.pattern, scope);
    const prepare = remember((text: string) => compileLike(text, expression.escape));
    return timedNode(
      (frame) => {
        const text = operand.run(frame);
        const like = pattern.run(frame);
        if (typeof text !== 'string' || typeof like !== 'string') return undefined;
        frame.work.add(text.length);
        if (text.length * like.length >= MANY_COMPARISONS) assertTime(frame);
        return prepare(like)(text);
      },
      [operand, pattern],
    );
  }

  #call(expression: Extract<Expression, { kind: 'call' }>, scope: Scope): Node {
    if (expression.userDefined) return this.#userCall(expression, scope);
    const { name, at } = expression;
    const args = name === 'VECTORDISTANCE' ? this.#vectorArguments(expression.args, at, scope) : expression.args;
    if (name === 'FULLTEXTSCORE') {
      throw queryError('invalidValue', 'The FullTextScore function is only allowed in the ORDER BY RANK clause.', at);
    }
    if (isAggregate(name)) return this.#aggregate(expression, scope);
    const clock = clockFunctions.get(name);
    const builtIn = (this.#isPlanar ? planarBuiltIns.get(name) : undefined) ?? builtIns.get(name);
    if (clock === undefined && builtIn === undefined) {
      const nameAt = { start: at.start, end: at.start + name.length };
      throw queryError('unknownFunction', `'${name}' is not a recognized built-in function name.`, nameAt);
    }
    const { minArguments, maxArguments } = clock ?? (builtIn as BuiltIn);
    checkArguments(name, args.length, minArguments, maxArguments, at);
    const nodes = args.map((argument) => this.expression(argument, scope));
    if (clock !== undefined) {
      this.readsClock = true;
      const run: Compiled = (frame) => {
        if (frame.nowMs === undefined) throw new Error(`${name} needs nowMs in the evaluation context`);
        return clock.call(frame.nowMs, ...nodes.map((argument) => argument.run(frame)));
      };
      return { run, constant: undefined };
    }
    const called = compileCall(builtIn as BuiltIn, nodes);
    if (builtIn?.takesLong === true) {
      const run: Compiled = (frame) => {
        assertTime(frame);
        return called(frame);
      };
      return { run, constant: undefined };
    }
    if (builtIn?.pure === true) return timedNode(called, nodes);
    this.#variesByRow = true;
    this.changing ??= { name, at };
    return { run: called, constant: undefined };
  }

  #userCall({ name, args, at }: Extract<Expression, { kind: 'call' }>, scope: Scope): Node {
    if (this.#userFunctions === undefined) {
      throw queryError('notSupported', `The user-defined function 'udf.${name}' can't be called here.`, at);
    }
    if (!this.#userFunctions.has(name)) {
      throw queryError('unknownFunction', `'${name}' is not a recognized user-defined function name.`, at);
    }
    this.userCalls += 1;
    if (this.userCalls > MOST_USER_CALLS) {
      const most = `more than ${MOST_USER_CALLS} calls of user-defined functions`;
      throw queryError('tooComplex', `The query has ${most}.`, at);
    }
    const nodes = args.map((argument) => this.expression(argument, scope));
    return { run: compileUserCall(name, nodes), constant: undefined };
  }

  #aggregate(expression: Extract<Expression, { kind: 'call' }>, scope: Scope): Node {
    const { name, args, at } = expression;
    const { grouping } = scope;
    if (grouping === undefined || !isAggregate(name)) {
      throw queryError('misplacedAggregate', `The aggregate '${name}' can't be used here.`, at);
    }
    checkArguments(name, args.length, 1, 1, at);
    if (args.some(hasAggregate)) {
      throw queryError(
        'nestedAggregate',
        'Cannot perform an aggregate function on an expression containing an aggregate or a subquery.',
        at,
      );
    }
    const index = this.#aggregateCount;
    this.#aggregateCount += 1;
    // An aggregate's argument is evaluated for each row. It may read everything except other aggregates.
    scope.grouping = undefined;
    const argument = this.#part<Value>(undefined, () => this.expression(args[0] as Expression, scope).run);
    scope.grouping = grouping;
    grouping.aggregates.push({ name, argument, index });
    return { run: (frame) => frame.aggregates[index], constant: undefined };
  }

  #subquery(expression: Extract<Expression, { kind: 'subquery' }>, scope: Scope): Node {
    const { form, query, at } = expression;
    const program = this.#subqueryProgram(form === 'all' ? withNegatedFilter(query, at) : query, new Scope(scope));
    return { run: subqueryRunner(program, form, at), constant: undefined };
  }

  /** The arguments of VectorDistance. If its options name no distance function, the one of the container's policy is used. */
  #vectorArguments(args: readonly Expression[], at: SourceLocation, scope: Scope): readonly Expression[] {
    const [first, second, bruteForce = { kind: 'literal', value: false, at }, options] = args;
    if (first === undefined || second === undefined || args.length > 4) return args;
    const paths = [first, second].map((argument) => policyPath(argument, (name) => this.#parameters.get(name)));
    const embedding = this.#vectorEmbeddings.find(({ path }) => paths.includes(path));
    if (embedding === undefined) return args;
    const given = options === undefined ? {} : this.expression(options, scope).constant?.value;
    if (!isObject(given) || (given['distanceFunction'] ?? undefined) !== undefined) return args;
    const value: Value = { ...given, distanceFunction: embedding.distanceFunction };
    return [first, second, bruteForce, { kind: 'literal', value, at }];
  }

  /**
   * Whether larger results of a VectorDistance are more similar. ORDER BY puts the most similar first: for cosine and dot product this is
   * the largest score, for the Euclidean distance the smallest.
   */
  isSimilarity(expression: Expression, scope: Scope): boolean {
    if (expression.kind !== 'call' || !isVectorDistance(expression)) return false;
    const options = this.#vectorArguments(expression.args, expression.at, scope)[3];
    const value = options === undefined ? undefined : this.expression(options, scope).constant?.value;
    const name = isObject(value) ? value['distanceFunction'] : undefined;
    return typeof name !== 'string' || name.toLowerCase() !== 'euclidean';
  }
}

/** Caches the result for the last text, since a pattern is nearly always the same for all rows. */
function remember<T>(prepare: (text: string) => T): (text: string) => T {
  let lastText: string | undefined;
  let last: T;
  return (text) => {
    if (text !== lastText) {
      last = prepare(text);
      lastText = text;
    }
    return last;
  };
}
