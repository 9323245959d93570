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
