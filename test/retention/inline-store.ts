import { onTestFinished } from 'vitest';
import { Store } from '@epitaph/api/store/store.ts';
import { ManualClock } from '@epitaph/core/clock.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { openSqliteStorage, type SqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';

/**
 * A store for one test, without threads and by default with a purge on demand only, and its storage, so that the test can delay calls.
 *
 * @param change called with the storage before the store uses it
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

/** Delays an append of one type of event, after its decision, until the test lets it go on; by default the write of an item. */
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

  /** Delays the next append. Resolves when it waits. */
  begin(): Promise<void> {
    return new Promise((resolve) => (this.#begun = resolve));
  }

  end(): void {
    this.#said.resolve();
  }
}
