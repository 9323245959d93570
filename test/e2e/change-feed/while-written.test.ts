import { ChangeFeedStartFrom, StatusCodes, type ChangeFeedIteratorOptions, type Container } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { World } from '../support/world.ts';
import { ALL_VERSIONS, keeping, told, type LatestItem, type Version } from './support.ts';

let world: World;
beforeAll(async () => {
  world = await World.open({ automaticPurge: true, policyGraceSeconds: 0 });
});
afterAll(() => world.end());

const WRITERS = 4;
const ROUNDS = 40;
/** Seeds of the writes, the same in every run. The timing of concurrent work differs in any case. */
const SEEDS = [1, 2, 3];

function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Several writers change items of their own at random. Returns what each did, in order. */
async function write(container: Container, seed: number): Promise<string[][]> {
  return Promise.all(
    Array.from({ length: WRITERS }, async (_, writer) => {
      const next = random(seed * 100 + writer);
      const there = new Set<string>();
      const done: string[] = [];
      for (let round = 0; round < ROUNDS; round += 1) {
        const id = `${writer}-${next(4)}`;
        const existed = there.has(id);
        if (existed && next(3) === 0) {
          await container.item(id, `c${writer}`).delete();
          there.delete(id);
          done.push(`delete ${id}`);
        } else {
          await container.items.upsert({ id, customer: `c${writer}`, n: round });
          there.add(id);
          done.push(`${existed ? 'replace' : 'create'} ${id}`);
        }
      }
      return done;
    }),
  );
}

/** Reads pages until the writers are done and nothing is new. Every fifth page, a new iterator continues from a token. */
async function follow<Change>(
  container: Container,
  options: ChangeFeedIteratorOptions,
  done: () => boolean,
): Promise<Change[]> {
  const found: Change[] = [];
  let iterator = container.items.getChangeFeedIterator<Change>(options);
  for (let pages = 0; ; pages += 1) {
    const wasDone = done();
    const page = await iterator.readNext();
    if (page.statusCode === StatusCodes.NotModified && wasDone) return found;
    if (page.statusCode !== StatusCodes.NotModified) found.push(...page.result);
    if (pages % 5 === 4) {
      const { changeFeedStartFrom: _, ...rest } = options;
      const start = ChangeFeedStartFrom.Continuation(page.continuationToken);
      iterator = container.items.getChangeFeedIterator<Change>({ ...rest, changeFeedStartFrom: start });
    }
  }
}

describe('while several writers change a container, and it is purged,', () => {
  test.for(SEEDS)('the feed of all versions has exactly the operations of each writer (seed %i)', async (seed) => {
    const container = await world.container({ ...keeping(60), throughput: 12_000 });
    const options = { changeFeedStartFrom: ChangeFeedStartFrom.Now(), changeFeedMode: ALL_VERSIONS, maxItemCount: 7 };
    // So that "now" is before the first write.
    const iterator = container.items.getChangeFeedIterator(options);
    const { continuationToken } = await iterator.readNext();
    let ended = false;
    const start = { ...options, changeFeedStartFrom: ChangeFeedStartFrom.Continuation(continuationToken) };
    const [done, changes] = await Promise.all([
      write(container, seed).finally(() => (ended = true)),
      follow<Version>(container, start, () => ended),
    ]);
    const found = told(changes);
    expect(found).toHaveLength(WRITERS * ROUNDS);
    for (const [writer, did] of done.entries()) {
      expect(found.filter((text) => text.includes(` ${writer}-`))).toEqual(did);
    }
  });

  test.for(SEEDS)('a reader of the latest versions ends up with the present items (seed %i)', async (seed) => {
    const container = await world.container();
    const options = { changeFeedStartFrom: ChangeFeedStartFrom.Beginning(), maxItemCount: 5 };
    let ended = false;
    const [, changes] = await Promise.all([
      write(container, seed).finally(() => (ended = true)),
      follow<LatestItem>(container, options, () => ended),
    ]);
    const newest = new Map(changes.map(({ id, n }) => [id, n]));
    const { resources } = await container.items.readAll<LatestItem>().fetchAll();
    // The reader may still have items that were deleted later, because this feed has no deletes.
    for (const { id, n } of resources) expect(newest.get(id), id).toBe(n);
    const lsns = changes.map(({ _lsn }) => _lsn);
    expect(lsns).toEqual(lsns.toSorted((left, right) => left - right));
    expect(new Set(lsns).size).toBe(lsns.length);
  });
});
