import { type Container, TriggerOperation, TriggerType } from '@azure/cosmos';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { keyHeader, raw } from '../support/raw.ts';
import { READ_ONLY_KEY, CALLER, refusalOf, World } from '../support/world.ts';

let world: World;
let container: Container;
beforeAll(async () => {
  world = await World.open();
});
afterAll(() => world.end());
beforeEach(async () => {
  container = await world.container();
});

const put = (id: string, more: object = {}) => container.items.create({ id, customer: 'ann', ...more });

async function idsOf(customer = 'ann'): Promise<string[]> {
  const asked = container.items.query<string>('SELECT VALUE c.id FROM c ORDER BY c.id', { partitionKey: customer });
  return (await asked.fetchAll()).resources;
}

let procedures = 0;
/** Stores a procedure and runs it for `ann`. */
async function run(body: string, args: unknown[] = [], options: { enableScriptLogging?: boolean } = {}) {
  await container.scripts.storedProcedures.create({ id: `run ${++procedures}`, body });
  return container.scripts.storedProcedure(`run ${procedures}`).execute('ann', args, options);
}

const answering = (body: string): string =>
  `function () { const c = getContext().getCollection(); const r = getContext().getResponse(); ${body} }`;

describe('a stored procedure', () => {
  test('can be created, read, listed, queried, replaced and deleted by clients, and stays after a restart', async () => {
    const { storedProcedures } = container.scripts;
    const { resource: made } = await storedProcedures.create({ id: 'p', body: 'function () {}' });
    expect(made).toMatchObject({ id: 'p', body: 'function () {}' });
    expect(made?._self).toMatch(/\/sprocs\/.{24}\/$/);
    expect(Number.isInteger(made!._ts)).toBe(true);
    expect(Math.abs(made!._ts - (await world.now()) / 1000)).toBeLessThan(10);
    expect((await refusalOf(storedProcedures.create({ id: 'p', body: 'function () {}' }))).code).toBe(409);
    // From these headers clients know the container of the procedure.
    const ofContainer = {
      'x-ms-alt-content-path': `dbs/shop/colls/${container.id}`,
      'x-ms-content-path': made!._self.split('/')[3],
    };
    expect((await container.scripts.storedProcedure('p').read()).headers).toMatchObject(ofContainer);
    const { resource: changed } = await container.scripts
      .storedProcedure('p')
      .replace({ id: 'p', body: 'function (a) {}' });
    expect(changed).toMatchObject({ body: 'function (a) {}', _rid: made!._rid });
    expect(changed!._etag).not.toBe(made!._etag);
    const asAnother = container.scripts.storedProcedure('p').replace({ id: 'other', body: 'function () {}' });
    expect((await refusalOf(asAnother)).code).toBe(400);
    await storedProcedures.create({ id: 'q', body: 'function () {}' });
    const query = 'SELECT VALUE s.id FROM s WHERE s.id > "p"';
    expect((await storedProcedures.query<string>({ query, parameters: [] }).fetchAll()).resources).toEqual(['q']);
    await world.restart();
    container = world.of(container.id);
    expect((await container.scripts.storedProcedures.readAll().fetchAll()).resources.map(({ id }) => id)).toEqual([
      'p',
      'q',
    ]);
    const { headers } = await container.read({ populateQuotaInfo: true });
    expect(headers['x-ms-resource-usage']).toContain('functions=0;storedProcedures=2;triggers=0;');
    const procedure = container.scripts.storedProcedure('p');
    const deleted = await Promise.allSettled([procedure.delete(), procedure.delete()]);
    expect(
      deleted.map((one) => (one.status === 'rejected' ? (one.reason as { code: number }).code : 204)).toSorted(),
    ).toEqual([204, 404]);
    expect((await refusalOf(container.scripts.storedProcedure('p').read())).code).toBe(404);
    expect((await refusalOf(container.scripts.storedProcedure('p').execute('ann'))).code).toBe(404);
    // A procedure that is created again under the same name is another one.
    const { resource: again } = await container.scripts.storedProcedures.create({ id: 'p', body: 'function () {}' });
    expect(again!._rid).not.toBe(made!._rid);
  });

  test('reads the time of the store’s clock', async () => {
    await world.advance(3_600_000);
    const { resource } = await run('function () { getContext().getResponse().setBody(Date.now()); }');
    expect(Math.abs(Number(resource) - (await world.now()))).toBeLessThan(10_000);
  });

  test('gets its arguments, and its answer is the body that it sets', async () => {
    const echo = 'function (a, b) { getContext().getResponse().setBody({ sum: a + b.n, more: [null, "é", true] }); }';
    const { resource, requestCharge } = await run(echo, [1, { n: 2 }]);
    expect(resource).toEqual({ sum: 3, more: [null, 'é', true] });
    expect(requestCharge).toBeGreaterThan(0);
  });

  test('accepts an array-like object as arguments', async () => {
    const body = 'function (a, b) { getContext().getResponse().setBody(typeof a + (b || "")); }';
    await container.scripts.storedProcedures.create({ id: 'p', body });
    const path = `/dbs/shop/colls/${container.id}/sprocs/p`;
    for (const [given, answer] of [
      ['null', '"undefined"'],
      ['{"a":4}', '"undefined"'],
      ['{"0":4,"1":"b","length":"1"}', '"number"'],
      ['{"1":"b","0":4,"length":2.5}', '"numberb"'],
    ]) {
      const { status, text } = await raw(world.endpoint, 'POST', path, { headers: keyHeader('ann'), body: given! });
      expect([given, status, text]).toEqual([given, 200, answer]);
    }
  });

  test('sees its own writes, and its answer has the etags and rids of the recorded items', async () => {
    await put('old', { n: 1 });
    const { resource, requestCharge } = await run(
      answering(`
        c.createDocument(c.getSelfLink(), { id: 'new', customer: 'ann', n: 2 }, (error, made) => {
          if (error) throw error;
          c.queryDocuments(c.getSelfLink(), 'SELECT * FROM c ORDER BY c.n', (error, all) => {
            if (error) throw error;
            all[0].n = 10;
            c.replaceDocument(all[0]._self, all[0], { etag: all[0]._etag }, (error, replaced) => {
              if (error) throw error;
              c.readDocument(c.getAltLink() + '/docs/new', (error, read) => {
                if (error) throw error;
                r.setBody({ made, read, replaced, ids: all.map((one) => one.id) });
              });
            });
          });
        });`),
    );
    expect(requestCharge).toBeGreaterThan(10);
    expect(resource.ids).toEqual(['old', 'new']);
    const { resource: made } = await container.item('new', 'ann').read();
    const { resource: old } = await container.item('old', 'ann').read();
    const { _attachments: _, _ts: __, ...own } = made!;
    expect(resource.made).toMatchObject(own);
    expect(resource.read).toMatchObject(own);
    expect(resource.replaced).toMatchObject({ n: 10, _etag: old!._etag, _rid: old!._rid });
    expect(old).toMatchObject({ n: 10 });
  });

  test('has the _ts of the recorded items in its answer, even if the script wrote them in an earlier second', async () => {
    const over = new AbortController();
    const running = run(
      answering(`c.createDocument(c.getSelfLink(), { id: 'first', customer: 'ann' }, (error, first) => {
        (function again() {
          c.upsertDocument(c.getSelfLink(), { id: 'last', customer: 'ann' }, (error, last) => {
            if (last._ts === first._ts) again();
            else r.setBody({ first, text: JSON.stringify([first, last]), other: { ...first, _etag: 'other' } });
          });
        })();
      });`),
    ).finally(() => over.abort());
    while (!over.signal.aborted) await world.advance(1_000);
    const { resource } = await running;
    const { resource: first } = await container.item('first', 'ann').read();
    const { resource: last } = await container.item('last', 'ann').read();
    expect(resource.first).toEqual(first);
    expect(JSON.parse(resource.text)).toEqual([first, last]);
    expect(resource.other._ts).toBeLessThan(first!._ts);
  });

  test('gets the status of each of its operations', async () => {
    await put('old');
    const { resource } = await run(
      answering(`const heard = [];
        const self = c.getSelfLink(), link = (id) => c.getAltLink() + '/docs/' + id;
        const hears = (error, document, options) => {
          heard.push(error ? error.number : options.statusCode);
          r.setBody(heard);
        };
        for (const id of ['old', 'new', 'new']) c.upsertDocument(self, { id, customer: 'ann' }, hears);
        for (const id of ['a', 'old']) c.createDocument(self, { id, customer: 'ann' }, hears);
        c.replaceDocument(link('a'), { id: 'a', customer: 'ann' }, hears);
        c.readDocument(link('new'), (error, document, options) => {
          hears(error, document, options);
          c.readDocument(link('new'), { ifNoneMatch: document._etag }, hears);
        });
        c.deleteDocument(link('a'), hears);
        c.upsertDocument(self, { id: 'a', customer: 'ann' }, hears);
        c.queryDocuments(self, 'SELECT * FROM c', hears);`),
    );
    expect(resource).toEqual([200, 201, 200, 201, 409, 200, 200, 204, 201, null, 304]);
  });

  test('records nothing if it fails, and the answer says why', async () => {
    await put('there');
    const head = await world.head();
    const { code, message } = await refusalOf(
      run(
        answering(`c.deleteDocument(c.getAltLink() + '/docs/there', () => {
          c.createDocument(c.getSelfLink(), { id: 'half', customer: 'ann' }, () => { throw new Error('not like this'); });
        });`),
      ),
    );
    expect(code).toBe(400);
    expect(message).toContain('not like this');
    expect(await idsOf()).toEqual(['there']);
    // This 404 is about the procedure itself.
    expect(await world.head()).toBe(head + 1);
  });

  test('that throws an error with a number fails with that number as substatus', async () => {
    const thrown = async (error: string) => {
      const { code, substatus, message } = await refusalOf(run(`function () { throw ${error}; }`));
      expect([code, message]).toEqual([
        400,
        expect.stringContaining('Encountered exception while executing Javascript.'),
      ]);
      return substatus;
    };
    expect(await thrown("new Error(1234, 'no')")).toBe(1234);
    for (const without of ["new Error('no')", "new Error(0, 'no')", '{ number: 2 ** 31 }']) {
      expect([without, await thrown(without)]).toEqual([without, undefined]);
    }
  });

  test('gets refusals in its callbacks; without a callback a refusal ends the script', async () => {
    await put('there');
    const tried = answering(`
      c.createDocument(c.getSelfLink(), { id: 'there', customer: 'ann' }, (taken) => {
        c.createDocument(c.getSelfLink(), { id: 'x', customer: 'bob' }, (other) => {
          c.readDocument(c.getAltLink() + '/docs/none', (missing) => {
            c.queryDocuments(c.getSelfLink(), 'SELEKT', (wrong) => {
              c.replaceDocument(c.getAltLink() + '/docs/there', { id: 'there', customer: 'ann' }, { etag: '"x"' }, (changed) => {
                // It has fewer characters than a document may have bytes, but more bytes.
                c.createDocument(c.getSelfLink(), { id: 'large', customer: 'ann', text: '漢'.repeat(1024 * 1024) }, (large) => {
                  r.setBody([taken, other, missing, wrong, changed, large].map((error) => error && error.number));
                });
              });
            });
          });
        });
      });`);
    expect((await run(tried)).resource).toEqual([409, 400, 404, 400, 412, 413]);
    const { code, message } = await refusalOf(run(answering("c.deleteDocument(c.getAltLink() + '/docs/none');")));
    expect(code).toBe(400);
    expect(message).toMatch(/Entity with the specified id does not exist/);
  });

  test('can give an item another id by a replace, unless the id is taken', async () => {
    await put('old', { n: 1 });
    await put('taken');
    const { resource } = await run(
      answering(`
        c.readDocument(c.getAltLink() + '/docs/old', (error, old) => {
          if (error) throw error;
          c.replaceDocument(old._self, { ...old, id: 'taken' }, (taken) => {
            c.replaceDocument(old._self, { ...old, id: 'x' }, { etag: '"other"' }, (changed) => {
              c.replaceDocument(old._self, { ...old, id: 'new' }, { etag: old._etag }, (error, made) => {
                if (error) throw error;
                c.readDocument(old._self, (gone) => r.setBody({ taken: taken.number, changed: changed.number, gone: gone.number, made }));
              });
            });
          });
        });`),
    );
    expect(resource).toMatchObject({ taken: 409, changed: 412, gone: 404, made: { id: 'new', n: 1 } });
    expect(await idsOf()).toEqual(['new', 'taken']);
    const { resource: item } = await container.item('new', 'ann').read();
    expect(item).toMatchObject({ _etag: resource.made._etag, _self: resource.made._self });
    expect((await world.explain(container.id, 'old')).renamedTo).toEqual({ id: 'new', life: 0 });
  });

  test('creates documents without an id, or with an empty one, under a generated id', async () => {
    const { resource } = await run(
      answering(`
        const ids = [];
        const made = (error, { id }) => { if (error) throw error; ids.push(id); r.setBody(ids); };
        c.createDocument(c.getSelfLink(), { customer: 'ann' }, made);
        c.createDocument(c.getSelfLink(), { customer: 'ann', id: '' }, made);
        c.upsertDocument(c.getSelfLink(), '{"customer":"ann","id":null}', made);
        c.createDocument(c.getSelfLink(), { customer: 'ann', id: '' }, { disableAutomaticIdGeneration: true }, (error) => {
          r.setBody([...ids, error.number]);
        });`),
    );
    expect(resource).toEqual([
      ...Array.from({ length: 3 }, () => expect.stringMatching(/^.{8}-.{27}$/) as string),
      400,
    ]);
    expect(await idsOf()).toEqual(resource.slice(0, 3).toSorted());
  });

  test('links to its collection by names, even if it was called by rids', async () => {
    await put('there');
    const body = answering(
      "c.readDocument(c.getAltLink() + '/docs/there', (_, { id }) => r.setBody([c.getAltLink(), id]));",
    );
    const { resource } = await container.scripts.storedProcedures.create({ id: 'p', body });
    const signed = { type: 'sprocs', link: resource!._rid.toLowerCase() };
    const answer = await raw(world.endpoint, 'POST', `/${resource!._self}`, {
      headers: keyHeader('ann'),
      body: '[]',
      signed,
    });
    expect(answer).toMatchObject({ status: 200, text: JSON.stringify([`dbs/shop/colls/${container.id}`, 'there']) });
  });

  test('can delete a partition key in several calls, like the widely used bulk delete procedure', async () => {
    for (let n = 0; n < 12; n++) await put(`item-${n}`, { n });
    const bulkDelete = `function (query) {
      const collection = getContext().getCollection();
      const response = getContext().getResponse();
      const answer = { deleted: 0, continuation: true };
      tryQueryAndDelete();
      function tryQueryAndDelete(continuation) {
        const options = { continuation, pageSize: 5 };
        const isAccepted = collection.queryDocuments(collection.getSelfLink(), query, options, (error, documents, { continuation }) => {
          if (error) throw error;
          if (documents.length > 0) tryDelete(documents);
          else if (continuation) tryQueryAndDelete(continuation);
          else { answer.continuation = false; response.setBody(answer); }
        });
        if (!isAccepted) response.setBody(answer);
      }
      function tryDelete(documents) {
        if (documents.length === 0) return tryQueryAndDelete();
        const isAccepted = collection.deleteDocument(documents[0]._self, {}, (error) => {
          if (error) throw error;
          answer.deleted++;
          documents.shift();
          tryDelete(documents);
        });
        if (!isAccepted) response.setBody(answer);
      }
    }`;
    const { resource } = await run(bulkDelete, ['SELECT * FROM c WHERE c.n >= 2']);
    expect(resource).toEqual({ deleted: 10, continuation: false });
    expect(await idsOf()).toEqual(['item-0', 'item-1']);
    const history = await world.history(container.id, 'item-5');
    expect(history.map(({ type }) => type)).toEqual(['ItemUpserted', 'ItemDeleted']);
    // The cause is the event that stored the script.
    const { resource: procedure } = await container.scripts.storedProcedure(`run ${procedures}`).read();
    const causes = history.map(({ causationId }) => causationId && `"${causationId}"`);
    expect(causes).toEqual([undefined, procedure!._etag]);
    expect(await world.fsck()).toEqual([]);
  });

  test('can change the items that a query finds page by page, each item once', async () => {
    for (let n = 0; n < 7; n++) await put(`item-${n}`, { n: 0 });
    const { resource } = await run(
      answering(`
        let pages = 0;
        next();
        function next(continuation) {
          c.queryDocuments(c.getSelfLink(), 'SELECT * FROM c', { pageSize: 3, continuation }, (error, found, options) => {
            if (error) throw error;
            pages++;
            for (const one of found) {
              one.n++;
              c.replaceDocument(one._self, one, (error) => { if (error) throw error; });
            }
            if (options.continuation) next(options.continuation); else r.setBody(pages);
          });
        }`),
    );
    expect(resource).toBe(3);
    const { resources } = await container.items.query('SELECT VALUE c.n FROM c').fetchAll();
    expect(resources).toEqual([1, 1, 1, 1, 1, 1, 1]);
  });

  test('can query 64-bit integers before and after it has written, and reads them as doubles', async () => {
    const body = '{"id":"long","customer":"ann","n":1234567890123456789}';
    await raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/docs`, { headers: keyHeader('ann'), body });
    const { resource } = await run(
      answering(`
        const ask = (next) => c.queryDocuments(c.getSelfLink(), 'SELECT VALUE c.n FROM c WHERE IS_DEFINED(c.n)', (error, found) => {
          if (error) throw error;
          next(found);
        });
        ask((before) => c.createDocument(c.getSelfLink(), { id: 'other', customer: 'ann' }, () => ask((after) => r.setBody([before, after]))));`),
    );
    expect(resource).toEqual([[1234567890123456800], [1234567890123456800]]);
    // Items that it has not written are unchanged.
    expect(
      (await raw(world.endpoint, 'GET', `/dbs/shop/colls/${container.id}/docs/long`, { headers: keyHeader('ann') }))
        .text,
    ).toContain('"n":1234567890123456789');
  });

  test('gets a refusal for an invalid ttl if the container has a time to live', async () => {
    const make = (ttl: unknown) =>
      run(
        `function (ttl) {
          const c = getContext().getCollection();
          c.createDocument(c.getSelfLink(), { customer: 'ann', ttl }, (error, made) => {
            getContext().getResponse().setBody(error ? error.number : made.ttl);
          });
        }`,
        [ttl],
      );
    expect((await make('soon')).resource).toBe('soon');
    await world.setTtl(container.id, -1);
    expect((await make('soon')).resource).toBe(400);
    expect((await make(5)).resource).toBe(5);
    await world.advance(5_000);
    expect(await idsOf()).toHaveLength(1);
  });

  test('runs again if another client has written the item meanwhile, and loses no update', async () => {
    await put('counter', { n: 0 });
    const count = answering(`
      c.readDocument(c.getAltLink() + '/docs/counter', (error, counter) => {
        if (error) throw error;
        counter.n++;
        c.replaceDocument(counter._self, counter, (error) => { if (error) throw error; r.setBody(counter.n); });
      });`);
    await container.scripts.storedProcedures.create({ id: 'count', body: count });
    const make = answering(`c.createDocument(c.getSelfLink(), { id: 'counter', customer: 'ann', n: 0 }, (error) => {
      r.setBody(error ? 'there' : 'made');
    });`);
    await container.scripts.storedProcedures.create({ id: 'make', body: make });
    const procedure = container.scripts.storedProcedure('count');
    await Promise.all(Array.from({ length: 8 }, () => procedure.execute('ann')));
    expect((await container.item('counter', 'ann').read()).resource).toMatchObject({ n: 8 });

    const { store } = world;
    const read = store.readItem;
    let reads = 0;
    const overtaking = (times: number) =>
      vi.spyOn(store, 'readItem').mockImplementation(async (...asked) => {
        const found = await read(...asked).catch((error: Error) => error);
        if (++reads <= times) await container.items.upsert({ id: 'counter', customer: 'ann', n: 100 });
        if (found instanceof Error) throw found;
        return found;
      });
    const overtaken = overtaking(2);
    try {
      expect((await procedure.execute('ann')).resource).toBe(101);
      // Now another client creates the item that was missing.
      await container.item('counter', 'ann').delete();
      reads = 0;
      overtaking(1);
      expect((await container.scripts.storedProcedure('make').execute('ann')).resource).toBe('there');
      overtaking(Number.POSITIVE_INFINITY);
      expect((await refusalOf(procedure.execute('ann'))).code).toBe(449);
    } finally {
      overtaken.mockRestore();
    }
    expect((await container.item('counter', 'ann').read()).resource).toMatchObject({ n: 100 });
  });

  describe('reads all items as they were at one moment:', () => {
    /** Does a step after the store has answered the script's first question of a kind. */
    async function runWhile(
      kind: 'readItem' | 'queryItems' | 'listItems',
      step: () => Promise<unknown>,
      body: string,
    ): Promise<unknown> {
      const { store } = world;
      const ask = store[kind] as (...asked: unknown[]) => Promise<unknown>;
      const asked = vi.spyOn(store, kind).mockImplementationOnce(async (...args: unknown[]) => {
        const answer = await ask(...args);
        await step();
        return answer as never;
      });
      try {
        return (await run(body)).resource;
      } finally {
        asked.mockRestore();
      }
    }
    const READ = `
      const read = (id, then) => c.readDocument(c.getAltLink() + '/docs/' + id, (error, found) => {
        then(error ? error.number : found.n);
      });
      const query = (text, then, options) => c.queryDocuments(c.getSelfLink(), text, options || {}, (error, found, more) => {
        if (error) throw error;
        then(found, more.continuation);
      });
      const tell = (...told) => r.setBody(told);`;
    /** Two items that are always changed together. */
    const both = (n: number) =>
      container.items.batch(
        ['a', 'b'].map((id) => ({ operationType: 'Upsert' as const, resourceBody: { id, customer: 'ann', n } })),
        'ann',
      );
    /** How many snapshots are open. One that is never closed would keep the journal from being emptied. */
    let open = 0;
    let opened = 0;
    beforeEach(async () => {
      [open, opened] = [0, 0];
      const { snapshotItems } = world.store;
      vi.spyOn(world.store, 'snapshotItems').mockImplementation(async (...asked) => {
        const snapshot = await snapshotItems(...asked);
        const { close } = snapshot;
        let isClosed = false;
        snapshot.close = async () => {
          if (!isClosed) open -= 1;
          isClosed = true;
          await close.call(snapshot);
        };
        open += 1;
        opened += 1;
        expect(open).toBe(1);
        return snapshot;
      });
      await both(1);
    });
    afterEach(() => {
      vi.restoreAllMocks();
      expect(open).toBe(0);
    });

    test('if it reads them one by one', async () => {
      const once = answering(`${READ} read('a', (a) => read('b', (b) => tell(a, b)));`);
      expect(await runWhile('readItem', () => both(3), once)).toEqual([3, 3]);
      const body = answering(`${READ} read('a', (a) => read('b', (b) => read('a', (again) => tell(a, b, again))));`);
      // Before the second read the script has no snapshot yet, and so it is run again.
      expect(await runWhile('readItem', () => both(2), body)).toEqual([2, 2, 2]);
    });

    test('if it reads after a query, or queries after a read', async () => {
      const sum = "'SELECT VALUE SUM(c.n) FROM c'";
      const afterQuery = answering(`${READ} query(${sum}, ([sum]) => read('b', (b) => tell(sum, b)));`);
      expect(await runWhile('queryItems', () => both(2), afterQuery)).toEqual([2, 1]);
      const afterRead = answering(`${READ} read('a', (a) => query(${sum}, ([sum]) => tell(a, sum)));`);
      expect(await runWhile('readItem', () => both(3), afterRead)).toEqual([3, 6]);
      const andWrites = answering(`${READ}
        read('a', (a) => c.createDocument(c.getSelfLink(), { customer: 'ann', n: 0 }, (error) => {
          if (error) throw error;
          query(${sum}, ([sum]) => read('b', (b) => tell(a, sum, b)));
        }));`);
      expect(await runWhile('listItems', () => both(4), andWrites)).toEqual([3, 6, 3]);
    });

    test('if it reads a query page by page, even items that are deleted meanwhile; it runs again if one is erased', async () => {
      const pages = answering(`${READ}
        const found = [];
        const next = (continuation) => query('SELECT VALUE [c.id, c.n] FROM c', ([one], more) => {
          found.push(one);
          if (more) next(more); else tell(...found);
        }, { pageSize: 1, continuation });
        next();`);
      const changed = await runWhile('queryItems', () => both(2), pages);
      expect(changed).toEqual([
        ['a', 1],
        ['b', 1],
      ]);
      const deletes = () => container.item('b', 'ann').delete();
      expect(await runWhile('queryItems', deletes, pages)).toEqual([
        ['a', 2],
        ['b', 2],
      ]);
      await both(3);
      // The content of an erased item can't be shown any more, so the script is run again.
      const erases = async () => {
        await deletes();
        await world.purge();
      };
      expect(await runWhile('queryItems', erases, pages)).toEqual([['a', 3]]);
    });

    test('and runs again if an item that it writes has changed since that moment', async () => {
      const adds = answering(`${READ}
        query('SELECT VALUE c.n FROM c WHERE c.id = "a"', ([n]) =>
          c.upsertDocument(c.getSelfLink(), { id: 'a', customer: 'ann', n: n + 10 }, (error) => {
            if (error) throw error;
            tell(n);
          }));`);
      expect(await runWhile('queryItems', () => both(2), adds)).toEqual([2]);
      expect((await container.item('a', 'ann').read()).resource).toMatchObject({ n: 12 });
    });

    test('if it reads by the items’ links, and the next script reads a later moment', async () => {
      const bySelf = answering(`${READ}
        query('SELECT VALUE c._self FROM c', (links) => {
          const told = [];
          const next = () => c.readDocument(links[told.length], (error, found) => {
            told.push(error ? error.number : found.n);
            if (told.length < links.length) next(); else r.setBody(told);
          });
          next();
        });`);
      const deletes = () => container.item('b', 'ann').delete();
      expect(await runWhile('queryItems', deletes, bySelf)).toEqual([1, 1]);
      expect((await run(bySelf)).resource).toEqual([1]);
      await both(2);
      const erases = async () => {
        await deletes();
        await world.purge();
      };
      expect(await runWhile('queryItems', erases, bySelf)).toEqual([2]);
      const byId = answering(`${READ}
        query('SELECT VALUE COUNT(1) FROM c', ([count]) => read('b', (b) => tell(count, b)));`);
      await both(3);
      expect(await runWhile('queryItems', erases, byId)).toEqual([1, 404]);
    });

    test('but no link leads to an item of another partition key, or to one that was deleted before', async () => {
      const { resource: other } = await container.items.create({ id: 'a', customer: 'bob', n: 9 });
      const { resource: gone } = await put('gone');
      await container.item('gone', 'ann').delete();
      const reads = `function (link) {
        const c = getContext().getCollection();
        c.readDocument(link, (error, found) => getContext().getResponse().setBody(error ? error.number : found.n));
      }`;
      expect((await run(reads, [gone!._self])).resource).toBe(404);
      expect((await run(reads, [other!._self])).resource).toBe(400);
    });

    test('each of several triggers for itself, and with no snapshot between them', async () => {
      const body = `function () {
        const c = getContext().getCollection();
        c.queryDocuments(c.getSelfLink(), 'SELECT * FROM c', (error) => { if (error) throw error; });
      }`;
      const triggerOperation = TriggerOperation.All;
      await container.scripts.triggers.create({ id: 'pre', body, triggerType: TriggerType.Pre, triggerOperation });
      await container.scripts.triggers.create({ id: 'post', body, triggerType: TriggerType.Post, triggerOperation });
      // The operation itself looks up both ids.
      await container.item('a', 'ann').replace({ id: 'c', customer: 'ann' }, { preTriggerInclude: ['pre'] });
      expect([opened, open]).toEqual([1, 0]);
      const options = { preTriggerInclude: ['pre'], postTriggerInclude: ['post'] };
      await container.item('c', 'ann').replace({ id: 'd', customer: 'ann' }, options);
      expect([opened, open]).toEqual([3, 0]);
    });
  });

  test('gets 409 for a unique-key value of another item, whether recorded or written by itself', async () => {
    container = await world.container({ uniqueKeyPolicy: { uniqueKeys: [{ paths: ['/name'] }] } });
    for (const id of ['old', 'kept']) await put(id, { name: id });
    const body = answering(`
      const told = [];
      const steps = getContext().getRequest().getBody()[0];
      const next = () => {
        r.setBody(told);
        if (told.length === steps.length) return;
        const [id, name, as] = steps[told.length];
        const hear = (error) => { told.push(error ? error.number : 'done'); next(); };
        const link = c.getAltLink() + '/docs/' + id;
        if (name === null) c.deleteDocument(link, hear);
        else if (as) c.replaceDocument(link, { id: as, customer: 'ann', name }, hear);
        else c.upsertDocument(c.getSelfLink(), { id, customer: 'ann', name: name || undefined }, hear);
      };
      next();`);
    const { storedProcedures } = container.scripts;
    await storedProcedures.create({ id: 'names', body });
    const execute = async (...steps: (readonly [id: string, name: string | null, as?: string])[]) =>
      (await container.scripts.storedProcedure('names').execute('ann', [steps])).resource as unknown;

    expect(await execute(['a', 'kept'], ['a', 'new'], ['b', 'new'], ['kept', 'kept'])).toEqual([
      409,
      'done',
      409,
      'done',
    ]);
    // A value that the script gives up is free, and a value that it takes is taken until it gives it up.
    expect(await execute(['b', 'old'], ['old', 'older'], ['b', 'old'], ['old', 'old'])).toEqual([
      409,
      'done',
      'done',
      409,
    ]);
    // A deleted item has no value, not even that of items without a name.
    expect(await execute(['kept', null], ['c', 'kept'], ['c', null], ['d', ''], ['d', null], ['kept', 'kept'])).toEqual(
      Array(6).fill('done'),
    );
    expect(await idsOf()).toEqual(['a', 'b', 'kept', 'old']);
    // With another id the item may keep its value. If the new value is taken, the item is unchanged.
    expect(await execute(['kept', 'new', 'x'], ['kept', 'kept', 'x'], ['x', 'old', 'y'], ['x', 'kept', 'y'])).toEqual([
      409,
      'done',
      409,
      'done',
    ]);
    expect(await idsOf()).toEqual(['a', 'b', 'old', 'y']);

    const { store } = world;
    const decide = store.batchItems;
    const overtaken = vi.spyOn(store, 'batchItems').mockImplementationOnce(async (...asked) => {
      const decided = await decide(...asked);
      await put('other', { name: 'late' });
      return decided;
    });
    try {
      expect(await execute(['d', 'late'], ['d', 'later'])).toEqual([409, 'done']);
    } finally {
      overtaken.mockRestore();
    }
  });

  test('can continue the queries over its own writes, except for the oldest ones if their rows are too large', async () => {
    await put('many', { list: Array.from({ length: 9_000 }, (_, n) => n), text: 'x'.repeat(1_000) });
    const body = answering(`
      const ask = (sql, options, then) => c.queryDocuments(c.getSelfLink(), sql, options, (error, found, { continuation } = {}) => {
        then(error ? error.number : found, continuation);
      });
      const each = 'SELECT VALUE [n, c.text] FROM c JOIN n IN c.list';
      c.createDocument(c.getSelfLink(), { customer: 'ann' }, () => {
        ask(each, { pageSize: 2 }, (page, first) => {
          ask(each, { pageSize: 2 }, (_, second) => {
            ask(each, { pageSize: 2, continuation: second }, (next) => {
              ask(each, { pageSize: 2, continuation: first }, (refused) => r.setBody([page, next].map((rows) => rows.map(([n]) => n)).concat(refused)));
            });
          });
        });
      });`);
    expect((await run(body)).resource).toEqual([[0, 1], [2, 3], 400]);
  });

  test('can await promises, and can log', async () => {
    await put('there', { n: 1 });
    const { resource, headers } = await run(
      `async function () {
        const c = getContext().getCollection();
        const read = (id) => new Promise((resolve, reject) => {
          c.readDocument(c.getAltLink() + '/docs/' + id, (error, found) => (error ? reject(error) : resolve(found)));
        });
        const { n } = await read('there');
        console.log('found ' + n + ' é');
        const missing = await read('none').catch((error) => error.number);
        getContext().getResponse().setBody({ n, missing });
      }`,
      [],
      { enableScriptLogging: true },
    );
    expect(resource).toEqual({ n: 1, missing: 404 });
    expect(decodeURIComponent(String(headers['x-ms-documentdb-script-log-results']))).toContain('found 1 é');
  });

  test('returns as much of its log as clients accept in a header, whatever characters it has', async () => {
    for (const [said, length] of [
      ['a', 8_192],
      ['漢', 910],
      ['😀', 682],
    ] as const) {
      const logging = `function () { console.log('${said}'.repeat(9000)); }`;
      const { headers } = await run(logging, [], { enableScriptLogging: true });
      expect(decodeURIComponent(String(headers['x-ms-documentdb-script-log-results']))).toBe(said.repeat(length));
    }
    const unasked = await run("function () { console.log('a'); }");
    expect(unasked.headers['x-ms-documentdb-script-log-results']).toBeUndefined();
    const half = await run("function () { console.log('\\ud83d!'); }", [], { enableScriptLogging: true });
    expect(decodeURIComponent(String(half.headers['x-ms-documentdb-script-log-results']))).toBe('\ufffd!');
  });

  test('is ended at its time limit, and the store answers others meanwhile', async () => {
    const hasty = await World.open({ limits: { scriptMs: 300 } });
    try {
      container = await hasty.container();
      const endless = refusalOf(run('function () { for (;;); }'));
      await put('meanwhile');
      expect((await endless).code).toBe(408);
      expect((await run(answering('r.setBody(1);'))).resource).toBe(1);
    } finally {
      await hasty.end();
    }
  });

  test('can be upserted, and can’t be run with the read-only key', async () => {
    const scripts = `/dbs/shop/colls/${container.id}/sprocs`;
    const body = JSON.stringify({ id: 'p', body: 'function () { getContext().getResponse().setBody(1); }' });
    const upsert = () =>
      raw(world.endpoint, 'POST', scripts, { headers: { 'x-ms-documentdb-is-upsert': 'true' }, body });
    expect([(await upsert()).status, (await upsert()).status]).toEqual([201, 200]);
    expect((await raw(world.endpoint, 'POST', scripts, { body })).status).toBe(409);
    expect((await raw(world.endpoint, 'PUT', scripts, { body })).status).toBe(405);
    const asQuery = { ...keyHeader('ann'), 'x-ms-documentdb-isquery': 'true' };
    const call = async (headers: Record<string, string>, key: string) =>
      (await raw(world.endpoint, 'POST', `${scripts}/p`, { headers, body: '[]', key })).status;
    expect(await call(keyHeader('ann'), READ_ONLY_KEY)).toBe(403);
    expect(await call(asQuery, READ_ONLY_KEY)).toBe(405);
  });

  test('can write 16 MB of documents, and gets a refusal beyond that', async () => {
    // On a busy machine this may take longer than the usual five seconds.
    const patient = await World.open({ limits: { scriptMs: 60_000 } });
    try {
      container = await patient.container();
      const { resource } = await run(
        answering(`
          const text = 'x'.repeat(1.9 * 1024 * 1024);
          let made = 0;
          for (let n = 0; n < 9; n++) {
            c.createDocument(c.getSelfLink(), { id: 'large ' + n, customer: 'ann', text }, (error) => {
              r.setBody(error ? { made, number: error.number } : ++made);
            });
          }`),
      );
      expect(resource).toEqual({ made: 8, number: 413 });
      expect(await idsOf()).toHaveLength(8);
    } finally {
      await patient.end();
    }
  });

  test('does not mistake an embedded copy for an item, and keeps an item that it can’t write under another id', async () => {
    await put('there');
    const { resource: there } = await container.item('there', 'ann').read();
    await put('copy', { of: { id: 'there', _etag: '"another"', _rid: there!._rid } });
    const { resource } = await run(
      answering(`
        c.queryDocuments(c.getSelfLink(), 'SELECT VALUE c.of FROM c WHERE IS_DEFINED(c.of)', (error, found) => {
          if (error) throw error;
          c.readDocument(c.getAltLink() + '/docs/there', (error, read) => {
            if (error) throw error;
            c.replaceDocument(read._self, { id: 'moved', customer: 'bob' }, (error) => r.setBody([found[0].id, read.id, error.number]));
          });
        });`),
    );
    expect(resource).toEqual(['there', 'there', 400]);
    expect(await idsOf()).toEqual(['copy', 'there']);
  });

  test('is counted in the metrics by its outcome', async () => {
    const counted = (status: string) =>
      world.store.measurements.requests().find((request) => request.operation === 'script' && request.status === status)
        ?.count ?? 0;
    const before = [counted('2xx'), counted('4xx')];
    await run('function () {}');
    await refusalOf(run("function () { throw new Error('no'); }"));
    expect([counted('2xx'), counted('4xx')]).toEqual(before.map((count) => count + 1));
  });

  test('that is not a function can be stored, and fails with that reason when it is run', async () => {
    for (const body of ['function (', '1 +']) {
      expect(await refusalOf(run(body))).toMatchObject({
        code: 400,
        substatus: 65_535,
        message: expect.stringContaining('SyntaxError'),
      });
    }
  });

  test('is refused without a body, with a too large one, without an array of arguments, and without a partition key', async () => {
    const { storedProcedures } = container.scripts;
    expect((await refusalOf(storedProcedures.create({ id: 'bad', body: '' }))).code).toBe(400);
    const large = { id: 'large', body: `function () {}${' '.repeat(256 * 1024)}` };
    expect((await refusalOf(storedProcedures.create(large))).code).toBe(413);
    await storedProcedures.create({ id: 'p', body: 'function () {}' });
    const path = `/dbs/shop/colls/${container.id}/sprocs/p`;
    const call = async (body: string, headers: Record<string, string> = keyHeader('ann')) =>
      (await raw(world.endpoint, 'POST', path, { headers, body })).status;
    expect(await call('[]')).toBe(200);
    expect(await call('')).toBe(200);
    for (const body of ['[', '"a"', '0', 'false', '{"length":1e9}'])
      expect([body, await call(body)]).toEqual([body, 400]);
    const { json } = await raw(world.endpoint, 'POST', path, { headers: keyHeader('ann'), body: '"a"' });
    expect(json?.['message']).toContain('an array of arguments');
    expect(await call('[]', {})).toBe(400);
  });
});

describe('a trigger', () => {
  const stamp = `function () {
    const request = getContext().getRequest();
    const document = request.getBody();
    document.stamped = request.getOperationType();
    request.setBody(document);
  }`;
  const count = `function () {
    const c = getContext().getCollection();
    const made = getContext().getResponse().getBody();
    c.readDocument(c.getAltLink() + '/docs/count', (error, counter) => {
      if (error) throw error;
      counter.last = made.id;
      counter.n++;
      c.replaceDocument(counter._self, counter, (error) => { if (error) throw error; });
    });
  }`;

  test('runs before and after the write that names it, and all writes are recorded together', async () => {
    const { triggers } = container.scripts;
    const pre = { id: 'stamp', body: stamp, triggerType: TriggerType.Pre, triggerOperation: TriggerOperation.All };
    const post = { id: 'count', body: count, triggerType: TriggerType.Post, triggerOperation: TriggerOperation.Create };
    expect((await triggers.create(pre)).resource).toMatchObject(pre);
    await triggers.create(post);
    await put('count', { n: 0 });
    const options = { preTriggerInclude: ['stamp'], postTriggerInclude: ['count'] };
    const { resource, statusCode } = await container.items.create({ id: 'a', customer: 'ann' }, options);
    expect(statusCode).toBe(201);
    expect(resource).toMatchObject({ id: 'a', stamped: 'Create' });
    expect((await container.item('a', 'ann').read()).resource).toEqual(resource);
    expect((await container.item('count', 'ann').read()).resource).toMatchObject({ n: 1, last: 'a' });
    // A trigger is the cause of what it wrote; the request is the cause of what it asked for.
    const { resource: counting } = await container.scripts.trigger('count').read();
    const causeOf = async (id: string) => (await world.history(container.id, id)).at(-1)!.causationId;
    expect([await causeOf('a'), `"${await causeOf('count')}"`]).toEqual([undefined, counting!._etag]);
    const replaced = await container
      .item('a', 'ann')
      .replace({ id: 'a', customer: 'ann', n: 2 }, { preTriggerInclude: ['stamp'] });
    expect(replaced.resource).toMatchObject({ n: 2, stamped: 'Replace' });
    const upserted = await container.items.upsert({ id: 'b', customer: 'ann' }, { preTriggerInclude: ['stamp'] });
    expect(upserted).toMatchObject({ statusCode: 201, resource: { stamped: 'Upsert' } });
    const again = await container.items.upsert({ id: 'b', customer: 'ann' }, { preTriggerInclude: ['stamp'] });
    expect(again.statusCode).toBe(200);
    await container.item('b', 'ann').delete({ preTriggerInclude: [] });
  });

  test('can have a name in any language, in each encoding that clients use in headers', async () => {
    const triggerType = TriggerType.Pre;
    await container.scripts.triggers.create({
      id: 'prüfen',
      body: stamp,
      triggerType,
      triggerOperation: TriggerOperation.Create,
    });
    const options = { preTriggerInclude: ['prüfen'] };
    // Node sends headers in UTF-8 if the request has a body, and in Latin-1 otherwise.
    const { resource } = await container.items.create({ id: 'a', customer: 'ann' }, options);
    expect(resource).toMatchObject({ stamped: 'Create' });
    expect((await refusalOf(container.item('a', 'ann').delete(options))).message).toMatch(/'prüfen' is for create/);
  });

  test('gets the item to be replaced or deleted with its system properties', async () => {
    const triggerType = TriggerType.Pre;
    const body = `function () {
      const c = getContext().getCollection();
      const request = getContext().getRequest();
      const own = request.getBody();
      c.readDocument(own._self, (error, before) => {
        if (error) throw error;
        const seen = { id: 'seen ' + request.getOperationType(), customer: 'ann', n: own.n, before: before.n, etag: own._etag };
        c.upsertDocument(c.getSelfLink(), seen, (error) => { if (error) throw error; });
      });
    }`;
    await container.scripts.triggers.create({ id: 'see', body, triggerType, triggerOperation: TriggerOperation.All });
    const options = { preTriggerInclude: ['see'] };
    const { resource: first } = await put('a', { n: 1 });
    const item = container.item('a', 'ann');
    const { resource: second } = await item.replace({ id: 'a', customer: 'ann', n: 2 }, options);
    const seen = async (operation: string) => (await container.item(`seen ${operation}`, 'ann').read()).resource;
    expect(await seen('Replace')).toMatchObject({ n: 2, before: 1, etag: first!._etag });
    // With another id, the trigger gets the old item before the write, and the new one after it.
    const { resource: third } = await item.replace({ id: 'b', customer: 'ann', n: 3 }, options);
    expect(third).toMatchObject({ id: 'b', n: 3 });
    expect(await seen('Replace')).toMatchObject({ n: 3, before: 2, etag: second!['_etag'] });
    await container.item('b', 'ann').delete(options);
    expect(await seen('Delete')).toMatchObject({ n: 3, before: 3, etag: third!['_etag'] });
    expect(await idsOf()).toEqual(['seen Delete', 'seen Replace']);
    for (const missing of [() => item.delete(options), () => item.replace({ id: 'a', customer: 'ann' }, options)]) {
      expect((await refusalOf(missing())).code).toBe(404);
    }
  });

  test('after a write can read the quota, and can replace the answer', async () => {
    const body = `function () {
      const response = getContext().getResponse();
      const made = response.getBody();
      made.quota = [response.getMaxResourceQuota(), response.getResourceQuotaCurrentUsage()];
      response.setBody(made);
    }`;
    const post = { id: 'tell', body, triggerType: TriggerType.Post, triggerOperation: TriggerOperation.All };
    await container.scripts.triggers.create(post);
    // This one sets no body, and leaves the answer as it is.
    await container.scripts.triggers.create({ ...post, id: 'quiet', body: 'function () {}' });
    const { resource } = await container.items.create<Record<string, unknown>>(
      { id: 'a', customer: 'ann' },
      { postTriggerInclude: ['tell', 'quiet'] },
    );
    expect(resource?.['quota']).toEqual([
      expect.stringContaining('collectionSize=10485760'),
      expect.stringMatching(/triggers=2;/),
    ]);
    const { resource: item } = await container.item('a', 'ann').read();
    expect({ ...item, quota: resource?.['quota'] }).toEqual(resource);
    // A delete has no answer that a trigger could change.
    const deleting = container.item('a', 'ann').delete({ postTriggerInclude: ['tell'] });
    expect((await refusalOf(deleting)).message).toContain('TypeError');
  });

  test('can have unescaped line breaks in its body, as a PowerShell client sends them', async () => {
    const text = 'function () {\n\tvar a = "\\n é";\r\n}';
    const escaped = text.replaceAll('\\', '\\\\').replaceAll('"', '\\"');
    const body = `{ "id": "t", "body" :\n"${escaped}", "triggerOperation" : "All", "triggerType" : "Pre" }`;
    const { status, json } = await raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/triggers`, { body });
    expect([status, json?.['body']]).toEqual([201, text]);
    // An unterminated string is found quickly.
    const cut = `{"id":"t","body":"${'\\"'.repeat(120_000)}`;
    for (const body of [cut, `${cut}\\`]) {
      const answer = await raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/triggers`, { body });
      expect(answer.status).toBe(400);
    }
  });

  test('is refused with a message about the missing or invalid property', async () => {
    const path = `/dbs/shop/colls/${container.id}/triggers`;
    const whole = { id: 't', body: 'function () {}', triggerType: 'Pre', triggerOperation: 'All' };
    for (const name of Object.keys(whole)) {
      const body = JSON.stringify({ ...whole, [name]: undefined });
      const { status, json } = await raw(world.endpoint, 'POST', path, { body });
      expect([status, json?.['message']]).toEqual([
        400,
        expect.stringContaining(`properties - '${name}; ' - are missing`),
      ]);
    }
    for (const [name, value, why] of [
      ['body', 1, "'body' is invalid"],
      ['triggerType', 'Prefix', "neither 'Pre' nor 'Post'"],
      ['triggerOperation', 'Read', 'is not one of All, Create'],
    ] as const) {
      const body = JSON.stringify({ ...whole, [name]: value });
      const { status, json } = await raw(world.endpoint, 'POST', path, { body });
      expect([status, json?.['message']]).toEqual([400, expect.stringContaining(why)]);
    }
  });

  test('that fails, does not exist or is for another operation keeps the item from being written', async () => {
    const { triggers } = container.scripts;
    const post = { id: 'count', body: count, triggerType: TriggerType.Post, triggerOperation: TriggerOperation.Create };
    await triggers.create(post);
    const creating = (options: object) => refusalOf(container.items.create({ id: 'a', customer: 'ann' }, options));
    // The item in which the trigger counts does not exist.
    expect((await creating({ postTriggerInclude: ['count'] })).code).toBe(400);
    expect(await creating({ preTriggerInclude: ['none'] })).toMatchObject({ code: 400 });
    expect((await creating({ preTriggerInclude: ['count'] })).message).toMatch(/no pre-trigger 'count'/);
    await put('there');
    const deleting = container.item('there', 'ann').delete({ postTriggerInclude: ['count'] });
    expect((await refusalOf(deleting)).message).toMatch(/is for create/i);
    expect(await idsOf()).toEqual(['there']);
    const many = Array.from({ length: 11 }, () => 'none');
    expect((await creating({ postTriggerInclude: many })).message).toMatch(/at most 10 triggers of each type/);
    expect((await creating({ postTriggerInclude: many.slice(1) })).message).toMatch(/no post-trigger 'none'/);
  });

  test('runs only for the operations that it is defined for', async () => {
    const all = ['All', 'Create', 'Update', 'Replace', 'Upsert', 'Delete'];
    for (const triggerOperation of all as unknown as TriggerOperation[]) {
      const body = 'function () {}';
      await container.scripts.triggers.create({
        id: triggerOperation,
        body,
        triggerType: TriggerType.Pre,
        triggerOperation,
      });
    }
    const item = container.item('a', 'ann');
    const body = { id: 'a', customer: 'ann' };
    const runsFor = async (does: (options: { preTriggerInclude: string[] }) => Promise<unknown>) => {
      const found: string[] = [];
      for (const id of all) {
        await container.items.upsert(body);
        await does({ preTriggerInclude: [id] }).then(
          () => found.push(id),
          ({ code }: { code: unknown }) => expect(code).toBe(400),
        );
      }
      return found.join();
    };
    expect(await runsFor((options) => item.delete(options))).toBe('All,Delete');
    expect(await runsFor((options) => item.replace(body, options))).toBe('All,Update,Replace');
    expect(await runsFor((options) => container.items.upsert(body, options))).toBe('All,Create,Update,Replace,Upsert');
    const another = (options: object) => container.items.create({ id: crypto.randomUUID(), customer: 'ann' }, options);
    expect(await runsFor(another)).toBe('All,Create');
  });

  test('in a batch or a patch is refused, not ignored', async () => {
    const pre = { id: 'stamp', body: stamp, triggerType: TriggerType.Pre, triggerOperation: TriggerOperation.All };
    await container.scripts.triggers.create(pre);
    await put('there');
    const patching = container
      .item('there', 'ann')
      .patch([{ op: 'set', path: '/n', value: 1 }], { preTriggerInclude: ['stamp'] });
    expect((await refusalOf(patching)).code).toBe(400);
    const options = { preTriggerInclude: ['stamp'] };
    const resourceBody = { id: 'new', customer: 'ann' };
    const batching = container.items.batch([{ operationType: 'Create', resourceBody }], 'ann', options);
    expect((await refusalOf(batching)).message).toContain('Triggers are not run for batches');
    const accessCondition = { type: 'IfNoneMatch', condition: '*' };
    const making = container.items.upsert(resourceBody, { ...options, accessCondition });
    expect((await refusalOf(making)).message).toContain('Triggers are not run for an upsert with If-None-Match');
    expect(await idsOf()).toEqual(['there']);
  });

  test('does not run if the item’s etag is not the one in If-Match', async () => {
    const pre = { id: 'stamp', body: stamp, triggerType: TriggerType.Pre, triggerOperation: TriggerOperation.All };
    await container.scripts.triggers.create(pre);
    const { resource: made } = await put('there');
    const item = container.item('there', 'ann');
    const body = { id: 'there', customer: 'ann' };
    const under = (condition: string) => ({
      preTriggerInclude: ['stamp'],
      accessCondition: { type: 'IfMatch', condition },
    });
    const seen = made!._etag;
    const { resource: replaced } = await item.replace(body, under(seen));
    for (const overtaken of [
      () => item.replace(body, under(seen)),
      () => item.replace({ ...body, id: 'other' }, under(seen)),
      () => container.items.upsert(body, under(seen)),
      () => item.delete(under(seen)),
    ]) {
      expect((await refusalOf(overtaken())).code).toBe(412);
    }
    const { resource: upserted } = await container.items.upsert<object>(body, under(replaced!['_etag']));
    expect(upserted).toMatchObject({ stamped: 'Upsert' });
    expect((await item.read()).resource).toEqual(upserted);
  });
});

describe('a user-defined function', () => {
  const define = (id: string, body: string) => container.scripts.userDefinedFunctions.create({ id, body });
  const query = async (text: string) =>
    (await container.items.query(text, { partitionKey: 'ann', maxItemCount: 3 }).fetchAll()).resources as unknown[];

  test('can be called in all parts of a query', async () => {
    for (let n = 0; n < 8; n++) await put(`i${n}`, { n, tags: ['x', 'yy'] });
    const { resource } = await define('twice', 'function (n) { return 2 * n; }');
    expect(resource).toMatchObject({ id: 'twice', _self: expect.stringMatching(/\/udfs\/.{24}\/$/) });
    await define('isOdd', 'function isOdd(n) { return n % 2 === 1; }');
    await define('nothing', '() => undefined');
    expect(await query('SELECT VALUE udf.twice(c.n) FROM c WHERE udf.isOdd(c.n)')).toEqual([2, 6, 10, 14]);
    expect(await query('SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 1 LIMIT 2')).toEqual([6, 5]);
    expect(await query('SELECT VALUE udf.twice(udf.twice(c.n)) FROM c WHERE c.n = 3 OR udf.nothing(c.n)')).toEqual([
      12,
    ]);
    expect(await query('SELECT VALUE SUM(udf.twice(c.n)) FROM c')).toEqual([56]);
    expect(await query('SELECT udf.isOdd(c.n) AS odd, COUNT(1) AS many FROM c GROUP BY udf.isOdd(c.n)')).toEqual([
      { odd: false, many: 4 },
      { odd: true, many: 4 },
    ]);
    expect(await query('SELECT VALUE udf.twice(LENGTH(t)) FROM c JOIN t IN c.tags WHERE c.n = 0')).toEqual([2, 4]);
    // A query uses the function as it is stored at that time.
    await container.scripts.userDefinedFunction('twice').replace({ id: 'twice', body: 'n => -n' });
    expect(await query('SELECT VALUE udf.twice(c.n) FROM c WHERE c.n = 4')).toEqual([-4]);
  });

  test('that does not exist, fails or does not end makes the query fail with a message that names it', async () => {
    await put('one', { n: 1 });
    await define('fails', "function (n) { throw new Error(4444, 'no ' + n); }");
    const failing = (text: string) => refusalOf(query(text));
    expect(await failing('SELECT VALUE udf.none(c.n) FROM c')).toMatchObject({
      code: 400,
      message: expect.stringContaining("'none' is not a recognized user-defined function name"),
    });
    const failed = await failing('SELECT VALUE udf.fails(c.n) FROM c');
    expect(failed).toMatchObject({ code: 400, substatus: 4444, message: expect.stringMatching(/'udf\.fails'.*no 1/) });
    const patching = container.item('one', 'ann').patch({
      condition: 'FROM c WHERE udf.fails(c.n)',
      operations: [{ op: 'set', path: '/n', value: 2 }],
    });
    expect((await refusalOf(patching)).code).toBe(400);
  });

  test('is charged by its working time, even if it fails or is called by a stored procedure’s query', async () => {
    await put('one', { n: 1 });
    const working = 'const began = Date.now(); while (Date.now() < began + 40);';
    await define('works', `n => { ${working} return n; }`);
    await define('fails', `() => { ${working} throw new Error('no'); }`);
    const costOf = async (asked: Promise<unknown>): Promise<number> => {
      const { headers } = (await asked.catch((error: unknown) => error)) as { headers: Record<string, string> };
      return Number(headers['x-ms-request-charge']);
    };
    const ask = (sql: string) => costOf(container.items.query(sql, { partitionKey: 'ann' }).fetchNext());
    // Half a unit for each millisecond. Two clocks are involved, of which one may be ahead.
    expect(await ask('SELECT VALUE udf.works(c.n) FROM c')).toBeGreaterThan(18);
    expect(await ask('SELECT VALUE udf.fails(c.n) FROM c')).toBeGreaterThan(18);
    const asking = answering(`
      c.createDocument(c.getSelfLink(), { id: 'two', customer: 'ann', n: 2 }, () => {
        c.queryDocuments(c.getSelfLink(), 'SELECT VALUE udf.works(c.n) FROM c', (error) => { if (error) throw error; });
      });`);
    expect(await costOf(run(asking))).toBeGreaterThan(36);
  });

  test('can be called by the queries of a stored procedure, before and after it has written', async () => {
    await put('one', { n: 1 });
    await define('twice', 'n => 2 * n');
    await define('fails', "() => { throw new Error('no'); }");
    const asking = answering(`
      const each = 'SELECT VALUE udf.twice(c.n) FROM c WHERE udf.twice(c.n) > 0', all = 'SELECT VALUE udf.twice(SUM(c.n)) FROM c';
      const ask = (sql, next) => c.queryDocuments(c.getSelfLink(), sql, (error, found) => {
        if (error) throw error;
        next(found);
      });
      ask(each, (before) => {
        c.createDocument(c.getSelfLink(), { id: 'two', customer: 'ann', n: 2 }, () => {
          ask(each, (after) => ask(all, (sum) => {
            c.queryDocuments(c.getSelfLink(), 'SELECT VALUE udf.fails(COUNT(1)) FROM c', (error) => {
              r.setBody({ before, after, sum, failed: error.number });
            });
          }));
        });
      });`);
    expect((await run(asking)).resource).toEqual({ before: [2], after: [2, 4], sum: [6], failed: 400 });
  });
});

test('a container has at most a hundred scripts of each kind, even if more are created concurrently', async () => {
  const { resource } = await container.read();
  const within = world.store.containerByRid(resource!._rid)!;
  const store = (name: string) => {
    const script = { kind: 'trigger', name, content: { body: 'function () {}' } } as const;
    return world.store.writeScript(CALLER, within, 'upsert', script);
  };
  const outcomes = await Promise.allSettled(Array.from({ length: 104 }, (_, n) => store(`t${n}`)));
  const refused = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason as Error] : []));
  expect(refused.map(({ message }) => message)).toEqual(
    Array(4).fill(expect.stringContaining('at most 100 scripts of each kind')),
  );
  // This one exists.
  expect((await store('t0')).created).toBe(false);
});

test('if scripts are turned off, none can be stored or run, and requests that name one are refused', async () => {
  const folder = world.folder;
  const { id } = container;
  await container.scripts.storedProcedures.create({ id: 'p', body: 'function () {}' });
  await container.scripts.userDefinedFunctions.create({ id: 'f', body: '() => true' });
  await put('one', { udf: { f: 1 } });
  await world.stop();
  const without = await World.open({ folder, scripts: false });
  try {
    container = without.of(id);
    for (const ask of [
      () => container.scripts.storedProcedure('p').execute('ann'),
      () => container.scripts.storedProcedures.create({ id: 'q', body: 'function () {}' }),
      () => container.items.query('SELECT * FROM c WHERE udf.f()', { partitionKey: 'ann' }).fetchAll(),
    ]) {
      const refused = { code: 400, message: expect.stringContaining('--scripts off') };
      expect(await refusalOf(ask())).toMatchObject(refused);
    }
    // This is not a call.
    const other = container.items.query("SELECT VALUE c.udf.f FROM c WHERE c.id != 'udf.f'", { partitionKey: 'ann' });
    expect((await other.fetchAll()).resources).toEqual([1]);
    expect((await container.scripts.storedProcedures.readAll().fetchAll()).resources).toHaveLength(1);
    await container.scripts.storedProcedure('p').delete();
  } finally {
    await without.stop();
    await world.start();
  }
});

test('a script whose client has disconnected is ended and charged until then, and others don’t wait for it', async () => {
  const patient = await World.open({ limits: { scriptMs: 60_000 } });
  try {
    const { store } = patient;
    const { items, scripts } = await patient.container();
    await items.create({ id: 'one', customer: 'ann' });
    const endless = "c.readDocument(c.getAltLink() + '/docs/one', () => { for (;;); });";
    await scripts.storedProcedures.create({ id: 'endless', body: answering(endless) });
    await scripts.storedProcedures.create({ id: 'short', body: 'function () {}' });
    await scripts.userDefinedFunctions.create({ id: 'endless', body: 'function () { for (;;); }' });
    const read = store.readItem;
    const running = Promise.withResolvers<void>();
    vi.spyOn(store, 'readItem').mockImplementationOnce(async (...asked) => {
      running.resolve();
      return read(...asked);
    });
    const spent = (kind: 'write' | 'query') => store.requestUnits.metered()[0]!.consumed[kind].requestUnits;
    const before = [spent('write'), spent('query')] as const;
    const gone = new AbortController();
    const options = { abortSignal: gone.signal };
    const left = ['ann', 'bob', 'cid'].flatMap((customer) => [
      scripts.storedProcedure('endless').execute(customer, [], options),
      items.query('SELECT VALUE udf.endless() FROM c', { partitionKey: 'ann', ...options }).fetchAll(),
    ]);
    void running.promise.then(() => setTimeout(() => gone.abort(), 500));
    expect((await Promise.allSettled(left)).map(({ status }) => status)).toEqual(left.map(() => 'rejected'));
    await scripts.storedProcedure('short').execute('ann');
    await scripts.storedProcedures.create({ id: 'another', body: 'function () {}' });
    expect(spent('write') - before[0]).toBeGreaterThan(80);
    expect(spent('query') - before[1]).toBeGreaterThan(30);
  } finally {
    await patient.end();
  }
});
