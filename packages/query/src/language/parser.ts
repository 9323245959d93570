import { queryError } from '../errors.ts';
import type { SourceLocation } from '../errors.ts';
import { integerValue } from '../values/json-text.ts';
import type {
  BinaryOperator,
  Collection,
  Expression,
  FromSource,
  OrderByItem,
  Query,
  RowCount,
  SelectItem,
  Selection,
  SubqueryForm,
  UnaryOperator,
} from './ast.ts';
import { tokenize } from './lexer.ts';
import type { Token } from './lexer.ts';

export interface ParseLimits {
  /** The greatest length of a query, in UTF-16 units. */
  readonly maxLength?: number;
  /** The deepest nesting of parentheses, brackets, subqueries and operators that nest. */
  readonly maxDepth?: number;
}

/** Cosmos DB limits the length of a query to 512 KB. Half of that keeps plans small. */
const DEFAULT_MAX_LENGTH = 262_144;
const DEFAULT_MAX_DEPTH = 200;
/** The greatest height of a syntax tree. A chain of one operator, `a + b + …`, makes a high tree without nesting in the text. */
const MAX_HEIGHT = 500;

/** Words that can't be names in places where a keyword may follow. */
const RESERVED = new Set(
  (
    'AND ARRAY AS ASC BETWEEN BY DESC DISTINCT ESCAPE EXISTS FALSE FROM GROUP IN JOIN LEFT LIKE LIMIT NOT NULL ' +
    'OFFSET OR ORDER RIGHT SELECT TOP TRUE UDF UNDEFINED VALUE WHERE'
  ).split(' '),
);

const SUBQUERY_FORMS: ReadonlyMap<string, SubqueryForm> = new Map([
  ['EXISTS', 'exists'],
  ['ARRAY', 'array'],
  ['ALL', 'all'],
  ['FIRST', 'first'],
  ['LAST', 'last'],
]);

/**
 * Left-associative operators from the loosest to the tightest, in Cosmos DB's own levels: comparisons and shifts share
 * one, and so do bitwise operators and sums. Hence `c.flags & 1 = 1` means what it says, and `1 | 2 + 3` is 6.
 */
const BINARY_LEVELS: readonly (readonly string[])[] = [
  ['=', '!=', '<>', '<', '<=', '>', '>=', '<<', '>>', '>>>'],
  ['||'],
  ['|', '^', '&', '+', '-'],
  ['*', '/', '%'],
];
/** The clauses of a query that only has a selection. */
const NO_CLAUSES: Omit<Query, 'selection'> = {
  distinct: false,
  top: undefined,
  from: [],
  where: undefined,
  groupBy: [],
  orderBy: [],
  orderByRank: undefined,
  offset: undefined,
  limit: undefined,
};

const negated = (value: number | bigint): number | bigint =>
  typeof value === 'bigint' ? integerValue(-value) : -value;

class Parser {
  readonly #tokens: readonly Token[];
  readonly #maxDepth: number;
  readonly #heights = new WeakMap<Expression, number>();
  #next = 0;
  #depth = 0;

  constructor(text: string, limits: ParseLimits) {
    const maxLength = limits.maxLength ?? DEFAULT_MAX_LENGTH;
    if (text.length > maxLength) {
      throw queryError(
        'tooLong',
        `The SQL query text exceeded the maximum limit of ${maxLength} characters. Give long lists as parameters: ARRAY_CONTAINS(@ids, c.id).`,
        { start: 0, end: text.length },
      );
    }
    this.#maxDepth = limits.maxDepth ?? DEFAULT_MAX_DEPTH;
    this.#tokens = tokenize(text);
  }

  query(): Query {
    const query = this.#query();
    this.#expectEnd();
    return query;
  }

  condition(): Query {
    if (this.#isWord('SELECT')) return this.query();
    const at = this.#location(this.#peek());
    const from = this.#from();
    if (from.length === 0) this.#unexpected();
    const where = this.#acceptWord('WHERE') ? this.#expression() : undefined;
    this.#expectEnd();
    const expression = { kind: 'literal', value: true, at } as const;
    return { ...NO_CLAUSES, selection: { kind: 'value', expression }, from, where };
  }

  // --- tokens

  #peek(ahead = 0): Token {
    return this.#tokens[Math.min(this.#next + ahead, this.#tokens.length - 1)] as Token;
  }

  #take(): Token {
    const token = this.#peek();
    this.#next += 1;
    return token;
  }

  #isSymbol(text: string, ahead = 0): boolean {
    const token = this.#peek(ahead);
    return token.kind === 'symbol' && token.text === text;
  }

  #isWord(upper: string, ahead = 0): boolean {
    const token = this.#peek(ahead);
    return token.kind === 'word' && token.upper === upper;
  }

  #acceptSymbol(text: string): boolean {
    if (!this.#isSymbol(text)) return false;
    this.#next += 1;
    return true;
  }

  #acceptWord(upper: string): boolean {
    if (!this.#isWord(upper)) return false;
    this.#next += 1;
    return true;
  }

  #expectSymbol(text: string): void {
    if (!this.#acceptSymbol(text)) this.#unexpected();
  }

  #expectWord(upper: string): void {
    if (!this.#acceptWord(upper)) this.#unexpected();
  }

  #expectEnd(): void {
    if (this.#peek().kind !== 'end') this.#unexpected();
  }

  #unexpected(token = this.#peek()): never {
    const at = this.#location(token);
    if (token.kind === 'end') {
      throw queryError('endOfText', 'Syntax error, unexpected end-of-file.', at);
    }
    throw queryError('syntax', `Syntax error, incorrect syntax near '${token.text}'.`, at);
  }

  #location(token: Token): SourceLocation {
    return { start: token.start, end: token.end };
  }

  /** The location from a token to the last token that was taken. */
  #since(start: number): SourceLocation {
    return { start, end: this.#tokens[this.#next - 1]?.end ?? start };
  }

  #nest<T>(parse: () => T): T {
    this.#depth += 1;
    if (this.#depth > this.#maxDepth) {
      throw queryError(
        'tooComplex',
        `The query is nested deeper than ${this.#maxDepth} levels.`,
        this.#location(this.#peek()),
      );
    }
    const result = parse();
    this.#depth -= 1;
    return result;
  }

  #grow(expression: Expression, ...children: readonly Expression[]): Expression {
    let height = 0;
    for (const child of children) height = Math.max(height, this.#heights.get(child) ?? 0);
    height += 1;
    if (height > MAX_HEIGHT) {
      throw queryError('tooComplex', `An expression is a chain of more than ${MAX_HEIGHT} operators.`, expression.at);
    }
    this.#heights.set(expression, height);
    return expression;
  }

  // --- clauses

  #query(): Query {
    this.#expectWord('SELECT');
    const distinct = this.#acceptWord('DISTINCT');
    const top = this.#acceptWord('TOP') ? this.#rowCount() : undefined;
    const selection = this.#selection();
    const from = this.#from();
    const where = this.#acceptWord('WHERE') ? this.#expression() : undefined;
    let groupBy: Expression[] = [];
    if (this.#acceptWord('GROUP')) {
      this.#expectWord('BY');
      groupBy = this.#list(() => this.#expression());
    }
    let orderBy: OrderByItem[] = [];
    let orderByRank: SourceLocation | undefined;
    if (this.#acceptWord('ORDER')) {
      this.#expectWord('BY');
      if (this.#isWord('RANK') && this.#peek(1).kind === 'word') {
        orderByRank = this.#location(this.#take());
      }
      orderBy = this.#list(() => this.#orderByItem());
    }
    let offset: RowCount | undefined;
    let limit: RowCount | undefined;
    if (this.#acceptWord('OFFSET')) {
      offset = this.#rowCount();
      this.#expectWord('LIMIT');
      limit = this.#rowCount();
    }
    return { distinct, top, selection, from, where, groupBy, orderBy, orderByRank, offset, limit };
  }

  #list<T>(parse: () => T): T[] {
    const items = [parse()];
    while (this.#acceptSymbol(',')) items.push(parse());
    return items;
  }

  #rowCount(): RowCount {
    const token = this.#take();
    const at = this.#location(token);
    if (token.kind === 'number') return { kind: 'literal', value: Number(token.value), at };
    if (token.kind === 'parameter') return { kind: 'parameter', name: token.text, at };
    return this.#unexpected(token);
  }

  #orderByItem(): OrderByItem {
    const expression = this.#expression();
    if (this.#acceptWord('ASC')) return { expression, direction: 'ASC' };
    if (this.#acceptWord('DESC')) return { expression, direction: 'DESC' };
    return { expression, direction: undefined };
  }

  #selection(): Selection {
    const token = this.#peek();
    if (this.#acceptSymbol('*')) return { kind: 'star', at: this.#location(token) };
    if (this.#acceptWord('VALUE')) {
      const expression = this.#expression();
      // A VALUE may have an alias, but it has no meaning.
      this.#alias();
      return { kind: 'value', expression };
    }
    return { kind: 'list', items: this.#list(() => this.#selectItem()) };
  }

  /** The alias of an item may be a string, unlike that of a source. */
  #selectItem(): SelectItem {
    const expression = this.#expression();
    const quoted = this.#peek(this.#isWord('AS') ? 1 : 0);
    if (quoted.kind !== 'string') return { expression, alias: this.#alias() };
    this.#acceptWord('AS');
    return { expression, alias: String(this.#take().value) };
  }

  /** `AS name` takes any word; without AS only a word that can't begin the next clause. */
  #alias(): string | undefined {
    if (this.#acceptWord('AS')) return this.#anyName();
    const token = this.#peek();
    if (token.kind !== 'word' || RESERVED.has(token.upper)) return undefined;
    return this.#take().text;
  }

  /** After a dot every word is a name. Cosmos DB refuses some keywords there, but not always the same ones. */
  #anyName(): string {
    const token = this.#take();
    if (token.kind !== 'word') this.#unexpected(token);
    return token.text;
  }

  #name(): string {
    const token = this.#peek();
    if (token.kind !== 'word' || RESERVED.has(token.upper)) this.#unexpected(token);
    return this.#take().text;
  }

  #from(): FromSource[] {
    if (!this.#acceptWord('FROM')) return [];
    const sources = [this.#source()];
    while (this.#acceptWord('JOIN')) sources.push(this.#source());
    return sources;
  }

  #source(): FromSource {
    if (this.#peek().kind === 'word' && this.#isWord('IN', 1)) {
      const alias = this.#name();
      this.#expectWord('IN');
      const isCall = this.#peek().kind === 'word' && this.#isSymbol('(', 1);
      return { collection: isCall ? this.#called() : this.#collection(), alias, iterates: true };
    }
    const collection = this.#collection();
    return { collection, alias: this.#alias(), iterates: false };
  }

  /** `t IN f(…)` is short for `t IN (SELECT VALUE f(…))`. */
  #called(): Collection {
    const expression = this.#primary();
    const query = { ...NO_CLAUSES, selection: { kind: 'value', expression } } as const;
    return { kind: 'query', query, at: expression.at };
  }

  #collection(): Collection {
    const start = this.#peek().start;
    if (this.#acceptSymbol('(')) {
      const query = this.#nest(() => this.#query());
      this.#expectSymbol(')');
      return { kind: 'query', query, at: this.#since(start) };
    }
    const root = this.#name();
    const keys: (string | number)[] = [];
    for (;;) {
      if (this.#acceptSymbol('.')) {
        keys.push(this.#anyName());
      } else if (this.#acceptSymbol('[')) {
        const token = this.#take();
        if (token.kind !== 'string' && token.kind !== 'number') this.#unexpected(token);
        keys.push(typeof token.value === 'bigint' ? Number(token.value) : token.value);
        this.#expectSymbol(']');
      } else {
        return { kind: 'path', root, keys, at: this.#since(start) };
      }
    }
  }

  // --- expressions, from the loosest operator to the tightest

  #expression(): Expression {
    return this.#nest(() => {
      const start = this.#peek().start;
      const test = this.#coalesce();
      if (!this.#acceptSymbol('?')) return test;
      const whenTrue = this.#expression();
      this.#expectSymbol(':');
      const otherwise = this.#expression();
      return this.#grow(
        { kind: 'conditional', test, whenTrue, otherwise, at: this.#since(start) },
        test,
        whenTrue,
        otherwise,
      );
    });
  }

  #coalesce(): Expression {
    const start = this.#peek().start;
    let left = this.#or();
    while (this.#acceptSymbol('??')) left = this.#binary('??', left, this.#or(), start);
    return left;
  }

  #binary(operator: BinaryOperator, left: Expression, right: Expression, start: number): Expression {
    const at = this.#since(start);
    return this.#grow({ kind: 'binary', operator, left, right, at }, left, right);
  }

  #or(): Expression {
    return this.#logical('OR', () => this.#and());
  }

  #and(): Expression {
    return this.#logical('AND', () => this.#test());
  }

  #logical(operator: 'AND' | 'OR', parse: () => Expression): Expression {
    const start = this.#peek().start;
    const first = parse();
    if (!this.#isWord(operator)) return first;
    const operands = [first];
    while (this.#acceptWord(operator)) operands.push(parse());
    return this.#grow({ kind: 'logical', operator, operands, at: this.#since(start) }, ...this.#tallest(operands));
  }

  /** The expression with the highest tree, as a list: spreading all expressions would put them onto the stack. */
  #tallest(expressions: readonly Expression[]): Expression[] {
    let tallest: Expression | undefined;
    for (const expression of expressions) {
      const height = this.#heights.get(expression) ?? 0;
      if (tallest === undefined || height > (this.#heights.get(tallest) ?? 0)) tallest = expression;
    }
    return tallest === undefined ? [] : [tallest];
  }

  #unary(operator: UnaryOperator, operand: Expression, start: number): Expression {
    return this.#grow({ kind: 'unary', operator, operand, at: this.#since(start) }, operand);
  }

  /** Comparisons, which may be followed by IN, BETWEEN and LIKE. */
  #test(): Expression {
    const start = this.#peek().start;
    let left = this.#binaryLevel(0);
    for (;;) {
      const negated = this.#isWord('NOT') && this.#peek(1).kind === 'word';
      const keyword = this.#peek(negated ? 1 : 0);
      if (keyword.kind !== 'word' || !['IN', 'BETWEEN', 'LIKE'].includes(keyword.upper)) return left;
      this.#next += negated ? 2 : 1;
      left = this.#predicate(keyword.upper, left, start);
      if (negated) left = this.#unary('NOT', left, start);
      left = this.#chain(0, left, start);
    }
  }

  #predicate(keyword: string, operand: Expression, start: number): Expression {
    if (keyword === 'IN') {
      this.#expectSymbol('(');
      const items = this.#list(() => this.#expression());
      this.#expectSymbol(')');
      return this.#grow({ kind: 'in', operand, items, at: this.#since(start) }, operand, ...this.#tallest(items));
    }
    if (keyword === 'BETWEEN') {
      const low = this.#binaryLevel(0);
      this.#expectWord('AND');
      const high = this.#binaryLevel(0);
      return this.#grow({ kind: 'between', operand, low, high, at: this.#since(start) }, operand, low, high);
    }
    const pattern = this.#binaryLevel(0);
    let escape: string | undefined;
    if (this.#acceptWord('ESCAPE')) {
      const token = this.#take();
      if (token.kind !== 'string' || String(token.value).length !== 1) this.#unexpected(token);
      escape = String(token.value);
    }
    return this.#grow({ kind: 'like', operand, pattern, escape, at: this.#since(start) }, operand, pattern);
  }

  #binaryLevel(level: number): Expression {
    if (level === BINARY_LEVELS.length) return this.#prefix();
    const start = this.#peek().start;
    return this.#chain(level, this.#binaryLevel(level + 1), start);
  }

  /** Parses the operators of a level, and their right sides, after a given left side. */
  #chain(level: number, first: Expression, start: number): Expression {
    let left = first;
    for (;;) {
      const token = this.#peek();
      if (token.kind !== 'symbol' || BINARY_LEVELS[level]?.includes(token.text) !== true) return left;
      this.#next += 1;
      const operator = token.text === '<>' ? '!=' : token.text;
      left = this.#binary(operator as BinaryOperator, left, this.#binaryLevel(level + 1), start);
    }
  }

  #prefix(): Expression {
    const token = this.#peek();
    const isOperator = (token.kind === 'symbol' && ['-', '+', '~'].includes(token.text)) || this.#isWord('NOT');
    if (!isOperator) return this.#postfix();
    this.#next += 1;
    const operand = this.#nest(() => this.#prefix());
    if (token.text === '-' && operand.kind === 'literal' && ['number', 'bigint'].includes(typeof operand.value)) {
      return { kind: 'literal', value: negated(operand.value as number | bigint), at: this.#since(token.start) };
    }
    return this.#unary(token.upper as UnaryOperator, operand, token.start);
  }

  #postfix(): Expression {
    const start = this.#peek().start;
    let object = this.#primary();
    for (;;) {
      let key: Expression;
      if (this.#acceptSymbol('.')) {
        const token = this.#peek();
        key = { kind: 'literal', value: this.#anyName(), at: this.#location(token) };
      } else if (this.#acceptSymbol('[')) {
        key = this.#expression();
        this.#expectSymbol(']');
      } else {
        return object;
      }
      object = this.#grow({ kind: 'member', object, key, at: this.#since(start) }, object, key);
    }
  }

  #primary(): Expression {
    const token = this.#peek();
    const at = this.#location(token);
    switch (token.kind) {
      case 'string':
      case 'number':
        this.#next += 1;
        return { kind: 'literal', value: token.value, at };
      case 'parameter':
        this.#next += 1;
        return { kind: 'parameter', name: token.text, at };
      case 'symbol':
        return this.#bracketed(token);
      case 'word':
        return this.#wordExpression(token);
      default:
        return this.#unexpected(token);
    }
  }

  #bracketed(token: Token): Expression {
    if (this.#acceptSymbol('(')) {
      const inner = this.#isWord('SELECT') ? this.#subquery('scalar', token.start) : this.#expression();
      this.#expectSymbol(')');
      return inner;
    }
    if (this.#acceptSymbol('[')) {
      const items = this.#isSymbol(']') ? [] : this.#list(() => this.#expression());
      this.#expectSymbol(']');
      return this.#grow({ kind: 'array', items, at: this.#since(token.start) }, ...this.#tallest(items));
    }
    if (this.#acceptSymbol('{')) {
      const properties = this.#isSymbol('}') ? [] : this.#list(() => this.#property());
      this.#expectSymbol('}');
      return this.#grow(
        { kind: 'object', properties, at: this.#since(token.start) },
        ...this.#tallest(properties.map((property) => property.value)),
      );
    }
    return this.#unexpected(token);
  }

  #property(): { name: string; value: Expression } {
    const token = this.#take();
    if (token.kind !== 'string' && token.kind !== 'word') this.#unexpected(token);
    this.#expectSymbol(':');
    return { name: String(token.value), value: this.#expression() };
  }

  #subquery(form: SubqueryForm, start: number): Expression {
    const query = this.#nest(() => this.#query());
    return { kind: 'subquery', form, query, at: this.#since(start) };
  }

  #wordExpression(token: Token): Expression {
    const called = this.#isSymbol('(', 1);
    const form = SUBQUERY_FORMS.get(token.upper);
    if (form !== undefined && called && this.#isWord('SELECT', 2)) {
      this.#next += 2;
      const subquery = this.#subquery(form, token.start);
      this.#expectSymbol(')');
      return subquery;
    }
    if (token.upper === 'UDF' && this.#isSymbol('.', 1)) {
      this.#next += 2;
      const name = this.#anyName();
      return this.#call(name, true, token.start);
    }
    if (called && (!RESERVED.has(token.upper) || ['LEFT', 'RIGHT'].includes(token.upper))) {
      this.#next += 1;
      return this.#call(token.upper, false, token.start);
    }
    const at = this.#location(token);
    switch (token.upper) {
      case 'TRUE':
      case 'FALSE':
        this.#next += 1;
        return { kind: 'literal', value: token.upper === 'TRUE', at };
      case 'NULL':
        this.#next += 1;
        return { kind: 'literal', value: null, at };
      case 'UNDEFINED':
        this.#next += 1;
        return { kind: 'literal', value: undefined, at };
      default:
        return { kind: 'identifier', name: this.#name(), at };
    }
  }

  #call(name: string, userDefined: boolean, start: number): Expression {
    this.#expectSymbol('(');
    const args = this.#isSymbol(')') ? [] : this.#list(() => this.#expression());
    this.#expectSymbol(')');
    return this.#grow({ kind: 'call', name, userDefined, args, at: this.#since(start) }, ...this.#tallest(args));
  }
}

/** Parses a query. Throws a QueryError if the text is no query, is too long or is nested too deeply. */
export function parseQuery(sql: string, limits: ParseLimits = {}): Query {
  return new Parser(sql, limits).query();
}

/** Parses the condition of a patch: `FROM c WHERE …`. A whole query is accepted too; then only its FROM and WHERE count. */
export function parseCondition(sql: string): Query {
  return new Parser(sql, {}).condition();
}
