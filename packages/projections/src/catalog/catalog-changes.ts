import { evolveClientEncryptionKey } from '@epitaph/core/client-encryption-key/evolve.ts';
import { parseClientEncryptionKeyStream } from '@epitaph/core/client-encryption-key/stream-name.ts';
import { evolveContainer } from '@epitaph/core/container/evolve.ts';
import { parseContainerStream } from '@epitaph/core/container/stream-name.ts';
import { evolveDatabase } from '@epitaph/core/database/evolve.ts';
import { parseDatabaseStream } from '@epitaph/core/database/stream-name.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { evolveUser } from '@epitaph/core/user/evolve.ts';
import { parseUserStream } from '@epitaph/core/user/stream-name.ts';
import type { CatalogChange, CatalogEntry } from '../read-model-store.ts';
import type { Catalog } from './catalog.ts';

/** What an event changes in the catalog; undefined for streams that it knows nothing of. */
export function catalogChange(event: RecordedEvent, catalog: Catalog): CatalogChange | undefined {
  const database = parseDatabaseStream(event.stream);
  if (database !== undefined) {
    return {
      kind: 'database',
      number: catalog.databaseNumber(database) ?? event.position,
      state: evolveDatabase(catalog.databaseByRid(database), event),
    };
  }
  const container = parseContainerStream(event.stream);
  if (container !== undefined) {
    const known = catalog.containerByRid(container);
    const isNext = catalog.isNext(event);
    // What a container's state decides, its purge above all, is told to stand on less than there was.
    const before = known === undefined || isNext ? known?.state : { ...known.state, lacksEvents: true as const };
    const state = evolveContainer(before, event);
    if (known === undefined) return { kind: 'container', number: event.position, state };
    const { holdId } = event.data;
    const hold = typeof holdId === 'string' ? state.retention.holds.find(holdId) : undefined;
    return {
      kind: 'container',
      number: known.number,
      state,
      before: known.state,
      holds: hold === undefined ? [] : [hold],
    };
  }
  return entryChange(event, catalog);
}

function entryChange(event: RecordedEvent, catalog: Catalog): CatalogEntry | undefined {
  const user = parseUserStream(event.stream);
  if (user !== undefined) {
    const known = catalog.entry('user', user);
    const state = evolveUser(known?.state, event);
    // That a name was taken is for deciders alone.
    return state.status === 'taken' ? undefined : { kind: 'user', number: known?.number ?? event.position, state };
  }
  const key = parseClientEncryptionKeyStream(event.stream);
  if (key === undefined) return undefined;
  const known = catalog.entry('client-encryption-key', key);
  return {
    kind: 'client-encryption-key',
    number: known?.number ?? event.position,
    state: evolveClientEncryptionKey(known?.state, event),
  };
}
