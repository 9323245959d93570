import { expect, it } from 'vitest';
import { HashedItemNaming } from '@epitaph/storage/crypto/item-naming.ts';

it('names of items need a secret for each container, of which only a limited number are cached', async () => {
  let asked = 0;
  const naming = new HashedItemNaming({
    containerSecret: async (rid) => {
      asked += 1;
      return Buffer.alloc(32, rid);
    },
  });
  const nameOf = async (rid: string) => naming.itemStreamPrefix(rid, '["p"]', 'a');
  const first = await nameOf('first');
  expect(await nameOf('first')).toBe(first);
  expect(asked).toBe(1);
  for (let number = 0; number < 20_000; number += 1) await nameOf(`other ${number}`);
  asked = 0;
  expect(await nameOf('first')).toBe(first);
  expect(asked).toBe(1);
});

it('concurrent names need a secret once, and again after it was forgotten or could not be read', async () => {
  const asked: PromiseWithResolvers<Uint8Array>[] = [];
  const naming = new HashedItemNaming({
    containerSecret: () => {
      const answer = Promise.withResolvers<Uint8Array>();
      asked.push(answer);
      return answer.promise;
    },
  });
  const nameOf = async (id: string) => naming.itemStreamPrefix('rid', '["p"]', id);
  const failed = Promise.allSettled([nameOf('a'), nameOf('b')]);
  asked[0]!.reject(new Error('the vault is away'));
  expect((await failed).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  const former = Promise.all([nameOf('a'), nameOf('b')]);
  expect(asked.length).toBe(2);
  naming.forget();
  const names = Promise.all([nameOf('a'), nameOf('b')]);
  expect(asked.length).toBe(3);
  asked[1]!.resolve(Buffer.alloc(32, 2));
  await former;
  asked[2]!.resolve(Buffer.alloc(32, 3));
  const anew = new HashedItemNaming({ containerSecret: async () => Buffer.alloc(32, 3) });
  expect(await names).toEqual([
    await anew.itemStreamPrefix('rid', '["p"]', 'a'),
    await anew.itemStreamPrefix('rid', '["p"]', 'b'),
  ]);
  expect(await nameOf('a')).toBe((await names)[0]);
  expect(asked.length).toBe(3);
});

/** A naming whose secrets are a byte each, by container. */
const namingBy = (secrets: Readonly<Record<string, number>>) =>
  new HashedItemNaming({ containerSecret: async (rid) => Buffer.alloc(32, secrets[rid]) });

it('names are made from secret, partition key and id, whatever was named before', async () => {
  const secrets: Record<string, number> = { one: 1, two: 2 };
  const naming = namingBy(secrets);
  const items = [
    ['one', '["p"]', 'a'],
    ['two', '["p"]', 'a'],
    ['two', '["q"]', 'a'],
    ['two', '["q"]', 'b'],
  ] as const;
  const itemPart = (name: string) => name.slice('item-one.12345678'.length);
  const partitionPart = (name: string) => name.slice('item-one.'.length, -itemPart(name).length);
  const names: string[] = [];
  for (const [rid, partitionKey, id] of items) {
    const name = await naming.itemStreamPrefix(rid, partitionKey, id);
    expect(name).toBe(await namingBy(secrets).itemStreamPrefix(rid, partitionKey, id));
    names.push(name);
  }
  expect(new Set(names.map(itemPart)).size).toBe(4);
  const partitions = names.map(partitionPart);
  expect([...new Set(partitions)]).toEqual(partitions.slice(0, 3));
  secrets['two'] = 3;
  naming.forget();
  const anew = await naming.itemStreamPrefix('two', '["p"]', 'a');
  expect(anew).toBe(await namingBy(secrets).itemStreamPrefix('two', '["p"]', 'a'));
  expect([itemPart(anew), partitionPart(anew)]).not.toEqual([itemPart(names[1]!), partitionPart(names[1]!)]);
});

it('a partition’s items, and an item by its pseudonym, have the names that follow from the partition key', async () => {
  const naming = namingBy({ one: 1 });
  const name = await naming.itemStreamPrefix('one', '["p"]', 'a');
  expect(name.startsWith(await naming.partitionStreamPrefix('one', '["p"]'))).toBe(true);
  expect((await naming.partitionStreamPrefix('one', '["p"]')).length).toBe('item-one.12345678'.length);
  const pseudonym = await naming.pseudonym('one', { partitionKey: '["p"]', id: 'a' });
  expect(await naming.itemStreamPrefix('one', pseudonym.partitionKey, pseudonym.id)).toBe(name);
  expect(await naming.partitionPseudonym('one', '["p"]')).toBe(pseudonym.partitionKey);
});

it('a value of a unique key has a name of its own in each partition and with each secret', async () => {
  const nameOf = (secret: number, partitionKey: string, value: string) =>
    namingBy({ one: secret }).uniqueKeyStream('one', partitionKey, value);
  const names = await Promise.all([
    nameOf(1, '["p"]', '1'),
    nameOf(1, '["q"]', '1'),
    nameOf(1, '["p"]', '2'),
    nameOf(2, '["p"]', '1'),
  ]);
  expect(new Set(names).size).toBe(4);
});
