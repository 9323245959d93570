import { evolveClientEncryptionKey } from '@epitaph/core/client-encryption-key/evolve.ts';
import { parseClientEncryptionKeyStream } from '@epitaph/core/client-encryption-key/stream-name.ts';
import { evolveContainer } from '@epitaph/core/container/evolve.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { parseContainerStream } from '@epitaph/core/container/stream-name.ts';
import { evolveDatabase } from '@epitaph/core/database/evolve.ts';
import { parseDatabaseStream } from '@epitaph/core/database/stream-name.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { evolveScript } from '@epitaph/core/script/evolve.ts';
import type { ScriptState } from '@epitaph/core/script/state.ts';
import { parseScriptStream } from '@epitaph/core/script/stream-name.ts';
import { assertLost, unlessDamaged, whyUnreadable } from '@epitaph/core/upcast.ts';
import { evolveUser } from '@epitaph/core/user/evolve.ts';
import type { TakenUserName, UserState } from '@epitaph/core/user/state.ts';
import { parseUserStream } from '@epitaph/core/user/stream-name.ts';
import type { CatalogChange, CatalogEntry } from '../read-model-store.ts';
import type { Catalog } from './catalog.ts';
import { lostContainer } from './lost-container.ts';

/** What an event changes in the catalog. Undefined for streams that the catalog does not contain. */
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
    const state = containerAfter(event, known?.state, isNext);
    if (known === undefined) return { kind: 'container', number: event.position, state };
    const { holdId } = whyUnreadable(event) === undefined ? event.data : {};
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

/**
 * A container's state after an event. If the log has lost events of the container, or has some that can't be read, the
 * state is marked as lacking events, so that its users, above all the purge, know that it may be wrong.
 */
function containerAfter(event: RecordedEvent, known: ContainerState | undefined, isNext: boolean): ContainerState {
  try {
    return evolveContainer(known === undefined || isNext ? known : { ...known, lacksEvents: true }, event);
  } catch (error) {
    assertLost(error);
    if (known !== undefined) return { ...known, lacksEvents: true };
  }
  const lost = lostContainer(parseContainerStream(event.stream)!, event);
  try {
    return evolveContainer(lost, event);
  } catch (error) {
    unlessDamaged(error);
    return lost;
  }
}

/**
 * A user's state after an event. An event that is lost or can't be read may have taken a permission away. Then all
 * permissions from before are dropped, so that none comes back. An administrator must grant them again.
 */
function userAfter(event: RecordedEvent, known: UserState | undefined, isNext: boolean): UserState | TakenUserName {
  const before = known === undefined || isNext ? known : { ...known, permissions: [] };
  try {
    return evolveUser(before, event);
  } catch (error) {
    assertLost(error);
    if (known === undefined) throw error;
    return { ...known, permissions: [] };
  }
}

/**
 * A script's state after an event. If the event can't be read, the script counts as deleted, because its old text must
 * not be run. It must be stored again.
 */
function scriptAfter(event: RecordedEvent, known: ScriptState | undefined): ScriptState {
  try {
    return evolveScript(known, event);
  } catch (error) {
    assertLost(error);
    if (known === undefined) throw error;
    return { ...known, status: 'deleted', body: '' };
  }
}

function entryChange(event: RecordedEvent, catalog: Catalog): CatalogEntry | undefined {
  const user = parseUserStream(event.stream);
  if (user !== undefined) {
    const known = catalog.entry('user', user);
    const state = userAfter(event, known?.state, catalog.isNext(event));
    // Only deciders need the record that a name was taken.
    return state.status === 'taken' ? undefined : { kind: 'user', number: known?.number ?? event.position, state };
  }
  const script = parseScriptStream(event.stream);
  if (script !== undefined) {
    const known = catalog.entry('script', script);
    return { kind: 'script', number: known?.number ?? event.position, state: scriptAfter(event, known?.state) };
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
