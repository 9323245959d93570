import type { StorageOptions } from './sqlite-folder.ts';
import { TestFolder } from './sqlite-folder.ts';
import { describeReadModel, type ReadModelUnderTest } from './read-model-contract.ts';

async function sqliteReadModel(given: StorageOptions): Promise<ReadModelUnderTest> {
  const folder = new TestFolder();
  // The read models get changes that no log has.
  const options = { ...given, logMayBeOlder: true };
  const { readModels } = await folder.open(options);
  return {
    store: readModels.current.store,
    another: async () => (await readModels.createNext()).store,
    reopen: async () => {
      await folder.close();
      return (await folder.open(options)).readModels.current.store;
    },
    dispose: () => folder.dispose(),
    refusesLate: options.writers === 'threads' || options.readModelLag !== undefined,
  };
}

describeReadModel('the SQLite read model, written inline,', () => sqliteReadModel({ writers: 'inline' }));
describeReadModel('the SQLite read model, written by its thread,', () => sqliteReadModel({ writers: 'threads' }));
describeReadModel('the SQLite read model, written behind when somebody reads,', () =>
  sqliteReadModel({ writers: 'inline', readModelLag: { changes: 1_000, forMs: undefined } }),
);
