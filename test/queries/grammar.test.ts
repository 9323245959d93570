import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import type { Continuation, QueryRequest } from '@epitaph/api/store/api/queries-api.ts';
import { evaluate, parseJson, parseQuery, planQuery, QueryError, type Json } from '@epitaph/query';
import { documents, plain, queries } from '../../packages/query/test/grammar.ts';
import { builtInHost, withUserFunctions } from '../../packages/query/test/host.ts';
import { definition } from '../clear-paths/histories.ts';
import { CALLER, withStore } from './store.ts';

let store: Store;
withStore('grammar', (opened) => {
  store = opened;
});

async function rowsOf(container: ContainerState, request: Omit<QueryRequest, 'parameters'>): Promise<unknown> {
  const rows: unknown[] = [];
  try {
    for (let continuation: Continuation | undefined; ;) {
      const page = await store.queryItems(container, { ...request, parameters: [], continuation });
      rows.push(...page.rows);
      if (page.continuation === undefined) return rows;
      ({ continuation } = page);
    }
  } catch (error) {
    if (error instanceof QueryError) return error.errors[0]!.code;
    throw error;
  }
}

function evaluated(sql: string, of: readonly Json[]): unknown {
  try {
    return [...evaluate(planQuery(parseQuery(sql), []), of, { nowMs: 0 })];
  } catch (error) {
    if (error instanceof QueryError) return error.errors[0]!.code;
    throw error;
  }
}

it('a query has the rows of plain evaluation in pages, with clear paths, with user-defined functions, and within a partition key', async () => {
  let containers = 0;
  await fc.assert(
    fc.asyncProperty(
      documents,
      fc.array(queries.map(plain), { minLength: 10, maxLength: 20 }),
      fc.integer({ min: 1, max: 5 }),
      async (of, asked, maxItemCount) => {
        containers += 1;
        const names = [`plain ${containers}`, `clear ${containers}`];
        for (const [index, paths] of [undefined, ['/n', '/s', '/o/x']].entries()) {
          await store.createContainer(CALLER, 'db', names[index]!, definition(paths), -1);
          const container = store.container('db', names[index]!);
          for (const document of of) {
            const { id, pk } = document as { readonly id: string; readonly pk: string };
            const item = { id, partitionKey: JSON.stringify([pk]), document, json: JSON.stringify(document) };
            await store.writeItem(CALLER, container, 'create', item);
          }
        }
        for (const sql of asked) {
          for (const container of names.map((name) => store.container('db', name))) {
            const { items } = await store.listItems(container, { maxItemCount: 1_000 });
            const stored = items.map(({ json }) => parseJson(json) as { readonly pk: string } & Json);
            const found = evaluated(sql, stored);
            // A page may be returned before the document at which the query fails.
            if (typeof found === 'string') continue;
            expect(await rowsOf(container, { sql, maxItemCount })).toEqual(found);
            const calling = { sql: withUserFunctions(sql), userFunctions: builtInHost(sql), maxItemCount };
            expect(await rowsOf(container, calling)).toEqual(found);
            expect(await rowsOf(container, { sql, maxItemCount, partitionKey: '["p1"]' })).toEqual(
              evaluated(
                sql,
                stored.filter(({ pk }) => pk === 'p1'),
              ),
            );
          }
        }
      },
    ),
    { numRuns: 15 },
  );
}, 60_000);
