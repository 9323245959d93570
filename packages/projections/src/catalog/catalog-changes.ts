import { evolveContainer } from '@epitaph/core/container/evolve.ts';
import { parseContainerStream } from '@epitaph/core/container/stream-name.ts';
import { evolveDatabase } from '@epitaph/core/database/evolve.ts';
import { parseDatabaseStream } from '@epitaph/core/database/stream-name.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { ReadModelChange } from '../read-model-store.ts';
import type { Catalog } from './catalog.ts';

/** What an event of a database's or container's stream changes; undefined for other streams. */
export function catalogChange(
  event: RecordedEvent,
  catalog: Catalog,
): Extract<ReadModelChange, { kind: 'database' | 'container' }> | undefined {
  const database = parseDatabaseStream(event.stream);
  if (database !== undefined) {
    return {
      kind: 'database',
      number: catalog.databaseNumber(database) ?? event.position,
      state: evolveDatabase(catalog.databaseByRid(database), event),
    };
  }
  const container = parseContainerStream(event.stream);
  if (container === undefined) return undefined;
  const known = catalog.containerByRid(container);
  return { kind: 'container', number: known?.number ?? event.position, state: evolveContainer(known?.state, event) };
}
