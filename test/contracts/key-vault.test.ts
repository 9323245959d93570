import { describe, expect, it } from 'vitest';
import { describeKeyVault, type KeyVaultUnderTest } from '@epitaph/core/testing/key-vault-contract.ts';
import { MemoryKeyVault, ToyBodySealer } from '@epitaph/core/testing/memory-key-vault.ts';
import { type StorageOptions, TestFolder } from './sqlite-folder.ts';

async function sqliteVault(options: StorageOptions): Promise<KeyVaultUnderTest> {
  const folder = new TestFolder();
  const { vault, sealer } = await folder.open(options);
  return {
    vault,
    sealer,
    reopen: async () => {
      await folder.close();
      return folder.open(options);
    },
    dispose: () => folder.dispose(),
  };
}

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
  { describe, it, expect },
);

describeKeyVault('the SQLite key vault with AES-GCM, written inline,', () => sqliteVault({ writers: 'inline' }), {
  describe,
  it,
  expect,
});

describeKeyVault('the SQLite key vault with AES-GCM, written by its thread,', () => sqliteVault({ writers: 'threads' }), {
  describe,
  it,
  expect,
});
