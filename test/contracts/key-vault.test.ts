import { afterAll, describe, expect, it } from 'vitest';
import { describeKeyVault } from '@epitaph/core/testing/key-vault-contract.ts';
import { MemoryKeyVault, ToyBodySealer } from '@epitaph/core/testing/memory-key-vault.ts';
import { SharedStorage, TestFolder } from './sqlite-folder.ts';

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

describeKeyVault(
  'the SQLite key vault with AES-GCM, written inline,',
  async () => {
    const folder = new TestFolder();
    const { vault, sealer } = await folder.open({ writers: 'inline' });
    return {
      vault,
      sealer,
      reopen: async () => {
        await folder.close();
        return folder.open({ writers: 'inline' });
      },
      dispose: () => folder.dispose(),
    };
  },
  framework,
);

const threaded = new SharedStorage({ writers: 'threads' });
afterAll(() => threaded.dispose());

describeKeyVault(
  'the SQLite key vault with AES-GCM, written by its thread,',
  async () => {
    const { vault, sealer } = await threaded.get();
    return { vault, sealer, reopen: () => threaded.reopen(), dispose: async () => {} };
  },
  framework,
);
