import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { DestroyRequest } from '@epitaph/core/vault/key-vault.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { describeKeyVault } from '@epitaph/core/testing/key-vault-contract.ts';
import { MemoryKeyVault, ToyBodySealer } from '@epitaph/core/testing/memory-key-vault.ts';
import type { LogOwner } from '@epitaph/storage/log-owner.ts';
import { TestFolder } from './sqlite-folder.ts';

const framework = { describe, it, expect };

describeKeyVault(
  'the memory key vault',
  async () => {
    const vault = new MemoryKeyVault();
    return {
      vault,
      sealer: new ToyBodySealer(),
      reopen: async () => ({ vault: new MemoryKeyVault(vault.contents), sealer: new ToyBodySealer() }),
      dispose: () => vault.close(),
    };
  },
  framework,
);

for (const writers of ['inline', 'threads'] as const) {
  describeKeyVault(
    `the SQLite key vault with AES-GCM, written ${writers === 'inline' ? 'inline' : 'by its thread'},`,
    async () => {
      const folder = new TestFolder();
      const { vault, sealer } = await folder.open({ writers });
      return {
        vault,
        sealer,
        reopen: async () => {
          await folder.close();
          return folder.open({ writers });
        },
        dispose: () => folder.dispose(),
      };
    },
    framework,
  );
}

describe('the SQLite key vault while it is copied', () => {
  it.each([
    { whose: 'its folder’s log', logElsewhere: undefined },
    {
      // There are no spare keys here, because the copy would wait for them.
      whose: 'a log on a server',
      logElsewhere: {
        id: 'l',
        name: 'a server',
        isEmpty: true,
        log: new MemoryEventLog(),
        claim: async (owner: LogOwner) => owner,
      },
    },
  ])(
    'beside $whose, destroys no key until the copy is done, and creates new ones all the same',
    async ({ logElsewhere }) => {
      const folder = new TestFolder();
      const { vault } = await folder.open({ writers: 'threads', logElsewhere });
      const reader = new DatabaseSync(folder.file('vault.db'), { readOnly: true });
      onTestFinished(async () => {
        reader.close();
        await folder.dispose();
      });
      const find = reader.prepare('SELECT wrapped = zeroblob(length(wrapped)) AS gone FROM keys WHERE id = ?');
      const made = async (life: string) => {
        const stream = `item-rid.${life}.0`;
        const { key, stored } = vault.createKey(stream);
        await stored;
        return { keyId: key.keyId, stream, lastWriteTs: 0, lastEventAtMs: 0, nowMs: 1_000 };
      };
      const lives = [await made('before'), await made('beside'), await made('after')];
      const [before, beside, after] = lives as [DestroyRequest, DestroyRequest, DestroyRequest];
      /** Which of the keys are in the file. */
      const there = () => lives.map(({ keyId }) => (find.get(keyId) as { gone: number }).gone === 0);
      const seen: boolean[][] = [];
      const copying = async (life: string) => {
        seen.push(there());
        await made(life);
        seen.push(there());
      };
      const destructions = [vault.destroyKeys([before])];
      const copied = vault.whileCopying(async () => {
        destructions.push(vault.destroyKeys([beside]));
        await copying('new');
      });
      const again = vault.whileCopying(async () => {
        await copying('newer');
        throw new Error('the disk is full');
      });
      destructions.push(vault.destroyKeys([after]));
      await copied;
      await expect(again).rejects.toThrow('the disk is full');
      const kept = [false, true, true];
      expect(seen).toEqual([kept, kept, kept, kept]);
      const kinds = (await Promise.all(destructions)).flat().map(({ kind }) => kind);
      expect(kinds).toEqual(['destroyed', 'destroyed', 'destroyed']);
      expect(there()).toEqual([false, false, false]);
    },
  );
});
