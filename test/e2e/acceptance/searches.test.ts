import {
  type Container,
  type FeedOptions,
  GeospatialType,
  VectorEmbeddingDataType,
  VectorEmbeddingDistanceFunction,
} from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { World } from '../support/world.ts';

let world: World;
let container: Container;

beforeAll(async () => {
  world = await World.open();
  container = await world.container({
    vectorEmbeddingPolicy: {
      vectorEmbeddings: [
        {
          path: '/place',
          dataType: VectorEmbeddingDataType.Float32,
          dimensions: 2,
          distanceFunction: VectorEmbeddingDistanceFunction.Euclidean,
        },
      ],
    },
  });
  const items = [
    { id: 'far', place: [9, 9], text: 'A long walk over the hills to the sea, and back again in the dark' },
    { id: 'near', place: [1, 0], text: 'the sea' },
    { id: 'nowhere', text: 'hills' },
    { id: 'middle', place: [3, 0], text: 'hills, hills and the sea' },
  ];
  for (const item of items) await container.items.create({ customer: item.id, ...item });
});
afterAll(() => world.end());

async function rows(sql: string, options: FeedOptions = {}): Promise<unknown[]> {
  return (await container.items.query<unknown>(sql, options).fetchAll()).resources;
}

describe('a vector search', () => {
  const nearest = 'ORDER BY VectorDistance(c.place, [0, 0])';

  test('finds the nearest items by the distance function of the container’s policy', async () => {
    expect(await rows(`SELECT TOP 2 c.id FROM c WHERE IS_DEFINED(c.place) ${nearest}`)).toEqual([
      { id: 'near' },
      { id: 'middle' },
    ]);
    expect(await rows(`SELECT VALUE c.id FROM c ${nearest} OFFSET 2 LIMIT 5`)).toEqual(['middle', 'far']);
    expect(await rows(`SELECT DISTINCT TOP 5 VALUE IS_DEFINED(c.text) FROM c ${nearest}`)).toEqual([true]);
    expect(
      await rows(
        `SELECT TOP 1 c.id, VectorDistance(c.place, [0, 0]) AS away FROM c WHERE IS_DEFINED(c.place) ${nearest}`,
      ),
    ).toEqual([{ id: 'near', away: 1 }]);
  });

  test('takes its vector from a parameter', async () => {
    const query = {
      query:
        'SELECT TOP @n VALUE c.id FROM c WHERE c.id NOT IN ("near", "nowhere") ORDER BY VectorDistance(c.place, @v)',
      parameters: [
        { name: '@n', value: 1 },
        { name: '@v', value: [1, 0] },
      ],
    };
    expect((await container.items.query(query).fetchAll()).resources).toEqual(['middle']);
  });

  test('without a limit is refused by the client, unless its options allow it', async () => {
    await expect(rows(`SELECT c.id FROM c ${nearest}`)).rejects.toThrow(/without TOP or LIMIT/);
    await expect(rows(`SELECT TOP 60000 c.id FROM c ${nearest}`)).rejects.toThrow(/TOP or OFFSET \+ LIMIT value/);
    expect(await rows(`SELECT VALUE c.id FROM c ${nearest}`, { allowUnboundedNonStreamingQueries: true })).toEqual([
      'nowhere',
      'near',
      'middle',
      'far',
    ]);
  });

  test('puts items without a vector where ORDER BY puts undefined values: before all others', async () => {
    expect(await rows(`SELECT TOP 1 VALUE c.id FROM c ${nearest}`)).toEqual(['nowhere']);
    expect(await rows(`SELECT TOP 1 VALUE c.id FROM c ${nearest}`, { partitionKey: 'nowhere' })).toEqual(['nowhere']);
  });
});

describe('a full-text search', () => {
  test('finds words, and ranks the texts that fit best first', async () => {
    expect(await rows("SELECT VALUE c.id FROM c WHERE FullTextContainsAll(c.text, 'Hills', 'sea')")).toEqual([
      'far',
      'middle',
    ]);
    expect(await rows("SELECT TOP 2 VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'hills')")).toEqual([
      'nowhere',
      'middle',
    ]);
    const fused = "RRF(FullTextScore(c.text, 'sea'), VectorDistance(c.place, [9, 9]), [1, 10])";
    expect(await rows(`SELECT TOP 1 VALUE c.id FROM c ORDER BY RANK ${fused}`)).toEqual(['far']);
  });
});

describe('a spatial function', () => {
  const query = {
    query: 'SELECT VALUE c.id FROM c WHERE ST_WITHIN(c.place, @area)',
    parameters: [
      {
        name: '@area',
        value: {
          type: 'Polygon',
          coordinates: [
            [
              [19, 48],
              [20, 48],
              [20, 49],
              [19, 49],
              [19, 48],
            ],
          ],
        },
      },
    ],
  };

  test.each([
    ['Geography', ['inside']],
    ['Geometry', ['inside', 'between the edge and its parallel']],
    [undefined, ['inside']],
  ] as const)('uses the globe or the plane, as the container’s definition says: %s', async (type, expected) => {
    const config = type === undefined ? {} : { geospatialConfig: { type: GeospatialType[type] } };
    const places = await world.container(config);
    const at = (id: string, ...coordinates: number[]) =>
      places.items.create({ id, customer: 'ann', place: { type: 'Point', coordinates } });
    await at('inside', 19.59907, 48.00105);
    await at('between the edge and its parallel', 19.59907, 48.00011);
    await at('outside', 21, 48.5);
    expect((await places.items.query<string>(query).fetchAll()).resources).toEqual(expected);
  });
});
