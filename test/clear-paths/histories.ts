import fc from 'fast-check';
import { expect } from 'vitest';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { Continuation } from '@epitaph/api/store/api/queries-api.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { evaluate, type Json, parseJson, parseQuery, planQuery } from '@epitaph/query';
import { DEFINITION } from '../support/definition.ts';

export const CALLER = { actor: 'key:primary', correlationId: '00000000-0000-4000-8000-000000000000' };
export const CLEAR_PATHS = ['/status', '/address/city', '/n', '/"odd name"/x'];

export const definition = (clearPaths?: readonly string[]) => ({
  ...DEFINITION,
  ...(clearPaths === undefined ? {} : { epitaph: { clearPaths: [...clearPaths] } }),
});

type Fields = Readonly<Record<string, unknown>>;

/** Few values, so that many are equal, including some that are adjacent or look alike. */
const long = 'long '.repeat(40);
const scalar = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom('new', 'open', 'shipped', 1, 2, 3) },
  fc.constantFrom(null, false, true, 0, -0, -1, 1.5, 1e300, -1e-300, Number.MAX_SAFE_INTEGER + 1),
  fc.constantFrom('', '1', 'news', '\ud800', '\uffff', '🪦', `${long}a`, `${long}b`, long, 'nul \0'),
);
const value = fc.oneof({ weight: 9, arbitrary: scalar }, fc.constantFrom([], ['open'], {}, { city: 'open' }));
const fields: fc.Arbitrary<Fields> = fc.record(
  {
    status: value,
    address: fc.oneof(fc.record({ city: value }, { requiredKeys: [] }), value),
    n: value,
    'odd name': fc.record({ x: value }),
    free: value,
    list: fc.array(scalar, { maxLength: 3 }),
  },
  { requiredKeys: [] },
);

const name = { id: fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f', 'g'), pk: fc.constantFrom('p', 'q', 'r') };
const ttl = fc.constantFrom(undefined, undefined, undefined, -1, 5, 20);
const write = fc.record({ ...name, fields, ttl });
type Written = typeof write extends fc.Arbitrary<infer Found> ? Found : never;
const path = fc.constantFrom('/status', '/n', '/address', '/address/city', '/odd name/x', '/free');

const step = fc.oneof(
  { weight: 8, arbitrary: write.map((item) => ({ kind: 'upsert' as const, item })) },
  { weight: 2, arbitrary: write.map((item) => ({ kind: 'replace' as const, item })) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('patch' as const), ...name, path, value }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('patch' as const), ...name, path }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('batch' as const),
      pk: name.pk,
      items: fc.array(write, { minLength: 1, maxLength: 3 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('delete' as const), ...name }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('recover' as const), ...name }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('erase' as const), ...name }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('delete-key' as const), pk: name.pk }) },
  { weight: 1, arbitrary: fc.constant({ kind: 'purge' as const }) },
);
export type Step = typeof step extends fc.Arbitrary<infer Found> ? Found : never;

/** Steps that need a clock that can be advanced. */
const timeStep = fc.oneof(
  fc.constantFrom(3, 10, 30).map((seconds) => ({ kind: 'advance' as const, seconds })),
  fc.constantFrom(null, -1, 8).map((defaultTtl) => ({ kind: 'policy' as const, defaultTtl })),
);
export type TimeStep = typeof timeStep extends fc.Arbitrary<infer Found> ? Found : never;

export const steps = fc.array(step, { minLength: 5, maxLength: 40 });
export const stepsInTime = fc.array(fc.oneof({ weight: 8, arbitrary: step }, { weight: 1, arbitrary: timeStep }), {
  minLength: 5,
  maxLength: 40,
});

const itemOf = ({ id, pk, fields: own, ttl: seconds }: Written) => {
  const document = { id, pk, ...own, ...(seconds === undefined ? {} : { ttl: seconds }) };
  return { id, partitionKey: JSON.stringify([pk]), document, json: JSON.stringify(document) };
};

/** Carries out a step, and returns "done" or the code of the refusal. */
export async function play(store: Store, container: ContainerState, one: Step | TimeStep): Promise<string> {
  const key = 'pk' in one ? JSON.stringify([one.pk]) : '';
  const reason = 'a test';
  try {
    switch (one.kind) {
      case 'upsert':
      case 'replace':
        await store.writeItem(CALLER, container, one.kind, itemOf(one.item));
        break;
      case 'patch': {
        const operation =
          'value' in one
            ? { op: 'set' as const, path: one.path, value: one.value }
            : { op: 'remove' as const, path: one.path };
        await store.patchItem(CALLER, container, one.id, key, { operations: [operation] });
        break;
      }
      case 'batch': {
        const operations = one.items.map(
          (item) => ({ kind: 'write', operation: 'upsert', item: itemOf({ ...item, pk: one.pk }) }) as const,
        );
        const outcome = await store.batchItems(CALLER, container, operations);
        return outcome.kind;
      }
      case 'delete':
        await store.deleteItem(CALLER, container, one.id, key);
        break;
      case 'recover':
        await store.recoverItem(CALLER, container, one.id, key, { reason });
        break;
      case 'erase':
        await store.eraseItem(CALLER, container, one.id, key, { reason, requestedBy: 'somebody' });
        break;
      case 'delete-key':
        await store.deletePartitionKey(CALLER, container, key);
        break;
      case 'policy':
        await store.changeTtl(CALLER, 'db', container.name, { defaultTtl: one.defaultTtl, confirmed: false });
        break;
      case 'purge':
      case 'advance':
        // These steps do not belong to one container.
        break;
    }
    return 'done';
  } catch (error) {
    if (error instanceof Refusal) return error.code;
    throw error;
  }
}

const DOCUMENT_PATHS = ['c.status', 'c.address.city', 'c["n"]', 'c["odd name"].x', 'c.free', 'c.address'] as const;
const operator = fc.constantFrom('=', '=', '=', '<', '<=', '>', '>=', '!=');

interface Text {
  readonly sql: string;
  readonly values: readonly unknown[];
}

const keys = fc.uniqueArray(fc.constantFrom('p', 'q', 'r', 'nobody', 1, null), { minLength: 1, maxLength: 3 });
const hasKey = (pk: string): Text => ({ sql: 'c.pk = ?', values: [pk] });

/** A time this many seconds before the last write to the documents that a query reads. */
class Ago {
  readonly seconds: number;

  constructor(seconds: number) {
    this.seconds = seconds;
  }
}
const id = fc.constantFrom('a', 'b', 'g', 'nobody', '', 'a\0', 5, null);
const ago = fc.constantFrom(0, 0, 0.5, 3, 10, 13, 1e300, -1e300).map((seconds) => new Ago(seconds));

/** Each constant is a `?` until the query has all of them. */
const { condition } = fc.letrec<{ condition: Text; comparison: Text }>((tie) => ({
  comparison: fc.oneof(
    {
      weight: 6,
      arbitrary: fc
        .tuple(fc.constantFrom(...DOCUMENT_PATHS), operator, scalar)
        .map(([at, op, constant]) => ({ sql: `${at} ${op} ?`, values: [constant] })),
    },
    fc
      .tuple(fc.constantFrom(...DOCUMENT_PATHS), operator, value)
      .map(([at, op, constant]) => ({ sql: `? ${op} ${at}`, values: [constant] })),
    fc
      .tuple(fc.constantFrom(...DOCUMENT_PATHS), fc.array(value, { minLength: 1, maxLength: 3 }))
      .map(([at, list]) => ({ sql: `${at} IN (${list.map(() => '?').join(', ')})`, values: list })),
    fc
      .tuple(fc.constantFrom(...DOCUMENT_PATHS), fc.array(scalar, { maxLength: 3 }))
      .map(([at, list]) => ({ sql: `ARRAY_CONTAINS(?, ${at})`, values: [list] })),
    fc
      .tuple(fc.constantFrom(...DOCUMENT_PATHS), scalar, scalar)
      .map(([at, low, high]) => ({ sql: `${at} BETWEEN ? AND ?`, values: [low, high] })),
    id.map((one) => ({ sql: 'c.id = ?', values: [one] })),
    fc.array(id, { minLength: 1, maxLength: 3 }).map((list) => ({ sql: 'ARRAY_CONTAINS(?, c.id)', values: [list] })),
    fc.tuple(operator, ago).map(([op, time]) => ({ sql: `c._ts ${op} ?`, values: [time] })),
    fc.tuple(ago, ago).map((times) => ({ sql: 'c._ts BETWEEN ? AND ?', values: times })),
    fc.constantFrom(...DOCUMENT_PATHS).map((at) => ({ sql: `IS_DEFINED(${at})`, values: [] })),
    fc.constantFrom('p', 'q').map((pk) => ({ sql: 'c.pk = ?', values: [pk] })),
    keys.map((list) => ({ sql: `c.pk IN (${list.map(() => '?').join(', ')})`, values: list })),
    keys.map((list) => ({ sql: list.map(() => 'c.pk = ?').join(' OR '), values: list })),
    keys.map((list) => ({ sql: 'c.id IN ("a", "b", "c") AND ARRAY_CONTAINS(?, c.pk)', values: [list] })),
    fc
      .tuple(name.pk, tie('comparison'), name.pk, tie('comparison'))
      .map(([one, first, other, second]) =>
        joined('OR', joined('AND', hasKey(one), first), joined('AND', hasKey(other), second)),
      ),
  ),
  condition: fc.oneof(
    { maxDepth: 2, depthSize: 'small' },
    { weight: 3, arbitrary: tie('comparison') },
    {
      weight: 3,
      arbitrary: fc.tuple(tie('condition'), tie('condition')).map(([left, right]) => joined('AND', left, right)),
    },
    {
      weight: 2,
      arbitrary: fc.tuple(tie('condition'), tie('condition')).map(([left, right]) => joined('OR', left, right)),
    },
    { weight: 1, arbitrary: tie('condition').map((inner) => ({ ...inner, sql: `NOT (${inner.sql})` })) },
  ),
}));

const joined = (word: string, left: Text, right: Text): Text => ({
  sql: `(${left.sql}) ${word} (${right.sql})`,
  values: [...left.values, ...right.values],
});

/** Queries whose order of rows depends only on the documents. Rows of one document come in the order of the documents. */
const shape = fc.constantFrom(
  (where: string) => `SELECT c.id, c.pk, c.status, c.n FROM c WHERE ${where}`,
  (where: string) => `SELECT VALUE [c.id, c.pk] FROM c WHERE ${where} ORDER BY c.n DESC, c.id, c.pk`,
  (where: string) => `SELECT TOP 3 c.id, c.pk FROM c WHERE ${where}`,
  (where: string) => `SELECT VALUE COUNT(1) FROM c WHERE ${where}`,
  (where: string) => `SELECT c.status, COUNT(1) AS count, MAX(c.n) AS most FROM c WHERE ${where} GROUP BY c.status`,
  (where: string) => `SELECT DISTINCT VALUE c.address FROM c WHERE ${where}`,
  (where: string) => `SELECT VALUE [c.id, x] FROM c JOIN x IN c.list WHERE ${where}`,
  (where: string) => `SELECT VALUE [c.id, x] FROM c JOIN x IN c.list WHERE ${where} ORDER BY x DESC, c.status`,
  (where: string) => `SELECT DISTINCT VALUE c.address FROM c WHERE ${where} ORDER BY c.address`,
  (where: string) => `SELECT DISTINCT c.n, c.status FROM c WHERE ${where} ORDER BY c.status DESC`,
  (where: string) => `SELECT VALUE [c.status, c.n] FROM c WHERE ${where} GROUP BY c.n, c.status`,
  (where: string) => `SELECT c.status, COUNT(1) AS n FROM c WHERE ${where} GROUP BY c.status ORDER BY c.status DESC`,
  (where: string) => `SELECT VALUE c.pk FROM c WHERE ${where} GROUP BY c.pk ORDER BY COUNT(1) OFFSET 1 LIMIT 1`,
  (where: string) => `SELECT VALUE x.id FROM (SELECT * FROM c WHERE ${where}) AS x WHERE x.pk = 'p'`,
  (where: string) => `SELECT VALUE c.id FROM c WHERE ${where} OFFSET 1 LIMIT 2`,
  (where: string) =>
    `SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE x FROM x IN c.list WHERE x = c.n) AND (${where})`,
);

export const question = fc
  .record({
    condition,
    shape,
    maxItemCount: fc.integer({ min: 1, max: 5 }),
    pk: fc.constantFrom(undefined, undefined, 'p'),
  })
  .map(({ condition: { sql, values }, shape: shaped, maxItemCount, pk }) => {
    let count = 0;
    const named = sql.replaceAll('?', () => `@v${count++}`);
    return {
      sql: shaped(named),
      parameters: values.map((constant, index) => ({ name: `@v${index}`, value: constant })),
      maxItemCount,
      ...(pk === undefined ? {} : { partitionKey: JSON.stringify([pk]) }),
    };
  });
export type Question = typeof question extends fc.Arbitrary<infer Found> ? Found : never;

/** All pages of a query's answer, and the number of documents examined for them. */
async function answered(store: Store, container: ContainerState, asked: Question) {
  const rows: unknown[] = [];
  let examined = 0;
  for (let continuation: Continuation | undefined; ;) {
    const page = await store.queryItems(container, { ...asked, continuation });
    rows.push(...page.rows);
    examined += page.examined;
    continuation = page.continuation;
    if (continuation === undefined) return { rows, examined };
  }
}

/** The documents that clients see, in order of birth. */
async function documentsOf(store: Store, container: ContainerState): Promise<Fields[]> {
  const { items } = await store.listItems(container, { maxItemCount: 1_000 });
  return items.map(({ json, ts }) => ({ ...(parseJson(json) as Fields), _ts: ts }));
}

const withoutTimes = (documents: readonly Fields[]) => documents.map(({ _ts: _, ...rest }) => rest);
const timesOf = (documents: readonly Fields[]) => documents.map(({ _ts }) => _ts as number);

/**
 * Both containers have the same history. Asks both of them, and evaluates the query over the plain documents. If the clocks move, the same
 * write may be a second later in one of them.
 *
 * @returns how many documents were examined in each
 */
export async function compare(store: Store, clear: ContainerState, plain: ContainerState, drawn: Question) {
  const [inPlain, inClear] = [await documentsOf(store, plain), await documentsOf(store, clear)];
  expect(withoutTimes(inClear)).toEqual(withoutTimes(inPlain));
  const last = Math.max(0, ...timesOf(inPlain));
  const parameters = drawn.parameters.map(({ name: parameter, value: given }) => ({
    name: parameter,
    value: given instanceof Ago ? last - given.seconds : given,
  }));
  const asked = { ...drawn, parameters };
  const plan = planQuery(parseQuery(asked.sql), asked.parameters as { name: string; value: Json }[]);
  const bare = (documents: readonly Fields[]) => {
    const scope = documents.filter(
      ({ pk }) => asked.partitionKey === undefined || asked.partitionKey === JSON.stringify([pk]),
    );
    return [...evaluate(plan, scope as Json[])];
  };
  const pushed = await answered(store, plain, asked);
  const cleared = await answered(store, clear, asked);
  expect(pushed.rows).toEqual(bare(inPlain));
  expect(cleared.rows).toEqual(bare(inClear));
  const isSameTime = timesOf(inClear).every((ts, index) => ts === timesOf(inPlain)[index]);
  if (isSameTime) expect(cleared.examined).toBeLessThanOrEqual(pushed.examined);
  return { pushed: pushed.examined, cleared: cleared.examined };
}
