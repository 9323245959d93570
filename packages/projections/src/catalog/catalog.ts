import { type Gone, goneOf } from '@epitaph/core/container/gone.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import type { ScriptKind } from '@epitaph/core/script/events.ts';
import type { ScriptState } from '@epitaph/core/script/state.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import {
  isGone,
  type CatalogChange,
  type CatalogEntry,
  type ContainerNumber,
  type ReadModelStore,
} from '../read-model-store.ts';

export interface CatalogContainer {
  readonly number: ContainerNumber;
  readonly state: ContainerState;
}

/** The entries of one kind. */
export type EntryOf<Kind extends CatalogEntry['kind']> = Extract<CatalogEntry, { kind: Kind }>;

/**
 * All databases and containers, deleted ones too, and everything in them except items. They are held in memory, because
 * there are few and every request needs one.
 */
export class Catalog {
  readonly #databases = new Map<string, { readonly number: number; readonly state: DatabaseState }>();
  readonly #containers = new Map<string, CatalogContainer>();
  readonly #byNumber = new Map<ContainerNumber, CatalogContainer>();
  readonly #liveDatabases = new Map<string, DatabaseState>();
  /** By database, then by name. */
  readonly #liveContainers = new Map<string, Map<string, CatalogContainer>>();
  readonly #entries = new Map<string, CatalogEntry>();
  readonly #entriesByName = new Map<string, CatalogEntry>();
  /** The scripts among the entries, by container, for queries. */
  readonly #scripts = new Map<string, Map<string, EntryOf<'script'>>>();
  /** Revision of the last event of each stream since the catalog was loaded. */
  readonly #revisions = new Map<string, number>();

  static async load(store: ReadModelStore): Promise<Catalog> {
    const catalog = new Catalog();
    for (const { number, state } of await store.databases()) catalog.put({ kind: 'database', number, state });
    for (const { number, state } of await store.containers()) catalog.put({ kind: 'container', number, state });
    for (const entry of await store.catalogEntries()) catalog.put(entry);
    return catalog;
  }

  /** Whether an event is the next one of its stream, as far as that can be told here. Must be called once for each event. */
  isNext({ stream, revision }: Pick<RecordedEvent, 'stream' | 'revision'>): boolean {
    const before = this.#revisions.get(stream) ?? revision - 1;
    this.#revisions.set(stream, revision);
    return revision === before + 1;
  }

  put(change: CatalogChange): void {
    if (change.kind !== 'database' && change.kind !== 'container') return this.#putEntry(change);
    if (change.kind === 'database') {
      this.#databases.set(change.state.rid, { number: change.number, state: change.state });
      this.#keepLive(this.#liveDatabases, change.state.name, change.state, change.state);
      if (change.state.status !== 'deleted') return;
      for (const { state } of this.#liveIn(change.state.rid).values()) this.#forgetTexts(state.rid);
      return;
    }
    const entry = { number: change.number, state: change.state };
    this.#containers.set(change.state.rid, entry);
    this.#byNumber.set(change.number, entry);
    this.#keepLive(this.#liveIn(change.state.databaseRid), change.state.name, change.state, entry);
    if (change.state.status === 'deleted') this.#forgetTexts(change.state.rid);
  }

  #liveIn(databaseRid: string): Map<string, CatalogContainer> {
    let live = this.#liveContainers.get(databaseRid);
    if (live === undefined) this.#liveContainers.set(databaseRid, (live = new Map()));
    return live;
  }

  #keepLive<Entry extends { rid: string } | CatalogContainer>(
    live: Map<string, Entry>,
    name: string,
    state: { readonly status: string; readonly rid: string },
    entry: Entry,
  ): void {
    const known = live.get(name);
    const knownRid = known === undefined ? undefined : 'rid' in known ? known.rid : known.state.rid;
    if (state.status === 'live') live.set(name, entry);
    // A deletion that arrives late must not hide a new resource with the same name.
    else if (knownRid === state.rid) live.delete(name);
  }

  #putEntry(entry: CatalogEntry): void {
    const key = `${entry.kind}/${entry.state.rid}`;
    const known = this.#entries.get(key);
    if (known !== undefined && this.#entriesByName.get(nameKey(known)) === known) {
      this.#entriesByName.delete(nameKey(known));
    }
    if (entry.kind === 'script') {
      const container = this.#containers.get(entry.state.containerRid);
      if (container !== undefined && this.gone(container.state) !== undefined && entry.state.body !== '') {
        this.#putEntry({ ...entry, state: { ...entry.state, body: '' } });
        return;
      }
      this.#putScript(entry);
    }
    if (isGone(entry)) {
      this.#entries.delete(key);
      return;
    }
    this.#entries.set(key, entry);
    this.#entriesByName.set(nameKey(entry), entry);
  }

  /**
   * Scripts of a deleted container can't run, and their texts may be large. Should a script exist after a later event,
   * that event brings its text.
   */
  #forgetTexts(containerRid: string): void {
    for (const entry of this.#scripts.get(containerRid)?.values() ?? []) this.#putEntry(entry);
  }

  #putScript(entry: EntryOf<'script'>): void {
    const { rid, containerRid } = entry.state;
    const known = this.#scripts.get(containerRid) ?? new Map<string, EntryOf<'script'>>();
    this.#scripts.set(containerRid, known);
    if (isGone(entry)) known.delete(rid);
    else known.set(rid, entry);
  }

  /** An entry by its rid. Undefined if it was deleted. */
  entry<Kind extends CatalogEntry['kind']>(kind: Kind, rid: string): EntryOf<Kind> | undefined {
    return this.#entries.get(`${kind}/${rid}`) as EntryOf<Kind> | undefined;
  }

  entryByName<Kind extends CatalogEntry['kind']>(
    kind: Kind,
    databaseRid: string,
    name: string,
  ): EntryOf<Kind> | undefined {
    return this.#entriesByName.get(`${kind}/${databaseRid}/${name}`) as EntryOf<Kind> | undefined;
  }

  /** A container's script. Undefined if it was deleted. */
  script(containerRid: string, kind: ScriptKind, name: string): ScriptState | undefined {
    return (this.#entriesByName.get(`script/${containerRid}/${kind}/${name}`) as EntryOf<'script'> | undefined)?.state;
  }

  /** A container's scripts, of one kind or all, in order of creation. */
  scriptsOf(containerRid: string, kind?: ScriptKind): ScriptState[] {
    return [...(this.#scripts.get(containerRid)?.values() ?? [])]
      .filter(({ state }) => (kind ?? state.kind) === state.kind)
      .toSorted((left, right) => left.number - right.number)
      .map(({ state }) => state);
  }

  /** The entries of a kind in a database, in order of creation. */
  entriesOf<Kind extends CatalogEntry['kind']>(kind: Kind, databaseRid: string): EntryOf<Kind>[] {
    return [...this.#entries.values()]
      .filter((entry): entry is EntryOf<Kind> => entry.kind === kind && entry.state.databaseRid === databaseRid)
      .toSorted((left, right) => left.number - right.number);
  }

  databaseByName(name: string): DatabaseState | undefined {
    return this.#liveDatabases.get(name);
  }

  databaseByRid(rid: string): DatabaseState | undefined {
    return this.#databases.get(rid)?.state;
  }

  databaseNumber(rid: string): number | undefined {
    return this.#databases.get(rid)?.number;
  }

  /** Databases that are not deleted, in order of creation. */
  liveDatabases(): DatabaseState[] {
    return [...this.#databases.values()]
      .filter(({ state }) => state.status === 'live')
      .toSorted((left, right) => left.number - right.number)
      .map(({ state }) => state);
  }

  containerByName(databaseRid: string, name: string): CatalogContainer | undefined {
    return this.#liveContainers.get(databaseRid)?.get(name);
  }

  containerByRid(rid: string): CatalogContainer | undefined {
    return this.#containers.get(rid);
  }

  containerByNumber(number: ContainerNumber): CatalogContainer | undefined {
    return this.#byNumber.get(number);
  }

  /** Containers of a database that are not deleted, in order of creation. */
  liveContainers(databaseRid: string): ContainerState[] {
    return [...(this.#liveContainers.get(databaseRid)?.values() ?? [])]
      .toSorted((left, right) => left.number - right.number)
      .map(({ state }) => state);
  }

  /** How many databases of that name were deleted. */
  databasesGone(name: string): number {
    const isMeant = ({ state }: { readonly state: DatabaseState }) => state.status === 'deleted' && state.name === name;
    return this.#databases.values().reduce((count, database) => count + (isMeant(database) ? 1 : 0), 0);
  }

  /** How many containers of that name were deleted in an existing database. */
  containersGone(databaseRid: string, name: string): number {
    const isMeant = ({ state }: CatalogContainer) =>
      state.status === 'deleted' && state.name === name && state.databaseRid === databaseRid;
    return this.#containers.values().reduce((count, container) => count + (isMeant(container) ? 1 : 0), 0);
  }

  /** All containers that ever existed. */
  allContainers(): CatalogContainer[] {
    return [...this.#containers.values()];
  }

  /** Deleted containers with this name in a database with that name, newest first; each as {@link containerWithEnd}. */
  deletedContainers(database: string, name: string): ContainerState[] {
    return this.allContainers()
      .filter(({ state }) => state.name === name && this.databaseByRid(state.databaseRid)?.name === database)
      .toSorted((left, right) => right.number - left.number)
      .map(({ state }) => this.#withEnd(state))
      .filter(({ deletedAtMs }) => deletedAtMs !== null);
  }

  /** A container's state. If it was deleted with its database, with that deletion, which is only in the database's stream. */
  containerWithEnd(rid: string): ContainerState | undefined {
    const known = this.#containers.get(rid);
    return known && this.#withEnd(known.state);
  }

  #withEnd(container: ContainerState): ContainerState {
    const gone = this.gone(container);
    if (gone === undefined || gone.atMs === container.deletedAtMs) return container;
    return { ...container, deletedAtMs: gone.atMs, ...(gone.by === null ? {} : { deletedBy: gone.by }) };
  }

  /** When a container was deleted, itself or with its database, in milliseconds. Null if it exists. */
  goneAtMs(container: ContainerState): number | null {
    return this.gone(container)?.atMs ?? null;
  }

  /** The same, and who deleted it. */
  gone(container: ContainerState): Gone | undefined {
    return goneOf(container, this.#databases.get(container.databaseRid)?.state);
  }
}

const nameKey = ({ kind, state }: CatalogEntry): string =>
  kind === 'script'
    ? `script/${state.containerRid}/${state.kind}/${state.name}`
    : `${kind}/${state.databaseRid}/${state.name}`;
