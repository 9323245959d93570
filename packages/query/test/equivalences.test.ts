import fc from 'fast-check';
import { expect, it } from 'vitest';
import {
  Chosen,
  documentFilter,
  DocumentPlaces,
  type FoundPlaces,
  hasLastingPlaces,
  isOfMany,
  isOrdered,
  type Json,
  OrderedPage,
  parseQuery,
  planQuery,
  QueryError,
  type RowPlace,
} from '../src/index.ts';
import { printQuery } from '../src/language/print.ts';
import { documents, expressions, plain, queries, unfolded } from './grammar.ts';
import { rows } from './run.ts';

type Documents = readonly Json[];

/** The rows, or the code of the error instead. */
function answer(sql: string, of: Documents): readonly (Json | undefined)[] | string {
  try {
    return rows(sql, of, [], { nowMs: 0 });
  } catch (error) {
    if (error instanceof QueryError) return error.errors[0]!.code;
    throw error;
  }
}

/** The value for each document in a list; an empty list if it is undefined. */
const each = (expression: string, of: Documents) => answer(`SELECT VALUE [${expression}] FROM c`, of);

const { any, truth } = expressions;
const RUNS = { numRuns: 300 };

it('a query has the same result after printing, and with constants that are known only when it runs', () => {
  fc.assert(
    fc.property(queries, documents, (query, of) => {
      const sql = plain(query);
      const found = answer(sql, of);
      expect(answer(printQuery(parseQuery(sql)), of)).toEqual(found);
      expect(answer(unfolded(query), of)).toEqual(found);
    }),
    RUNS,
  );
});

it.each(['1["a"]', '(-1)["a"]', '"a"["b"]', '[1]["a"]', '@p["a"]'])(
  '%s can be parsed again after printing',
  (expression) => {
    const query = parseQuery(`SELECT VALUE ${expression} FROM c`);
    expect(printQuery(parseQuery(printQuery(query)))).toBe(printQuery(query));
  },
);

it('every document satisfies a condition, or its negation, or has no boolean for it', () => {
  fc.assert(
    fc.property(truth.map(plain), documents, (condition, of) => {
      const parts = [condition, `NOT ${condition}`, `NOT IS_BOOL(${condition})`].map((filter) =>
        answer(`SELECT VALUE c.id FROM c WHERE ${filter}`, of),
      );
      if (parts.some((part) => typeof part === 'string')) return;
      expect(parts.flat().toSorted()).toEqual(of.map((document) => (document as { id: string }).id));
    }),
    RUNS,
  );
});

it('a condition on a JOIN chooses the same rows, at whichever level its parts are evaluated', () => {
  fc.assert(
    fc.property(truth.map(plain), truth.map(plain), truth.map(plain), documents, (outer, inner, both, of) => {
      const ofElement = inner.replaceAll(/\bc\./g, 'x.');
      const condition = `${outer} AND ${ofElement} AND (${both} OR ${ofElement})`;
      const from =
        'SELECT VALUE [c.id, x] FROM c JOIN x IN (SELECT VALUE [c, c.id, {}]) JOIN y IN (SELECT VALUE [1, 2])';
      expect(answer(`${from} WHERE ${condition}`, of)).toEqual(answer(`${from} WHERE true = (${condition})`, of));
    }),
    RUNS,
  );
});

it('an expression has the same value in every place of a query', () => {
  fc.assert(
    fc.property(any.map(plain), documents, (expression, of) => {
      const values = answer(`SELECT VALUE ${expression} FROM c`, of);
      expect(answer(`SELECT VALUE (SELECT VALUE ${expression}) FROM c`, of)).toEqual(values);
      expect(answer(`SELECT VALUE x FROM c JOIN x IN (SELECT VALUE [${expression}])`, of)).toEqual(values);
      expect(answer(`SELECT VALUE x.v FROM (SELECT ${expression} AS v FROM c) AS x`, of)).toEqual(values);
      if (typeof values === 'string') return;
      const distinct = answer(`SELECT DISTINCT ${expression} AS v FROM c`, of);
      const grouped = answer(`SELECT ${expression} AS v, COUNT(1) AS n FROM c GROUP BY ${expression}`, of);
      if (!/^[-'\d]|^(null|true|false)$/.test(expression)) expect(grouped).toHaveLength(distinct.length);
      const up = answer(`SELECT VALUE c.id FROM c ORDER BY ${expression}, c.id`, of);
      const down = answer(`SELECT VALUE c.id FROM c ORDER BY ${expression} DESC, c.id DESC`, of);
      expect([...down].toReversed()).toEqual(up);
    }),
    RUNS,
  );
});

it('comparisons have the same result with their sides exchanged, and in equivalent forms', () => {
  fc.assert(
    fc.property(any.map(plain), any.map(plain), documents, (a, b, of) => {
      const [left, right] = [`(${a})`, `(${b})`];
      for (const [one, other] of [
        [`${left} = ${right}, ${left} != ${right}`, `${right} = ${left}, ${right} != ${left}`],
        [`${left} < ${right}, ${left} >= ${right}`, `${right} > ${left}, ${right} <= ${left}`],
        [`${left} BETWEEN ${right} AND 3`, `${left} >= ${right} AND ${left} <= 3`],
        [`NOT (${left} = 1 AND ${right} = 2)`, `NOT (${left} = 1) OR NOT (${right} = 2)`],
        [`${left} IN (1, 'a', true)`, `${left} = 1 OR ${left} = 'a' OR ${left} = true`],
        [`${left} ?? ${right}`, `IIF(IS_DEFINED(${left}), ${left}, ${right})`],
      ] as const) {
        expect(each(one, of)).toEqual(each(other, of));
      }
    }),
    RUNS,
  );
});

/** Runs the test unless the query is refused, or fails on the documents. */
function unlessRefused(test: () => void): void {
  try {
    test();
  } catch (error) {
    if (!(error instanceof QueryError)) throw error;
  }
}

it('a document that is excluded by some of its properties gives the same as these alone', () => {
  let excluded = 0;
  fc.assert(
    fc.property(queries, documents, (query, of) => {
      const sql = plain(query);
      unlessRefused(() => {
        const filter = documentFilter(planQuery(parseQuery(sql)), [], {}, { nowMs: 0 });
        if (filter === undefined) return;
        for (const document of of) {
          const { part } = filter.partOf(document)!;
          if (!filter.excludes(part)) continue;
          excluded += 1;
          expect(answer(sql, [part])).toEqual(answer(sql, [document]));
          expect(answer(sql, [part])).toEqual(answer(sql, []));
        }
      });
    }),
    RUNS,
  );
  expect(excluded).toBeGreaterThan(20);
});

it('rows by their places, known or just found, are those of the documents', () => {
  let compared = 0;
  fc.assert(
    fc.property(queries, documents, (query, of) => {
      unlessRefused(() => {
        const plan = planQuery(parseQuery(plain(query)));
        if (!hasLastingPlaces(plan) || !isOrdered(plan)) return;
        const rowsOf = (offer: (page: OrderedPage) => void) => {
          const page = new OrderedPage(plan, {}, undefined, 100);
          offer(page);
          for (const _ of page.finishing());
          return page.rows().rows;
        };
        const whole = rowsOf((page) => page.offer(of, (index) => index));
        const found: (FoundPlaces | undefined)[] = [];
        const chosen = () => Chosen.of(null);
        const first = rowsOf((page) => {
          const places = new DocumentPlaces(plan, {});
          of.forEach((document, index) =>
            found.push(places.of(document, (place) => page.offerPlace(index, place, chosen))),
          );
        });
        const again = rowsOf((page) => {
          const offer = (index: number) => (place: RowPlace) => page.offerPlace(index, place, chosen);
          found.forEach((places, index) => {
            if (places !== undefined) places.rows.forEach(offer(index));
            else new DocumentPlaces(plan, {}).of(of[index]!, offer(index));
          });
        });
        compared += whole.length;
        // The rows of single documents are only chosen.
        const told = (rows: readonly { readonly row: Json }[]) =>
          isOfMany(plan) ? rows : rows.map(({ row: _, ...place }) => place);
        expect(told(first)).toEqual(told(whole));
        expect(told(again)).toEqual(told(whole));
      });
    }),
    RUNS,
  );
  expect(compared).toBeGreaterThan(20);
});
