import { describe, expect, test } from 'vitest';
import { call, testServer } from './support/client.ts';
import { fakeStore } from './support/fake-store.ts';
import { parseDocumentPath } from '@epitaph/core/document-path.ts';
import { UnreadableEvent } from '@epitaph/core/upcast.ts';

async function shopOnly() {
  const app = testServer();
  await call(app, 'POST', '/dbs', { body: { id: 'shop' } });
  return app;
}
const partitionKey = { paths: ['/customer'], kind: 'Hash', version: 2 };

test('a container that can’t be read can be deleted, and every other request on it fails', async () => {
  const deleted: string[] = [];
  const store = fakeStore({
    container: () => {
      throw new UnreadableEvent('the event log is damaged: it has lost the creation of container-rid');
    },
    deleteContainer: async (_caller, database, name) => {
      deleted.push(`${database}/${name}`);
      return { position: 7 };
    },
  });
  const app = testServer({ store });
  await call(app, 'POST', '/dbs', { body: { id: 'shop' } });
  expect((await call(app, 'GET', '/dbs/shop/colls/orders')).status).toBe(500);
  expect((await call(app, 'GET', '/dbs/shop/colls/orders/docs')).status).toBe(500);
  expect((await call(app, 'DELETE', '/dbs/shop/colls/orders')).status).toBe(204);
  expect(deleted).toEqual(['shop/orders']);
});

describe('a database', () => {
  test('is made, read, listed, queried and deleted', async () => {
    const app = testServer();
    const created = await call(app, 'POST', '/dbs', {
      body: { id: 'shop' },
      headers: { 'x-ms-offer-throughput': '400' },
    });
    expect(created.status).toBe(201);
    expect(created.json).toMatchObject({ id: 'shop', _colls: 'colls/', _users: 'users/' });
    expect((await call(app, 'POST', '/dbs', { body: { id: 'shop' } })).status).toBe(409);
    expect((await call(app, 'GET', '/dbs/shop')).json).toEqual(created.json);
    expect((await call(app, 'GET', `/dbs/${String(created.json['_rid'])}`)).json).toEqual(created.json);
    expect((await call(app, 'GET', '/dbs')).json).toMatchObject({ _count: 1, Databases: [{ id: 'shop' }] });
    const query = {
      headers: { 'x-ms-documentdb-isquery': 'true' },
      body: { query: "SELECT * FROM r WHERE r.id = 'x'" },
    };
    expect((await call(app, 'POST', '/dbs', query)).json).toMatchObject({ _count: 0, Databases: [] });
    expect((await call(app, 'DELETE', '/dbs/shop')).status).toBe(204);
    expect((await call(app, 'GET', '/dbs/shop')).status).toBe(404);
  });

  test.each(['', 'a/b', 'a\\b', 'a?b', 'a#b', 'blank ', 'x'.repeat(256), '\ud83d', 'a\nb', 1, null, undefined, {}])(
    'can’t be called %j',
    async (id) => {
      expect((await call(testServer(), 'POST', '/dbs', { body: { id } })).status).toBe(400);
    },
  );

  test('may have a name in any language, up to 255 characters', async () => {
    const app = testServer();
    // The message is from https://github.com/Azure/azure-sdk-for-python/blob/main/sdk/cosmos/azure-cosmos/tests/test_resource_id.py
    const tooLong = await call(app, 'POST', '/dbs', { body: { id: 'x'.repeat(256) } });
    expect(tooLong.status).toBe(400);
    expect(tooLong.json['message']).toContain(
      "Ensure to provide a unique non-empty string less than '255' characters.",
    );
    for (const id of ['x'.repeat(255), '文字 ünd', 'a b', '.a.', "it's", '100%']) {
      expect((await call(app, 'POST', '/dbs', { body: { id } })).status).toBe(201);
      expect((await call(app, 'GET', `/dbs/${encodeURIComponent(id)}`)).json['id']).toBe(id);
    }
  });
});

describe('a container', () => {
  test('is listed for a GET that calls itself a query and has none, as the older .NET client sends it', async () => {
    const app = await shopOnly();
    await call(app, 'POST', '/dbs/shop/colls', { body: { id: 'c', partitionKey } });
    const headers = { 'x-ms-documentdb-isquery': 'True' };
    const listed = await call(app, 'GET', '/dbs/shop/colls', { headers });
    expect(listed.status).toBe(200);
    expect(listed.json['_count']).toBe(1);
  });

  // The messages are from
  // https://github.com/Azure/azure-sdk-for-python/blob/main/sdk/cosmos/azure-cosmos/tests/test_computed_properties.py, and
  // test_vector_policy.py beside it.
  test.each([{ computedProperties: {} }, { indexingPolicy: { vectorIndexes: [{ path: '/v', type: 1 }] } }])(
    'is refused with the message of Cosmos DB if a part is of the wrong kind: %j',
    async (part) => {
      const body = { id: 'c', partitionKey, ...part };
      const { status, json } = await call(await shopOnly(), 'POST', '/dbs/shop/colls', { body });
      expect(status).toBe(400);
      expect(json['message']).toContain('One of the specified inputs is invalid');
    },
  );

  test('gets the defaults of Cosmos DB', async () => {
    const app = await shopOnly();
    const { status, json } = await call(app, 'POST', '/dbs/shop/colls', {
      body: { id: 'c', partitionKey: { paths: ['/pk'] }, changeFeedPolicy: { retentionDuration: 60 }, own: [1] },
    });
    expect(status).toBe(201);
    expect(json).toMatchObject({
      id: 'c',
      partitionKey: { paths: ['/pk'], kind: 'Hash' },
      indexingPolicy: {
        indexingMode: 'consistent',
        automatic: true,
        includedPaths: [{ path: '/*' }],
        excludedPaths: [{ path: '/"_etag"/?' }],
      },
      geospatialConfig: { type: 'Geography' },
      conflictResolutionPolicy: {
        mode: 'LastWriterWins',
        conflictResolutionPath: '/_ts',
        conflictResolutionProcedure: '',
      },
      changeFeedPolicy: { retentionDuration: 60 },
      own: [1],
      _docs: 'docs/',
      _sprocs: 'sprocs/',
      _triggers: 'triggers/',
      _udfs: 'udfs/',
      _conflicts: 'conflicts/',
    });
    expect(json).not.toHaveProperty('defaultTtl');
    expect(json['partitionKey']).not.toHaveProperty('version');
    expect(Buffer.from(String(json['_rid']).replaceAll('-', '/'), 'base64')).toHaveLength(8);
    expect(json['_self']).toMatch(/^dbs\/[^/]+\/colls\/[^/]+\/$/);
  });

  test('indexes all paths if its policy names none, also in empty lists, unless it excludes all', async () => {
    const app = await shopOnly();
    const policyOf = async (id: string, indexingPolicy: object) => {
      const { json } = await call(app, 'POST', '/dbs/shop/colls', { body: { id, partitionKey, indexingPolicy } });
      return json['indexingPolicy'];
    };
    const etag = { path: '/"_etag"/?' };
    const all = { includedPaths: [{ path: '/*' }], excludedPaths: [etag] };
    expect(await policyOf('none', {})).toMatchObject(all);
    expect(await policyOf('empty', { includedPaths: [], excludedPaths: [] })).toMatchObject(all);
    expect(await policyOf('excluded', { includedPaths: [], excludedPaths: [{ path: '/*' }] })).toMatchObject({
      includedPaths: [],
      excludedPaths: [{ path: '/*' }, etag],
    });
  });

  test('is answered in the form in which it can be replaced', async () => {
    const app = await shopOnly();
    await call(app, 'POST', '/dbs/shop/colls', { body: { id: 'c', partitionKey, defaultTtl: 60 } });
    const { json } = await call(app, 'GET', '/dbs/shop/colls/c');
    const replaced = await call(app, 'PUT', '/dbs/shop/colls/c', { body: { ...json, defaultTtl: 90 } });
    expect(replaced.status).toBe(200);
    expect(replaced.json).toMatchObject({
      defaultTtl: 90,
      partitionKey,
      indexingPolicy: json['indexingPolicy'] as object,
    });
    expect((await call(app, 'PUT', '/dbs/shop/colls/c', { body: { ...json, id: 'd' } })).status).toBe(400);
    const other = { ...json, partitionKey: { paths: ['/other'], kind: 'Hash' } };
    expect((await call(app, 'PUT', '/dbs/shop/colls/c', { body: other })).status).toBe(400);
    const { defaultTtl: _, ...without } = json;
    expect((await call(app, 'PUT', '/dbs/shop/colls/c', { body: without })).json).not.toHaveProperty('defaultTtl');
    const guarded = { body: json, headers: { 'if-match': '"old"' } };
    expect((await call(app, 'PUT', '/dbs/shop/colls/c', guarded)).status).toBe(412);
  });

  test.each([[0], [-2], [1.5], ['60'], [true], [2_147_483_648], [{}]])(
    'takes no defaultTtl of %j',
    async (defaultTtl) => {
      const reply = await call(await shopOnly(), 'POST', '/dbs/shop/colls', {
        body: { id: 'c', partitionKey, defaultTtl },
      });
      expect(reply.status).toBe(400);
      expect(reply.json['message']).toContain("or '-1' which means never expire.");
    },
  );

  test.each([[null], [-1], [1], [2_147_483_647]])('takes a defaultTtl of %j', async (defaultTtl) => {
    const reply = await call(await shopOnly(), 'POST', '/dbs/shop/colls', {
      body: { id: 'c', partitionKey, defaultTtl },
    });
    expect(reply.status).toBe(201);
    expect(reply.json['defaultTtl']).toBe(defaultTtl ?? undefined);
  });

  test('can’t have a time to live without an index, nor lose its index while it has one', async () => {
    const app = await shopOnly();
    const none = { indexingMode: 'None', automatic: false };
    const create = (id: string, body: object) =>
      call(app, 'POST', '/dbs/shop/colls', { body: { id, partitionKey, ...body } });
    expect((await create('a', { indexingPolicy: none, defaultTtl: -1 })).status).toBe(400);
    expect((await create('a', { indexingPolicy: none })).json['indexingPolicy']).toMatchObject({
      indexingMode: 'none',
    });
    expect((await create('b', { indexingPolicy: { indexingMode: 'LAZY' }, defaultTtl: 5 })).status).toBe(201);
    const replace = (id: string, body: object) =>
      call(app, 'PUT', `/dbs/shop/colls/${id}`, { body: { id, partitionKey, ...body } });
    expect((await replace('a', { indexingPolicy: none, defaultTtl: 5 })).status).toBe(400);
    expect((await replace('b', { indexingPolicy: none, defaultTtl: 5 })).status).toBe(400);
    expect((await replace('b', { indexingPolicy: none })).status).toBe(200);
    expect((await create('c', { indexingPolicy: { indexingMode: 'eager' } })).status).toBe(400);
  });

  test('accepts a vector index only on a path with an embedding', async () => {
    const app = await shopOnly();
    const create = (id: string, body: object) =>
      call(app, 'POST', '/dbs/shop/colls', { body: { id, partitionKey, ...body } });
    const vectorEmbeddingPolicy = {
      vectorEmbeddings: [{ path: '/v', dataType: 'float32', dimensions: 3, distanceFunction: 'cosine' }],
    };
    const indexed = (path: string) => ({ indexingPolicy: { vectorIndexes: [{ path, type: 'flat' }] } });
    expect((await create('a', { ...indexed('/v'), vectorEmbeddingPolicy })).status).toBe(201);
    expect((await create('b', indexed('/v'))).status).toBe(400);
    const other = await create('c', { ...indexed('/w'), vectorEmbeddingPolicy });
    expect(other.status).toBe(400);
    expect(other.json['message']).toContain("/w not matching in Embedding's path");
  });

  describe('with vectors', () => {
    const embedding = { path: '/v', dataType: 'float32', dimensions: 300, distanceFunction: 'cosine' };
    const vectors = (change: object, index: object = {}) => ({
      id: 'c',
      partitionKey,
      vectorEmbeddingPolicy: { vectorEmbeddings: [{ ...embedding, ...change }] },
      indexingPolicy: { vectorIndexes: [{ path: '/v', type: 'quantizedFlat', ...index }] },
    });

    test.each([
      [{ dataType: 'float33' }, {}, 'Vector Embedding Policy has an invalid DataType'],
      [{ dimensions: 8000 }, {}, 'has Dimensions:8000 which is more than the maximum supported value'],
      [{ dimensions: -1 }, {}, 'The Vector Embedding Policy has Dimensions:-1'],
      [{ distanceFunction: 'measured' }, {}, 'The Vector Embedding Policy has an invalid DistanceFunction:measured'],
      [{}, { type: 'notFlat' }, 'Index Type::notFlat is invalid'],
      [
        {},
        { quantizationByteSize: 0 },
        'QuantizationByteSize value :: 0 is out of range. The allowed range is between 1 and 300.',
      ],
      [{ dimensions: 600 }, { quantizationByteSize: 513 }, 'The allowed range is between 1 and 512.'],
      [
        {},
        { type: 'diskANN', indexingSearchListSize: 5 },
        'IndexingSearchListSize value :: 5 is out of range. The allowed range is between 25 and 500.',
      ],
      [
        {},
        { type: 'diskANN', vectorIndexShardKey: ['country'] },
        'The Vector Indexing Policy has an invalid Shard Path: country.',
      ],
      [
        {},
        { type: 'diskANN', vectorIndexShardKey: ['/a', '/b'] },
        'in the Vector Indexing Policy: 2 exceeds the maximum: 1.',
      ],
      [{}, { type: 'diskANN', vectorIndexShardKey: '/a' }, 'invalid'],
    ])('is refused for %j and %j', async (change, index, message) => {
      const reply = await call(await shopOnly(), 'POST', '/dbs/shop/colls', { body: vectors(change, index) });
      expect(reply.status).toBe(400);
      expect(reply.json['message']).toContain(message);
    });

    test('keeps its embeddings and their indexes', async () => {
      const app = await shopOnly();
      const body = vectors({}, { quantizationByteSize: 8, indexingSearchListSize: 100, vectorIndexShardKey: ['/a/b'] });
      expect((await call(app, 'POST', '/dbs/shop/colls', { body })).json).toMatchObject(body);
      const replace = (other: object) => call(app, 'PUT', '/dbs/shop/colls/c', { body: { ...body, ...other } });
      expect((await replace({ defaultTtl: 60 })).status).toBe(200);
      const otherVectors = await replace(vectors({ dimensions: 301 }));
      expect(otherVectors.status).toBe(400);
      expect(otherVectors.json['message']).toContain('Paths in existing embedding policy cannot be modified');
      const otherIndex = await replace(vectors({}, { type: 'flat' }));
      expect(otherIndex.status).toBe(400);
      expect(otherIndex.json['message']).toContain('Paths in existing vector indexing policy cannot be modified');
      expect((await replace({ indexingPolicy: {} })).status).toBe(200);
    });
  });

  describe('with full-text search', () => {
    const texts = (policy: object, ...fullTextIndexes: readonly object[]) => ({
      id: 'c',
      partitionKey,
      fullTextPolicy: policy,
      indexingPolicy: { fullTextIndexes },
    });
    const path = '/abstract';

    test.each([
      [{ defaultLanguage: 'en-US' }],
      [{ defaultLanguage: 'de-DE', fullTextPaths: [{ path }] }, { path }],
      [{ defaultLanguage: 'en-US', fullTextPaths: [{ path, language: '1033' }] }, { path }],
    ])('has %j and %j', async (policy, ...indexes) => {
      const body = texts(policy, ...indexes);
      const reply = await call(await shopOnly(), 'POST', '/dbs/shop/colls', { body });
      expect(reply).toMatchObject({ status: 201, json: body });
    });

    test.each<[string, object, object[]]>([
      ['The Full Text Policy contains an invalid Path: abstract', { fullTextPaths: [{ path: 'abstract' }] }, []],
      ['contains an unsupported language xx-YY. Supported languages are:', { defaultLanguage: 'xx-YY' }, []],
      ['contains an unsupported language xx-YY.', { fullTextPaths: [{ path, language: 'xx-YY' }] }, []],
      ['The path of the Full Text Index /other does not match', { fullTextPaths: [{ path }] }, [{ path: '/other' }]],
      ['at index (1) contains invalid path', { fullTextPaths: [{ path }] }, [{ path }, { path: 'abstract' }]],
      ['Missing path in full-text index specification at index (0)', { fullTextPaths: [{ path }] }, [{ not: path }]],
    ])('is refused: %s', async (message, policy, indexes) => {
      const reply = await call(await shopOnly(), 'POST', '/dbs/shop/colls', { body: texts(policy, ...indexes) });
      expect(reply.status).toBe(400);
      expect(reply.json['message']).toContain(message);
    });
  });

  test('may repeat search settings that were accepted earlier and are refused today', async () => {
    const store = fakeStore();
    const app = testServer({ store });
    await call(app, 'POST', '/dbs', { body: { id: 'shop' } });
    const searches = {
      vectorEmbeddingPolicy: { vectorEmbeddings: [{ path: '/v', dataType: 'float33' }] },
      fullTextPolicy: { defaultLanguage: 'xx-YY' },
    };
    const caller = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
    const definition = {
      partitionKey: { paths: ['/customer'], kind: 'Hash' as const },
      indexingPolicy: { indexingMode: 'consistent' as const },
    };
    await store.createContainer(caller, 'shop', 'old', { ...definition, ...searches }, null);
    const { json } = await call(app, 'GET', '/dbs/shop/colls/old');
    const replace = (other: object) => call(app, 'PUT', '/dbs/shop/colls/old', { body: { ...json, ...other } });
    expect((await replace({ defaultTtl: 60 })).status).toBe(200);
    expect((await replace({ fullTextPolicy: { defaultLanguage: 'yy-XX' } })).status).toBe(400);
  });

  test('reports spatial indexes, which paths once had themselves, in a list of their own', async () => {
    const app = await shopOnly();
    const range = ['String', 'Number'].map((dataType) => ({ kind: 'Range', dataType, precision: -1 }));
    const spatial = { kind: 'Spatial', dataType: 'Point' };
    const includedPaths = [
      { path: '/*', indexes: [...range, spatial] },
      { path: '/at/*', indexes: [spatial] },
      { path: '/to/*', indexes: [spatial] },
      { path: '/n/?', indexes: range },
      { path: '/s/?', indexes: null },
    ];
    const indexingPolicy = { includedPaths, spatialIndexes: [{ path: '/to/*', types: ['Point'] }] };
    const body = { id: 'a', partitionKey, indexingPolicy };
    const types = ['Point', 'LineString', 'Polygon', 'MultiPolygon'];
    const told = {
      includedPaths: includedPaths.map(({ path }) => ({ path })),
      spatialIndexes: ['/to/*', '/*', '/at/*'].map((path) => ({ path, types })),
    };
    const { json } = await call(app, 'POST', '/dbs/shop/colls', { body });
    expect(json['indexingPolicy']).toMatchObject(told);
    expect(JSON.stringify(json)).not.toContain('Range');
    const replaced = await call(app, 'PUT', '/dbs/shop/colls/a', { body });
    expect(replaced.json['indexingPolicy']).toEqual(json['indexingPolicy']);
    const plain = { ...body, id: 'b', indexingPolicy: { includedPaths: [{ path: '/*', indexes: range }] } };
    const made = await call(app, 'POST', '/dbs/shop/colls', { body: plain });
    expect(made.json['indexingPolicy']).toMatchObject({ includedPaths: [{ path: '/*' }] });
    expect(made.text).not.toMatch(/indexes|spatialIndexes/);
    // A client of a version in which paths had them gets them back, until a later client replaces the container.
    const headers = { 'x-ms-version': '2018-06-18' };
    const old = { id: 'c', indexingPolicy: { includedPaths: [{ path: '/*', indexes: range }] } };
    const kept = { indexingPolicy: { includedPaths: [{ path: '/*', indexes: range }] } };
    expect((await call(app, 'POST', '/dbs/shop/colls', { body: old, headers })).json).toMatchObject(kept);
    expect((await call(app, 'PUT', '/dbs/shop/colls/c', { body: old, headers })).json).toMatchObject(kept);
    expect((await call(app, 'PUT', '/dbs/shop/colls/c', { body: old })).text).not.toContain('indexes');
  });

  test('accepts a spatial index only with a type, and reports it for all types', async () => {
    const app = await shopOnly();
    const create = (id: string, index: object) =>
      call(app, 'POST', '/dbs/shop/colls', {
        body: { id, partitionKey, indexingPolicy: { spatialIndexes: [{ path: '/at/*', ...index }] } },
      });
    const { status, json } = await create('a', { types: ['Polygon'] });
    expect(status).toBe(201);
    expect(json['indexingPolicy']).toMatchObject({
      spatialIndexes: [{ path: '/at/*', types: ['Point', 'LineString', 'Polygon', 'MultiPolygon'] }],
    });
    for (const index of [{}, { types: null }, { types: [] }]) {
      const reply = await create('b', index);
      expect(reply.status).toBe(400);
      expect(reply.json['message']).toContain('The spatial data types array cannot be empty.');
    }
  });

  test('requires a bounding box for a spatial index on the plane, and none on the globe', async () => {
    const app = await shopOnly();
    const box = { boundingBox: { xmin: 0, ymin: 0, xmax: 100, ymax: 100 } };
    const body = (id: string, index: object, geospatialConfig?: object) => ({
      id,
      partitionKey,
      indexingPolicy: { spatialIndexes: [{ path: '/at/*', types: ['Point'], ...index }] },
      ...(geospatialConfig === undefined ? {} : { geospatialConfig }),
    });
    const create = (id: string, index: object, geospatialConfig?: object) =>
      call(app, 'POST', '/dbs/shop/colls', { body: body(id, index, geospatialConfig) });
    const plane = await create('plane', box, { type: 'Geometry' });
    expect(plane.status).toBe(201);
    expect(plane.json['indexingPolicy']).toMatchObject({ spatialIndexes: [box] });
    expect((await create('globe', {}, { type: 'Geography' })).status).toBe(201);
    expect((await create('usual', { boundingBox: null })).status).toBe(201);

    const refused = [
      await create('a', {}, { type: 'Geometry' }),
      await create('b', box, { type: 'Geography' }),
      await create('c', box),
      await call(app, 'PUT', '/dbs/shop/colls/plane', {
        body: { ...plane.json, geospatialConfig: { type: 'Geography' } },
      }),
    ];
    expect(refused.map(({ status }) => status)).toEqual([400, 400, 400, 400]);
    expect(refused[0]?.json['message']).toContain(
      `needs a 'boundingBox', because the container's geospatial type is Geometry`,
    );
    expect(refused[1]?.json['message']).toContain(
      `has a 'boundingBox', which is for the geospatial type Geometry, not for Geography`,
    );
  });

  test('can’t let its items expire by a property of their own, because they would then expire at another time than asked', async () => {
    const app = await shopOnly();
    const create = (settings: object) =>
      call(app, 'POST', '/dbs/shop/colls', { body: { id: 'c', partitionKey, ...settings } });
    for (const settings of [{ ttlPropertyPath: '/createdAt' }, { ttlPropertyPath: '/createdAt', defaultTtl: 60 }]) {
      const reply = await create(settings);
      expect(reply.status).toBe(400);
      expect(reply.json['message']).toContain("'ttlPropertyPath' is not supported: expiry counts from the last write");
    }
    expect((await create({ ttlPropertyPath: null, defaultTtl: 60 })).status).toBe(201);
  });

  test.each(['materializedViewDefinition', 'globalSecondaryIndexDefinition'])(
    'can’t be filled from another container by a %s, and says so, because it would stay empty',
    async (property) => {
      const app = await shopOnly();
      const create = (settings: object) =>
        call(app, 'POST', '/dbs/shop/colls', { body: { id: 'c', partitionKey, ...settings } });
      const reply = await create({ [property]: { sourceCollectionId: 'orders', definition: 'SELECT c.id FROM c' } });
      expect(reply.status).toBe(400);
      expect(reply.json['message']).toContain(`'${property}' is not supported: this store does not fill containers`);
      expect((await create({ [property]: null })).status).toBe(201);
    },
  );

  // The .NET client knows only its own names. With another value it can use neither the container nor the list of its database's
  // containers.
  test.each([
    [
      { conflictResolutionPolicy: { mode: 'Nope' } },
      "'conflictResolutionPolicy.mode' is invalid: 'Nope' is not one of",
    ],
    [{ conflictResolutionPolicy: 'Custom' }, "'conflictResolutionPolicy' is invalid"],
    [{ conflictResolutionPolicy: { conflictResolutionPath: 5 } }, "'conflictResolutionPolicy.conflictResolutionPath'"],
    [{ geospatialConfig: { type: 'Plane' } }, "'geospatialConfig.type' is invalid: 'Plane' is not one of"],
    [
      { indexingPolicy: { compositeIndexes: [[{ path: '/a', order: 'up' }]] } },
      "'indexingPolicy.compositeIndexes.0.0.order' is invalid: 'up' is not one of ascending, descending",
    ],
    [{ indexingPolicy: { compositeIndexes: [{ path: '/a' }] } }, "'indexingPolicy.compositeIndexes.0' is invalid"],
    [
      {
        geospatialConfig: { type: 'Geometry' },
        indexingPolicy: { spatialIndexes: [{ path: '/at/*', types: ['Point'], boundingBox: { xmin: '0' } }] },
      },
      "has a 'boundingBox' without the numbers xmin, ymin, xmax and ymax",
    ],
    [{ clientEncryptionPolicy: { policyFormatVersion: 'two' } }, "'clientEncryptionPolicy.policyFormatVersion'"],
    [{ analyticalStorageTtl: 1.5 }, "'analyticalStorageTtl' is invalid"],
  ])('is refused with what clients can’t read: %j', async (part, words) => {
    const body = { id: 'c', partitionKey, ...part };
    const { status, json } = await call(await shopOnly(), 'POST', '/dbs/shop/colls', { body });
    expect(status).toBe(400);
    expect(json['message']).toContain(words);
  });

  test('has the names in its policies as Cosmos DB writes them, in whatever case they were sent', async () => {
    const app = await shopOnly();
    const box = { xmin: 0, ymin: 0, xmax: 100, ymax: 100 };
    const { status, json } = await call(app, 'POST', '/dbs/shop/colls', {
      body: {
        id: 'c',
        partitionKey,
        conflictResolutionPolicy: { mode: 'custom' },
        geospatialConfig: { type: 'geometry' },
        indexingPolicy: {
          compositeIndexes: [[{ path: '/a', order: 'Descending' }, { path: '/b', order: null }, { path: '/c' }]],
          spatialIndexes: [{ path: '/at/*', types: ['Point'], boundingBox: box }],
        },
      },
    });
    expect(status).toBe(201);
    expect(json).toMatchObject({
      conflictResolutionPolicy: { mode: 'Custom' },
      geospatialConfig: { type: 'Geometry' },
      indexingPolicy: {
        compositeIndexes: [
          [
            { path: '/a', order: 'descending' },
            { path: '/b', order: 'ascending' },
            { path: '/c', order: 'ascending' },
          ],
        ],
      },
    });
  });

  test('has the default where its policies leave a name out', async () => {
    const policies = { conflictResolutionPolicy: {}, geospatialConfig: { type: null }, changeFeedPolicy: {} };
    const body = { id: 'c', partitionKey, ...policies };
    const { json } = await call(await shopOnly(), 'POST', '/dbs/shop/colls', { body });
    expect(json).toMatchObject({
      conflictResolutionPolicy: { mode: 'LastWriterWins' },
      geospatialConfig: { type: 'Geography' },
    });
  });

  test('keeps its conflict resolution policy: a replace may repeat it or leave it out, and not change it', async () => {
    const app = await shopOnly();
    const policy = { mode: 'LastWriterWins', conflictResolutionPath: '/version' };
    await call(app, 'POST', '/dbs/shop/colls', { body: { id: 'c', partitionKey, conflictResolutionPolicy: policy } });
    await call(app, 'POST', '/dbs/shop/colls', { body: { id: 'usual', partitionKey } });
    const replace = (id: string, settings: object) =>
      call(app, 'PUT', `/dbs/shop/colls/${id}`, { body: { id, partitionKey, ...settings } });
    expect((await replace('c', { defaultTtl: 60 })).json).toMatchObject({ conflictResolutionPolicy: policy });
    const repeated = { ...policy, conflictResolutionProcedure: '' };
    expect((await replace('c', { conflictResolutionPolicy: repeated })).status).toBe(200);
    expect((await replace('usual', { conflictResolutionPolicy: { mode: 'LastWriterWins' } })).status).toBe(200);
    for (const other of [{ mode: 'Custom' }, { mode: 'LastWriterWins' }, { ...policy, conflictResolutionPath: '/n' }]) {
      const reply = await replace('c', { conflictResolutionPolicy: other });
      expect(reply.status).toBe(400);
      expect(reply.json['message']).toContain("A container's conflict resolution policy can't be changed.");
    }
  });

  test('that was created with settings that are refused today can still be replaced', async () => {
    const store = fakeStore();
    const app = testServer({ store });
    await call(app, 'POST', '/dbs', { body: { id: 'shop' } });
    const indexingPolicy = {
      indexingMode: 'consistent' as const,
      spatialIndexes: [{ path: '/at/*' }],
      compositeIndexes: [[{ path: '/a', order: 'up' }]],
    };
    const definition = {
      partitionKey: { paths: ['/customer'], kind: 'Hash' as const },
      indexingPolicy,
      geospatialConfig: { type: 'Plane' },
      conflictResolutionPolicy: { mode: 'Nope' },
    };
    const caller = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
    await store.createContainer(caller, 'shop', 'old', { ...definition, ttlPropertyPath: '/createdAt' }, null);
    const old = (await call(app, 'GET', '/dbs/shop/colls/old')).json;
    expect(old['ttlPropertyPath']).toBe('/createdAt');
    const replace = (settings: object) => call(app, 'PUT', '/dbs/shop/colls/old', { body: { ...old, ...settings } });
    expect((await replace({ defaultTtl: 60 })).json['defaultTtl']).toBe(60);
    expect((await replace({ ttlPropertyPath: '/other' })).status).toBe(400);
    const spatialIndexes = [{ path: '/at/*' }, { path: '/to/*' }];
    expect((await replace({ indexingPolicy: { ...indexingPolicy, spatialIndexes } })).status).toBe(400);
    expect((await replace({ geospatialConfig: { type: 'Round' } })).status).toBe(400);
    const mended = { conflictResolutionPolicy: { mode: 'Custom' }, geospatialConfig: { type: 'Geography' } };
    const { json } = await call(app, 'GET', '/dbs/shop/colls/old');
    expect((await replace({ ...json, ...mended })).json).toMatchObject(mended);
  });

  test('reports whether it shares its database’s throughput or has its own', async () => {
    const app = testServer();
    const ofOwn = { 'x-ms-offer-throughput': '400' };
    await call(app, 'POST', '/dbs', { body: { id: 'shared' }, headers: ofOwn });
    await call(app, 'POST', '/dbs', { body: { id: 'plain' } });
    const said = async (database: string, id: string, headers = {}) => {
      const path = `/dbs/${database}/colls`;
      const created = await call(app, 'POST', path, { body: { id, partitionKey }, headers });
      const read = await call(app, 'GET', `${path}/${id}`);
      return [created, read].map((reply) => reply.headers['x-ms-share-throughput']);
    };
    expect(await said('shared', 'a')).toEqual(['true', 'true']);
    expect(await said('shared', 'b', ofOwn)).toEqual([undefined, undefined]);
    expect(await said('plain', 'a')).toEqual([undefined, undefined]);
  });

  test.each([
    ['V1', 1],
    ['V2', 2],
    ['2', 2],
  ])('accepts the name of a partition key version, as the Java client sends it: %s', async (name, version) => {
    const app = await shopOnly();
    const body = { id: 'c', partitionKey: { ...partitionKey, version: name } };
    expect((await call(app, 'POST', '/dbs/shop/colls', { body })).status).toBe(201);
    const { json } = await call(app, 'GET', '/dbs/shop/colls/c');
    expect(json['partitionKey']).toMatchObject({ version });
    expect((await call(app, 'PUT', '/dbs/shop/colls/c', { body })).status).toBe(200);
  });

  test.each([
    [undefined],
    [null],
    [{}],
    [{ paths: [] }],
    [{ paths: ['id'] }],
    [{ paths: ['/a-b'] }],
    [{ paths: ['/a/'] }],
    [{ paths: ['/'] }],
    [{ paths: ['/*'] }],
    [{ paths: ['/"a'] }],
    [{ paths: ["/'a"] }],
    [{ paths: ['/\'a"'] }],
    [{ paths: ["/''"] }],
    [{ paths: ["/'a'b"] }],
    [{ paths: [1] }],
    [{ paths: ['/a', '/b'], kind: 'Hash' }],
    [{ paths: ['/a', '/a'] }],
    [{ paths: ['/a', '/b', '/c', '/d'] }],
    [{ paths: ['/a'], kind: 'Range' }],
    [{ paths: ['/a'], version: 3 }],
    [{ paths: ['/a'], version: 'V3' }],
    [{ paths: ['/a'], version: '' }],
    [{ paths: ['/a', '/b'], kind: 'MultiHash', version: 1 }],
    ['/a'],
  ])('takes no partition key like %j', async (bad) => {
    const reply = await call(await shopOnly(), 'POST', '/dbs/shop/colls', { body: { id: 'c', partitionKey: bad } });
    expect(reply.status).toBe(400);
  });

  test('tells which path of the partition key it refuses', async () => {
    const body = { id: 'c', partitionKey: { paths: ['id'] } };
    const { json } = await call(await shopOnly(), 'POST', '/dbs/shop/colls', { body });
    expect(json['message']).toContain("The partition key component definition path 'id' could not be accepted");
  });

  test('says that a partition key has too many paths', async () => {
    const body = { id: 'c', partitionKey: { paths: ['/a', '/b', '/c', '/d'], kind: 'MultiHash' } };
    const { json } = await call(await shopOnly(), 'POST', '/dbs/shop/colls', { body });
    expect(json['message']).toContain('Too many partition key paths');
  });

  test('created by a client without partition keys gets the system’s partition key', async () => {
    const app = await shopOnly();
    const headers = { 'x-ms-version': '2018-06-18' };
    const { json } = await call(app, 'POST', '/dbs/shop/colls', { body: { id: 'c' }, headers });
    // If the answer had a partition key, this client would believe that it must send keys.
    expect(json).not.toHaveProperty('partitionKey');
    const replaced = await call(app, 'PUT', '/dbs/shop/colls/c', { body: { ...json, defaultTtl: 60 }, headers });
    expect(replaced).toMatchObject({ status: 200, json: { defaultTtl: 60 } });
    for (const path of ['/dbs/shop/colls/c', '/dbs/shop/colls']) {
      expect((await call(app, 'GET', path, { headers })).text).not.toContain('partitionKey');
    }
    const known = (await call(app, 'GET', '/dbs/shop/colls/c')).json;
    expect(known['partitionKey']).toEqual({ paths: ['/_partitionKey'], kind: 'Hash', systemKey: true });
    const none = { 'x-ms-documentdb-partitionkey': '[]' };
    expect((await call(app, 'POST', '/dbs/shop/colls/c/docs', { body: { id: '1' }, headers: none })).status).toBe(201);
    expect((await call(app, 'GET', '/dbs/shop/colls/c/docs/1', { headers: none })).status).toBe(200);
  });

  test('tells a client without partition keys the progress of its index without being asked', async () => {
    const app = await shopOnly();
    const headers = { 'x-ms-version': '2017-11-15' };
    await call(app, 'POST', '/dbs/shop/colls', { body: { id: 'c' }, headers });
    const read = await call(app, 'GET', '/dbs/shop/colls/c', { headers });
    expect(read.headers['x-ms-documentdb-collection-index-transformation-progress']).toBe('100');
  });

  test('of a client without partition keys lets that client read and write items without any key', async () => {
    const app = await shopOnly();
    const headers = { 'x-ms-version': '2017-11-15' };
    await call(app, 'POST', '/dbs/shop/colls', { body: { id: 'c' }, headers });
    const docs = '/dbs/shop/colls/c/docs';
    const created = await call(app, 'POST', docs, { body: { id: '1' }, headers });
    expect(created.status).toBe(201);
    expect((await call(app, 'GET', `${docs}/1`, { headers })).json['id']).toBe('1');
    expect((await call(app, 'PUT', `${docs}/1`, { body: { id: '1', n: 2 }, headers })).json['n']).toBe(2);
    expect((await call(app, 'DELETE', `${docs}/1`, { headers })).status).toBe(204);
    for (const name of ['1', String(created.json['_rid'])]) {
      expect((await call(app, 'GET', `${docs}/${name}`, { headers })).status).toBe(404);
    }
    // Such a client does not see items that other clients wrote with a key of their own.
    await call(app, 'POST', docs, { body: { id: '2', _partitionKey: 'a' } });
    expect((await call(app, 'GET', `${docs}/2`, { headers })).status).toBe(404);
    const known = { 'x-ms-documentdb-partitionkey': '["a"]' };
    expect((await call(app, 'GET', `${docs}/2`, { headers: known })).status).toBe(200);
    const signed = { type: 'colls', link: 'dbs/shop/colls/c' };
    const target = `/${signed.link}/operations/partitionkeydelete`;
    expect((await call(app, 'POST', target, { headers, signed })).status).toBe(400);
  });

  test('may have a hierarchical partition key, of which a point read needs all components', async () => {
    const app = await shopOnly();
    await call(app, 'POST', '/dbs/shop/colls', {
      body: { id: 'c', partitionKey: { paths: ['/a', '/b'], kind: 'MultiHash' } },
    });
    const create = { body: { id: '1', a: 'x' }, headers: { 'x-ms-documentdb-partitionkey': '["x",{}]' } };
    expect((await call(app, 'POST', '/dbs/shop/colls/c/docs', create)).status).toBe(201);
    const read = (key: string) =>
      call(app, 'GET', '/dbs/shop/colls/c/docs/1', { headers: { 'x-ms-documentdb-partitionkey': key } });
    expect((await read('["x",{}]')).status).toBe(200);
    for (const others of ['["x"]', '["x",{},"y"]', '[]']) {
      // With this substatus clients read the definition again: the container may have been created again with another key.
      const { status, headers } = await read(others);
      expect({ others, status, substatus: headers['x-ms-substatus'] }).toEqual({
        others,
        status: 400,
        substatus: '1001',
      });
    }
  });

  test('reports its quota and the progress of its index when asked, and has one range of partition keys', async () => {
    const app = await shopOnly();
    await call(app, 'POST', '/dbs/shop/colls', { body: { id: 'c', partitionKey } });
    const headers = { 'x-ms-documentdb-populatequotainfo': 'true' };
    const quota = await call(app, 'GET', '/dbs/shop/colls/c', { headers });
    expect(quota.headers['x-ms-resource-quota']).toContain('collectionSize=10485760');
    const progress = 'x-ms-documentdb-collection-index-transformation-progress';
    expect(quota.headers[progress]).toBe('100');
    const plain = await call(app, 'GET', '/dbs/shop/colls/c');
    expect(plain.headers).not.toHaveProperty('x-ms-resource-quota');
    expect(plain.headers).not.toHaveProperty(progress);
    const lazily = 'x-ms-documentdb-collection-lazy-indexing-progress';
    expect(quota.headers).not.toHaveProperty(lazily);
    await call(app, 'PUT', '/dbs/shop/colls/c', {
      body: { id: 'c', partitionKey, indexingPolicy: { indexingMode: 'lazy' } },
    });
    expect((await call(app, 'GET', '/dbs/shop/colls/c', { headers })).headers[lazily]).toBe('100');
    const ranges = await call(app, 'GET', '/dbs/shop/colls/c/pkranges');
    expect(ranges.json['PartitionKeyRanges']).toMatchObject([{ id: '0', minInclusive: '', maxExclusive: 'FF' }]);
  });

  test('that is missing is answered with another 404 than a missing parent', async () => {
    const app = await shopOnly();
    const substatus = async (path: string) => {
      const reply = await call(app, 'GET', path);
      expect(reply.status).toBe(404);
      return reply.headers['x-ms-substatus'];
    };
    expect(await substatus('/dbs/shop/colls/c')).toBeUndefined();
    expect(await substatus('/dbs/shop/colls/c/docs')).toBe('1003');
    expect(await substatus('/dbs/none/colls')).toBe('1003');
    expect(await substatus('/dbs/shop/colls/c/sprocs')).toBe('1003');
  });

  test('has an empty list of conflicts, to which nothing can be added', async () => {
    const app = await shopOnly();
    await call(app, 'POST', '/dbs/shop/colls', { body: { id: 'c', partitionKey } });
    const path = '/dbs/shop/colls/c/conflicts';
    const list = await call(app, 'GET', path);
    expect(list.json).toMatchObject({ Conflicts: [], _count: 0 });
    // In direct mode, the Java client repeats the request for 15 seconds if there is no session token.
    expect(list.headers['x-ms-session-token']).toMatch(/^0:-1#\d+$/);
    const created = await call(app, 'POST', path, { body: { id: 'x' } });
    expect(created.status).toBe(400);
    expect(created.json['message']).toMatch(/There are no conflicts/);
    expect((await call(app, 'GET', `${path}/x`)).status).toBe(404);
    expect((await call(app, 'POST', `${path}/x`, { body: [] })).status).toBe(400);
  });

  test('refuses a write with an unknown trigger instead of ignoring the trigger', async () => {
    const app = await shopOnly();
    await call(app, 'POST', '/dbs/shop/colls', { body: { id: 'c', partitionKey } });
    for (const when of ['pre', 'post']) {
      const headers = { [`x-ms-documentdb-${when}-trigger-include`]: 'audit' };
      const reply = await call(app, 'POST', '/dbs/shop/colls/c/docs', { headers, body: { id: '1' } });
      expect(reply.status).toBe(400);
      expect(reply.json['message']).toContain(`There is no ${when}-trigger 'audit'`);
    }
    expect((await call(app, 'GET', '/dbs/shop/colls/c/docs')).json).toMatchObject({ _count: 0 });
  });

  test('has an offer that can be found by the container’s link', async () => {
    const app = await shopOnly();
    const { json } = await call(app, 'POST', '/dbs/shop/colls', { body: { id: 'c', partitionKey } });
    const found = await call(app, 'POST', '/offers', {
      headers: { 'x-ms-documentdb-isquery': 'true' },
      body: { query: `SELECT * FROM root WHERE root.resource = "${String(json['_self'])}"` },
    });
    const [offer] = found.json['Offers'] as { readonly id: string; readonly _self: string; readonly content: object }[];
    expect(offer).toMatchObject({ content: { offerThroughput: 400 } });
    const signed = { type: 'offers', link: offer!.id.toLowerCase() };
    expect((await call(app, 'GET', `/${offer!._self}`, { signed })).json['id']).toBe(offer!.id);
    expect((await call(app, 'GET', '/offers/none', { signed: { type: 'offers', link: 'none' } })).status).toBe(404);
  });
});

describe('a partition key path', () => {
  test.each([
    ['/a', ['a']],
    ['/a/b', ['a', 'b']],
    ['/"a-b"/c', ['a-b', 'c']],
    ['/"a/b"', ['a/b']],
    ['/"a\\"b"', ['a"b']],
    ["/'a-b'/c", ['a-b', 'c']],
    ["/'a/b'/\"it's\"", ['a/b', "it's"]],
    ["/'a\\'b'", ["a'b"]],
    ['/größe', ['größe']],
    ['/_partitionKey', ['_partitionKey']],
  ])('%s is split into its names', (path, names) => {
    expect(parseDocumentPath(path)).toEqual(names);
  });
});
