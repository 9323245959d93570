import { expect, it } from 'vitest';
import { HashedItemNaming } from '@epitaph/storage/crypto/item-naming.ts';

it('names of items need a secret for each container, of which not all that ever were are kept', async () => {
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
