import { describe, expect, it } from 'vitest';
import { describeKeyVault } from '@epitaph/core/testing/key-vault-contract.ts';
import { MemoryKeyVault, ToyBodySealer } from '@epitaph/core/testing/memory-key-vault.ts';

describeKeyVault(
  'the memory key vault',
  () => {
    const vault = new MemoryKeyVault();
    const sealer = new ToyBodySealer();
    return Promise.resolve({
      vault,
      sealer,
      reopen: () => Promise.resolve({ vault: new MemoryKeyVault(vault.contents), sealer: new ToyBodySealer() }),
      dispose: () => vault.close(),
    });
  },
  { describe, it, expect },
);
