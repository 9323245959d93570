import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import { etagOf } from '@epitaph/core/item/events.ts';
import { isPseudonym, type ItemName } from '@epitaph/core/item/pseudonym.ts';
import { LifeUnreadable } from '@epitaph/core/item/handle.ts';
import type { RecordedBody, RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { partitionKeyOf } from '@epitaph/core/partition-key/canonical-key.ts';
import { assertEndNotLost } from '@epitaph/core/item/read-life.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import { UnreadableEvent, WHEN_DAMAGED } from '@epitaph/core/upcast.ts';
import { SealBroken } from '@epitaph/core/vault/body-sealer.ts';
import type { KeyLookup, KeyUse, LifeKey } from '@epitaph/core/vault/key-vault.ts';
import { isNameless, isUnreadable } from '@epitaph/projections/items/unreadable-items.ts';
import type { ContainerNumber, ItemRow, SealedWrite } from '@epitaph/projections/read-model-store.ts';
import { parseJson, type Json } from '@epitaph/query';
import type { Measurements } from '../../metrics/measurements.ts';
import type { FoundItem } from '../api/items-api.ts';
import { isDamage, PartUnreadable } from '../damage.ts';
import { inThisHeap } from '../heap.ts';
import type { StorePorts } from '../parts.ts';
import { namelessUnreadable } from './nameless.ts';
import { systemPropertiesOf } from './system-properties.ts';

/**
 * Bytes of decoded document text in the cache. Parsed documents come on top and leave the cache together with their
 * text.
 */
const CACHE_BYTES = inThisHeap(64 * 1024 * 1024);
/** Bytes that a document counts in addition to its text: for its system properties and what is kept with it. */
export const DOCUMENT_BYTES = 400;

/** How many positions of purged writes are remembered. A write is answered at most seconds after it is recorded. */
const PURGED_POSITIONS = 40_000;

const ONCE: KeyUse = { once: true };

const weightOf = ({ json }: Pick<Decoded, 'json'>): number => DOCUMENT_BYTES + json.length;

/** What is needed to find one version of an item. */
export type VersionRow = Pick<ItemRow, 'birth' | 'partitionKey' | 'id' | 'position' | 'ts' | 'key'> &
  Partial<Pick<ItemRow, 'container'>>;

interface Decoded {
  readonly json: string;
  readonly etag: string;
  /** The document with its system properties, as queries see it; made when first asked for. */
  document: Json | undefined;
}

/**
 * The share of the cache of decoded documents that one scan may fill: at most one generation. What the scan opens
 * beyond that is not kept. Otherwise a scan of more documents than fit would drive out everything that others read, and
 * would find nothing itself when it is repeated.
 */
export class ScanRoom {
  /** Characters of JSON that the scan may still add to the cache. */
  #left: number;
  /** The documents that were fetched last and are not in the cache. */
  #fetched: ReadonlyMap<number, Decoded> | undefined;
  /** The cache's count of evictions when they were fetched. */
  #evictions = 0;

  /**
   * @param characters that the scan may add to the cache, counted as the cache counts documents
   */
  constructor(characters = CACHE_BYTES / 2) {
    this.#left = characters;
  }

  get isFull(): boolean {
    return this.#left < 0;
  }

  /** Whether a document may stay in the cache. Counts it. */
  takes(decoded: Decoded): boolean {
    this.#left -= weightOf(decoded);
    return !this.isFull;
  }

  /** Holds documents until the next ones are fetched. */
  hold(fetched: ReadonlyMap<number, Decoded>, evictions: number): void {
    this.#fetched = fetched;
    this.#evictions = evictions;
  }

  /** A document that is held, unless something was purged since it was fetched. */
  get(position: number, evictions: number): Decoded | undefined {
    return evictions === this.#evictions ? this.#fetched?.get(position) : undefined;
  }
}

/**
 * Opens sealed bodies and keeps the most recently used ones decoded. Outside of requests, plain text is only in this cache and in what
 * scans keep from it: some documents beside their rows, and the values by which a query's rows are ordered. A purge removes its documents
 * from all of them.
 */
export class Documents {
  readonly #ports: Pick<StorePorts, 'log' | 'vault' | 'sealer' | 'readModels' | 'nodes'>;
  readonly #byPosition = new GenerationCache<number, Decoded>(CACHE_BYTES, weightOf);

  /** How often documents were removed because they were purged. */
  #evictions = 0;
  /** Positions that were purged recently: the answer to such a write may still be on its way. */
  readonly #purged = new GenerationCache<number, true>(PURGED_POSITIONS);

  readonly #measured: Pick<Measurements, 'documentHits' | 'documentMisses'>;

  constructor(
    ports: Pick<StorePorts, 'log' | 'vault' | 'sealer' | 'readModels' | 'nodes'>,
    measured: Pick<Measurements, 'documentHits' | 'documentMisses'>,
  ) {
    this.#ports = ports;
    this.#measured = measured;
  }

  /** The item as a write left it, or undefined when its content was purged since the write was looked up. */
  show({ definition }: ContainerState, row: VersionRow): MaybePromise<FoundItem | undefined> {
    const shown = (decoded: Decoded): FoundItem => ({
      ...nameIn(definition, row, decoded),
      json: decoded.json,
      birth: row.birth,
      position: row.position,
      ts: row.ts,
      etag: decoded.etag,
    });
    const cached = this.#cached(row);
    return cached === undefined ? this.#decoded(row).then((decoded) => decoded && shown(decoded)) : shown(cached);
  }

  /** The result of {@link parse} if the document is in the cache, as it mostly is when a container is scanned. */
  parsed(row: ItemRow): Json | undefined {
    return this.#byPosition.get(row.position)?.document;
  }

  /**
   * The documents of many rows, if all are in the cache and have at most `mostCharacters` characters of JSON together.
   */
  allParsed(
    rows: readonly ItemRow[],
    mostCharacters: number,
  ): { readonly documents: readonly Json[]; readonly characters: number } | undefined {
    const documents: Json[] = [];
    let characters = 0;
    for (const { position } of rows) {
      const found = this.#byPosition.get(position);
      if (found?.document === undefined) return undefined;
      documents.push(found.document);
      characters += found.json.length;
      if (characters > mostCharacters) return undefined;
    }
    return { documents, characters };
  }

  /** The document with its system properties, parsed. It is shared, so callers must not change it. */
  async parse(container: ContainerState, row: ItemRow, room?: ScanRoom): Promise<Json | undefined> {
    const decoded = this.#cached(row) ?? room?.get(row.position, this.#evictions) ?? (await this.#decoded(row, room));
    if (decoded === undefined) return undefined;
    if (decoded.document === undefined) {
      const document = parseJson(decoded.json) as { [name: string]: Json };
      decoded.document = Object.assign(
        document,
        systemPropertiesOf(container, { birth: row.birth, ts: row.ts, etag: decoded.etag }),
      );
    }
    return decoded.document;
  }

  /** Adds a document that was just written, so that the read that often follows finds it. */
  put(position: number, json: string, etag: string): void {
    if (this.#purged.get(position) === true) return;
    this.#byPosition.set(position, { json, etag, document: undefined });
  }

  /** Removes everything, because it is unknown what was purged meanwhile. */
  clear(): void {
    this.#evictions += 1;
    this.#byPosition.clear();
  }

  /**
   * Fetches the sealed bodies of rows of one container together, if the read models are on a server that keeps them.
   * Looking at the rows one by one then needs no further requests.
   */
  async prefetch(rows: readonly VersionRow[], room?: ScanRoom): Promise<void> {
    const container = rows[0]?.container;
    if (this.#ports.readModels.current.store.sealedBodies === undefined || container === undefined) return;
    const byBirth = rows.filter((row) => this.#byPosition.get(row.position) === undefined).map((row) => row.birth);
    if (byBirth.length === 0) return;
    const keys = new Map(rows.map((row) => [row.position, row.key]));
    const notLeft = new Map<number, Decoded>();
    const evictions = this.#evictions;
    for (const { position, stream, revision, eventId, body } of await this.#sealed(container, byBirth)) {
      const keyId = keys.get(position);
      // The item was written again since the row was read. The log still has the version of the row, and is asked for
      // it.
      if (keyId === undefined) continue;
      const keep = this.#unlessEvicted(position, room);
      const key = await this.#ports.vault.findKey(keyId, stream);
      if (key.status !== 'there') continue;
      const json = this.#openCopy(key.key, { stream, revision, body });
      // This copy is damaged, but the log's may be whole. The error is reported when that row alone is read.
      if (json === undefined) continue;
      const decoded: Decoded = { json, etag: etagOf(eventId), document: undefined };
      if (!keep(decoded)) notLeft.set(position, decoded);
    }
    room?.hold(notLeft, evictions);
  }

  #openCopy(key: LifeKey, { stream, revision, body }: Omit<RecordedBody, 'id'>): string | undefined {
    try {
      return textOf(this.#ports.sealer.open(key, stream, revision, body));
    } catch (error) {
      if (error instanceof SealBroken) return undefined;
      throw error;
    }
  }

  #cached({ position }: VersionRow): Decoded | undefined {
    const found = this.#byPosition.get(position);
    if (found === undefined) this.#measured.documentMisses += 1;
    else this.#measured.documentHits += 1;
    return found;
  }

  #sealed(container: ContainerNumber, births: readonly number[]): Promise<SealedWrite[]> {
    const { store } = this.#ports.readModels.current;
    return store.sealedBodies?.(container, births) ?? Promise.resolve([]);
  }

  /** Removes documents that were purged. */
  evict(positions: readonly number[]): void {
    this.#evictions += 1;
    for (const position of positions) {
      this.#byPosition.delete(position);
      this.#purged.set(position, true);
    }
  }

  /** The document of a write, as JSON text. */
  async openAt(write: RecordedEvent): Promise<string> {
    const cached = this.#byPosition.get(write.position);
    if (cached !== undefined) return cached.json;
    const sealed = await this.#ports.log.readBody(write.position);
    if (sealed === undefined) throw new LifeUnreadable(write.stream, 'truncated');
    const json = await this.#open(Number(write.data['key']), sealed);
    if (json === undefined) throw new LifeUnreadable(write.stream, 'destroyed');
    return json;
  }

  /**
   * The document of a write whose life may have ended, as JSON text; undefined when its key is destroyed. It is not put
   * into the cache, because it may not be visible to readers any more.
   */
  async openEnded(event: RecordedEvent): Promise<string | undefined> {
    const sealed = await this.#ports.log.readBody(event.position);
    return this.#open(Number(event.data['key']), sealed ?? { ...event, body: new Uint8Array() }, ONCE);
  }

  /** The text of a sealed body, or undefined when its key is destroyed. */
  #open(keyId: number, sealed: RecordedBody, use?: KeyUse): MaybePromise<string | undefined> {
    const found = this.#ports.vault.findKey(keyId, sealed.stream, use);
    return found instanceof Promise ? found.then((key) => this.#openBy(key, sealed)) : this.#openBy(found, sealed);
  }

  #openBy(found: KeyLookup, { stream, revision, body }: RecordedBody): string | undefined {
    if (found.status === 'destroyed') return undefined;
    if (found.status !== 'there') throw new LifeUnreadable(stream, found.status);
    return textOf(this.#ports.sealer.open(found.key, stream, revision, body));
  }

  /** @throws {PartUnreadable} that names the item, so that the operator knows which one among many is damaged */
  async #decoded(row: VersionRow, room?: ScanRoom): Promise<Decoded | undefined> {
    try {
      return await this.#decode(row, room);
    } catch (error) {
      if (!isDamage(error)) throw error;
      const { id, partitionKey } = row;
      if (isNameless(row)) throw namelessUnreadable(row, error);
      const what = `The item ${JSON.stringify(id)} with the partition key ${partitionKey} can not be read, because its data in the store is damaged.`;
      const hints = [
        // A query can't name an item by the id behind a pseudonym.
        ...(isPseudonym(partitionKey)
          ? []
          : [`Queries that leave it out are answered: c.id != ${JSON.stringify(id)}.`]),
        // A delete can be recorded when only the content is lost, but not when the event itself can't be read.
        ...(error instanceof UnreadableEvent ? [] : ['If you delete it, all other items can be read again.']),
      ];
      throw new PartUnreadable([what, ...hints].join(' '), {
        cause: error,
      });
    }
  }

  async #decode(row: VersionRow, room?: ScanRoom): Promise<Decoded | undefined> {
    if (isUnreadable(row)) throw await this.#unreadable(row);
    if (this.#ports.readModels.current.store.sealedBodies !== undefined) {
      await this.prefetch([row]);
      const fetched = this.#byPosition.get(row.position);
      if (fetched !== undefined) return fetched;
    }
    const read = this.#ports.log.readBody(row.position);
    const sealed = read instanceof Promise ? await read : read;
    if (sealed === undefined) {
      await this.#assertLeft(row);
      return undefined;
    }
    const keep = this.#unlessEvicted(row.position, room);
    const opened = this.#open(row.key, sealed, room?.isFull === true ? ONCE : undefined);
    const json = opened instanceof Promise ? await opened : opened;
    if (json === undefined) return undefined;
    const decoded = { json, etag: etagOf(sealed.id), document: undefined };
    keep(decoded);
    return decoded;
  }

  /** The error for an item whose last event the log could not return when the read models came to it. */
  async #unreadable({ position }: VersionRow): Promise<UnreadableEvent> {
    const event = await this.#ports.log.readAt(position);
    try {
      if (event !== undefined) {
        readItemEvent(event);
        await assertEndNotLost(this.#ports.log, event.stream);
      }
    } catch (error) {
      if (error instanceof UnreadableEvent) return error;
      throw error;
    }
    return new UnreadableEvent(
      `the event at ${position} could not be read when the read models were built. Rebuild them.`,
    );
  }

  /**
   * When content is missing because it was purged since its row was read, the row is gone too.
   *
   * @throws {UnreadableEvent} when the row is still there
   */
  async #assertLeft({ container, partitionKey, id, position }: VersionRow): Promise<void> {
    if (container === undefined) return;
    const { readModels, nodes } = this.#ports;
    const isThere = async () =>
      (await readModels.current.store.findItem(container, partitionKey, id))?.position === position;
    if (!(await isThere())) return;
    // Another node may have replaced these read models, which are then not kept up to date any more.
    if (nodes !== undefined) {
      await nodes.readModels.look();
      if (!(await isThere())) return;
    }
    throw new UnreadableEvent(`the last write of a visible item, at ${position}, is missing. ${WHEN_DAMAGED}`);
  }

  /**
   * Keeps a document decoded unless anything was purged since this call. A remote vault may destroy a key while its
   * answer with the key is on its way, and purged content must not come back into the cache.
   */
  #unlessEvicted(position: number, room?: ScanRoom): (decoded: Decoded) => boolean {
    const before = this.#evictions;
    return (decoded) => {
      const isKept = this.#evictions === before && (room === undefined || room.takes(decoded));
      if (isKept) this.#byPosition.set(position, decoded);
      return isKept;
    };
  }
}

/** The item's own name. If the row has a pseudonym, only the document has the name. */
function nameIn(definition: ContainerDefinition, { id, partitionKey }: ItemName, decoded: Decoded): ItemName {
  if (!isPseudonym(partitionKey)) return { id, partitionKey };
  const document = (decoded.document ?? JSON.parse(decoded.json)) as Readonly<Record<string, unknown>>;
  return { id: document['id'] as string, partitionKey: partitionKeyOf(definition, document) };
}

function textOf(plain: Uint8Array): string {
  return Buffer.from(plain.buffer, plain.byteOffset, plain.byteLength).toString('utf8');
}
