import { onTestFinished } from 'vitest';
import { Store } from '@epitaph/api/store/store.ts';
import { ManualClock } from '@epitaph/core/clock.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { openSqliteStorage, type SqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';

/**
 * A store of one test, without threads and by default with a purge on demand alone, and the storage under it, for a test
 * that has that do something at another moment.
 *
 * @param change told of the storage before the store begins with it
 */
export async function openInlineStore(
  name: string,
  change: (storage: SqliteStorage) => void = () => {},
  { automaticPurge = false } = {},
): Promise<{ readonly store: Store; readonly storage: SqliteStorage; readonly clock: ManualClock }> {
  const folder = newFolder(name);
  const storage = await openSqliteStorage({ folder, clock: 'manual', writers: 'inline', durable: false });
  change(storage);
  const clock = new ManualClock(1_700_000_000_000);
  const store = await Store.open({
    ...storage,
    backup: undefined,
    clock,
    automaticPurge,
    policyGraceSeconds: 0,
    closePorts: () => storage.close(),
  });
  onTestFinished(async () => {
    await store.close();
    removeFolder(folder);
  });
  return { store, storage, clock };
}

/** Has the record of one type of event wait, once it is decided, until it is told to go on: by default a write of an item's. */
export class SlowWrite {
  #begun: (() => void) | undefined;
  readonly #said = Promise.withResolvers<void>();

  constructor(log: EventLog, type = 'ItemUpserted') {
    const append = log.append.bind(log);
    log.append = async (...[appends, options]: Parameters<EventLog['append']>) => {
      if (this.#begun !== undefined && appends[0]!.events[0]!.type === type) {
        this.#begun();
        this.#begun = undefined;
        await this.#said.promise;
      }
      return append(appends, options);
    };
  }

  /** The next one is slow. Resolves when it waits. */
  begin(): Promise<void> {
    return new Promise((resolve) => (this.#begun = resolve));
  }

  end(): void {
    this.#said.resolve();
  }
}
