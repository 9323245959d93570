import { guardStack, QueryError, queryError } from '../errors.ts';
import type { Expression, Query } from '../language/ast.ts';
import type { Program } from '../run/program.ts';
import type { Json, Value } from '../values/values.ts';
import { Compiler, DOCUMENT_SLOT } from './compile.ts';
import type { ComputedProperty, VectorEmbedding } from './compile.ts';
import { conjuncts, findPushdown } from './pushdown.ts';
import type { Facts, Pushdown } from './pushdown.ts';
import { isVectorDistance } from './rank.ts';
import { Scope } from './scope.ts';

export interface QueryParameter {
  readonly name: string;
  /** Absent: the parameter is undefined. */
  readonly value?: Json;
}

/** Everything besides the query that a plan depends on. */
export interface PlanOptions {
  /** The container's vector policy: the distance function of VectorDistance for a path, if the query names none. */
  readonly vectorEmbeddings?: readonly VectorEmbedding[];
  /** The container's computed properties: queries read them like properties of the documents. */
  readonly computedProperties?: readonly ComputedProperty[];
  /** The container's geospatial configuration: whether shapes are on the globe ("Geography", the default) or on a plane. */
  readonly geospatialType?: 'Geography' | 'Geometry';
  /** The names of the user-defined functions that the query may call; by default it may call none. */
  readonly userFunctions?: ReadonlySet<string>;
  /** Whether a missing parameter is an error. In a client's query it is undefined, as in Cosmos DB. */
  readonly needsParameters?: boolean;
}

/** A query that is ready to run, any number of times, with its parameters bound. */
export interface QueryPlan {
  readonly query: Query;
  /** Conditions that can be checked by clear columns, before a document is read. */
  readonly pushdown: Pushdown;
  /**
   * Whether rows come in the order of the documents, and each document's rows depend on that document alone. Then an evaluation may stop
   * after any document, and another call can continue with the next one.
   */
  readonly streaming: boolean;
  /** Whether rows come in the order of the documents, but may also depend on earlier documents, because only distinct ones are returned. */
  readonly asOffered: boolean;
  /** False if documents with only their `id` and `_ts` give the same answer as whole ones. */
  readonly needsBody: boolean;
  /** The top-level properties of the documents that the query reads; undefined if it reads whole documents. */
  readonly documentProperties: readonly string[] | undefined;
  /** Whether the answer is one row: the number of documents that satisfy the pushdown. */
  readonly countOnly: boolean;
  /** False for a query without FROM, which always has one row, independently of the documents. */
  readonly readsDocuments: boolean;
  readonly top: number | undefined;
  readonly offset: number | undefined;
  readonly limit: number | undefined;
  readonly orderBy: readonly { readonly expression: Expression; readonly descending: boolean }[];
  /**
   * The direction, if each row is of one document and the rows are in the order of `_ts`: all rows of documents with a later `_ts` come
   * after it (before it, in descending order). Otherwise undefined.
   */
  readonly byTs: 'ascending' | 'descending' | undefined;
  /** Whether the query has ORDER BY VectorDistance(…), which no index can stream. */
  readonly isVectorSearch: boolean;
  /** Whether the query calls user-defined functions. Then documents must be tried before they are offered. */
  readonly callsFunctions: boolean;
  /** A function call in the query whose value changes from one call to the next, if there is one. */
  readonly changing: Compiler['changing'];
  /** Whether the query calls a function of the current time, which is the same for all documents of one run. */
  readonly readsClock: boolean;
  /** Only for the evaluation in this package. */
  readonly program: Program;
  /** For `FROM (SELECT …)`: the plan of the inner query, whose rows are the documents of this plan. */
  readonly derivedFrom: QueryPlan | undefined;
}

/**
 * Makes the plan of a parsed query with its parameters: resolves names and functions, folds constants, and finds conditions that can be
 * checked early. Throws a QueryError for names and functions that don't exist, and for features that are not supported.
 */
export function planQuery(
  query: Query,
  parameters: readonly QueryParameter[] = [],
  options: PlanOptions = {},
): QueryPlan {
  const values = new Map<string, Value>();
  for (const { name, value } of parameters) values.set(name, value);
  return guardStack(() => plan(query, values, options));
}

const NOWHERE = { start: 0, end: 0 };
/** The clauses of a query that only has a filter. */
const PLAIN = {
  distinct: false,
  top: undefined,
  selection: { kind: 'value', expression: { kind: 'literal', value: null, at: NOWHERE } },
  groupBy: [],
  orderBy: [],
  orderByRank: undefined,
  offset: undefined,
  limit: undefined,
} as const;

/**
 * Represents a document as a row of a {@link choosingPlan}. All count with the same size, whether a document was opened or only its
 * reference is in memory.
 */
export class Chosen {
  /** The size of a reference to a document, in bytes. */
  static readonly BYTES = 600;

  readonly #document: Json;

  private constructor(document: Json) {
    this.#document = document;
  }

  static of(document: Json): Json {
    return new Chosen(document) as unknown as Json;
  }

  static isOne(row: Json): boolean {
    return (row as unknown) instanceof Chosen;
  }

  static documentOf(row: Json): Json {
    return (row as unknown as Chosen).#document;
  }
}

/**
 * For an ordered query that makes one row of each of its documents: a plan whose rows are a {@link Chosen} for each of these documents, in
 * the same order.
 *
 * @param query the query that the given plan belongs to
 * @returns undefined if choosing the documents needs more of them than `id` and `_ts`
 */
export function choosingPlan(
  { query, needsBody, derivedFrom, program }: QueryPlan,
  parameters: readonly QueryParameter[],
  options: PlanOptions,
): QueryPlan | undefined {
  const { selection, orderBy, from } = query;
  const isOfOne = program.sources.length === 0 && program.grouping === undefined && !program.distinct;
  if (!needsBody || derivedFrom !== undefined || !isOfOne) return undefined;
  if (orderBy.length === 0 || !orderBy.every(({ expression }) => isMember(expression, ['id', '_ts']))) return undefined;
  // Another selected value may be undefined, which makes no row.
  if (selection.kind === 'value' && !isAlias(selection.expression, from)) return undefined;
  const chooser = planQuery({ ...query, selection: PLAIN.selection }, parameters, options);
  if (chooser.needsBody) return undefined;
  return {
    ...chooser,
    program: {
      ...chooser.program,
      weight: program.weight,
      project: (frame) => Chosen.of(frame.slots[DOCUMENT_SLOT]!),
    },
  };
}

/** A query with rows of the same documents, which reads only what is needed to find these documents. */
export function withoutValues(query: Query): Query {
  const { selection, from } = query;
  const [first] = from;
  const isOfDocuments = first?.collection.kind === 'path' && first.collection.keys.length === 0 && !first.iterates;
  // Another selected value may be undefined, which makes no row.
  if (!isOfDocuments || (selection.kind === 'value' && !isAlias(selection.expression, from))) return query;
  return { ...query, selection: PLAIN.selection };
}

/**
 * A plan that excludes the documents which can't satisfy the query's filter by their `id` and `_ts`. It has a row for each other document;
 * the rest of the filter is left out.
 *
 * @returns undefined if no document can be excluded in this way
 */
export function sparingPlan(
  plan: QueryPlan,
  parameters: readonly QueryParameter[],
  options: PlanOptions,
): QueryPlan | undefined {
  if (plan.derivedFrom !== undefined) return sparingPlan(plan.derivedFrom, parameters, options);
  return conditionsOf(plan, parameters, options, ({ needsBody }) => !needsBody);
}

/**
 * A plan with some of the conditions of a query's filter. It has a row for each document that satisfies these.
 *
 * @param isWanted whether a condition, given as the plan of a query by itself, is one of these
 * @returns undefined if there are none, or if the documents that the filter excludes matter, too
 */
export function conditionsOf(
  { query, program }: QueryPlan,
  parameters: readonly QueryParameter[],
  options: PlanOptions,
  isWanted: (condition: QueryPlan) => boolean,
): QueryPlan | undefined {
  // Ranks also depend on documents that the filter excludes.
  if (query.where === undefined || program.rank !== undefined) return undefined;
  const from = query.from.slice(0, 1);
  const planOf = (where: Expression) => planQuery({ ...PLAIN, from, where }, parameters, options);
  const wanted = conjuncts(query.where).filter((conjunct) => {
    try {
      return isWanted(planOf(conjunct));
    } catch (error) {
      // The condition reads the alias of a JOIN.
      if (error instanceof QueryError) return false;
      throw error;
    }
  });
  if (wanted.length === 0) return undefined;
  return planOf({ kind: 'logical', operator: 'AND', operands: wanted, at: NOWHERE });
}

const isMember = (expression: Expression, names: readonly string[]): boolean =>
  expression.kind === 'member' && expression.key.kind === 'literal' && names.includes(String(expression.key.value));

const isAlias = (expression: Expression, [first]: Query['from']): boolean =>
  expression.kind === 'identifier' &&
  first?.collection.kind === 'path' &&
  expression.name === (first.alias ?? first.collection.root);

function plan(query: Query, parameters: ReadonlyMap<string, Value>, options: PlanOptions): QueryPlan {
  const [first, ...joins] = query.from;
  // The rows of `FROM (SELECT …)` are not documents, so they have no computed properties.
  const isDerived = first?.collection.kind === 'query';
  const computed = new Map(
    (isDerived ? [] : (options.computedProperties ?? [])).map(({ name, query: text }) => [name, text]),
  );
  const compiler = new Compiler(parameters, options.vectorEmbeddings ?? [], computed, {
    isPlanar: options.geospatialType === 'Geometry',
    needsParameters: options.needsParameters === true,
    userFunctions: options.userFunctions,
  });
  const scope = new Scope(undefined);
  let derivedFrom: QueryPlan | undefined;
  let documentAlias: string | undefined;
  const sources = [];
  if (first !== undefined) {
    const { collection } = first;
    if (collection.kind === 'query' && !first.iterates) {
      derivedFrom = plan(collection.query, parameters, options);
      scope.slots.set(first.alias ?? '', DOCUMENT_SLOT);
    } else if (collection.kind === 'query') {
      throw queryError('notSupported', "'IN (SELECT …)' can't be the first source of FROM.", collection.at);
    } else if (collection.keys.length === 0 && !first.iterates) {
      documentAlias = first.alias ?? collection.root;
      scope.slots.set(documentAlias, DOCUMENT_SLOT);
    } else {
      // Only this source sees the container's name: `FROM x IN c.items` does not declare `c`.
      const container = new Scope(undefined);
      container.slots.set(collection.root, DOCUMENT_SLOT);
      const own = new Scope(container);
      sources.push(compiler.source(first, own));
      for (const [name, slot] of own.slots) scope.slots.set(name, slot);
    }
  }
  for (const join of joins) sources.push(compiler.source(join, scope));
  const program = compiler.program(query, scope, sources);
  const documentProperties = compiler.documentProperties === undefined ? undefined : [...compiler.documentProperties];

  const callsFunctions = program.callsFunctions || derivedFrom?.callsFunctions === true;
  const changing = compiler.changing ?? derivedFrom?.changing;
  // When a document is tried and when it is offered, an expression must have the same value.
  if (callsFunctions && changing !== undefined) {
    const { name, at } = changing;
    throw queryError('notSupported', `${name} can't be used in a query that calls user-defined functions.`, at);
  }

  const facts = factsOf(documentAlias, compiler, computed);
  const pushdown = findPushdown(query.where, facts);
  const asOffered =
    query.from.length > 0 &&
    program.orderBy.length === 0 &&
    program.rank === undefined &&
    program.grouping === undefined &&
    program.offset === 0 &&
    program.limit === undefined &&
    (derivedFrom?.streaming ?? true);
  const ownNeedsBody =
    documentProperties === undefined || documentProperties.some((name) => name !== 'id' && name !== '_ts');
  const countOnly =
    documentAlias !== undefined &&
    query.from.length === 1 &&
    pushdown.complete &&
    program.orderBy.length === 0 &&
    !program.distinct &&
    program.offset === 0 &&
    program.limit === undefined &&
    isCountOfRows(query, documentAlias, compiler);
  const orderBy = query.orderBy.map(({ expression }, index) => ({
    expression,
    descending: program.orderBy[index]?.descending ?? false,
  }));
  const [leading] = orderBy;
  const leadingPath = leading && derivedFrom === undefined ? facts.documentPath(leading.expression) : undefined;
  const isByTs =
    leadingPath?.length === 1 && leadingPath[0] === '_ts' && !program.distinct && program.grouping === undefined;
  const isVectorSearch = query.orderBy.some(({ expression }) => isVectorDistance(expression));

  return {
    query,
    pushdown:
      derivedFrom === undefined
        ? pushdown
        : { ...derivedFrom.pushdown, complete: derivedFrom.pushdown.complete && query.where === undefined },
    asOffered,
    streaming: asOffered && !program.distinct,
    needsBody: derivedFrom?.needsBody ?? (query.from.length > 0 && ownNeedsBody && !countOnly),
    documentProperties: derivedFrom === undefined ? documentProperties : derivedFrom.documentProperties,
    countOnly,
    readsDocuments: query.from.length > 0,
    top: query.top === undefined ? undefined : program.limit,
    offset: query.offset === undefined ? undefined : program.offset,
    limit: query.limit === undefined ? undefined : program.limit,
    orderBy,
    byTs: isByTs ? (leading!.descending ? 'descending' : 'ascending') : undefined,
    isVectorSearch,
    callsFunctions,
    changing,
    readsClock: compiler.readsClock || derivedFrom?.readsClock === true,
    program,
    derivedFrom,
  };
}

/** Whether the query is `SELECT VALUE COUNT(1)` or `COUNT(c)`, which counts every row, since the argument is always defined. */
function isCountOfRows(query: Query, documentAlias: string, compiler: Compiler): boolean {
  const { selection } = query;
  if (query.groupBy.length > 0 || selection.kind !== 'value') return false;
  const { expression } = selection;
  if (expression.kind !== 'call' || expression.userDefined || expression.name !== 'COUNT') return false;
  const [argument] = expression.args;
  if (argument?.kind === 'identifier') return argument.name === documentAlias;
  return constantOf(argument, compiler)?.value !== undefined;
}

function constantOf(expression: Expression | undefined, compiler: Compiler): { readonly value: Value } | undefined {
  if (expression === undefined || !isClosed(expression)) return undefined;
  return compiler.expression(expression, new Scope(undefined)).constant;
}

/** Whether an expression reads no alias, and so can be compiled outside of its query. */
function isClosed(expression: Expression): boolean {
  switch (expression.kind) {
    case 'literal':
    case 'parameter':
      return true;
    case 'array':
      return expression.items.every(isClosed);
    case 'object':
      return expression.properties.every(({ value }) => isClosed(value));
    case 'unary':
      return isClosed(expression.operand);
    case 'binary':
      return isClosed(expression.left) && isClosed(expression.right);
    case 'member':
      return isClosed(expression.object) && isClosed(expression.key);
    case 'call':
      return expression.args.every(isClosed);
    default:
      return false;
  }
}

function factsOf(documentAlias: string | undefined, compiler: Compiler, computed: ReadonlyMap<string, unknown>): Facts {
  const documentPath = (expression: Expression): string[] | undefined => {
    if (expression.kind !== 'member') return undefined;
    const { object, key } = expression;
    if (key.kind !== 'literal' || typeof key.value !== 'string') return undefined;
    // A computed property is not a path, even if documents have a property of the same name.
    if (object.kind === 'identifier') {
      return object.name === documentAlias && !computed.has(key.value) ? [key.value] : undefined;
    }
    const outer = documentPath(object);
    return outer === undefined ? undefined : [...outer, key.value];
  };
  return { documentPath, constant: (expression) => constantOf(expression, compiler) };
}
