import { parseDocumentPath, type DocumentPath, valueAt } from '@epitaph/core/document-path.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { type BodySealer, SealBroken } from '@epitaph/core/vault/body-sealer.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';
import { turn } from '@epitaph/core/turn.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { ContainerNumber, ReadModelChange } from '../read-model-store.ts';
import { type ClearEntry, clearValue, unknownEntries } from './clear-values.ts';
import type { ItemWritten } from './row.ts';

/** What is needed to open a written body. */
export interface ClearSources {
  readonly log: Pick<EventLog, 'readAt'>;
  readonly vault: Pick<KeyVault, 'findKey'>;
  readonly sealer: Pick<BodySealer, 'open'>;
}

/** How many bodies are opened before other work gets its turn. */
const STEP = 64;

/**
 * Adds the values at clear paths to changes. In the log these values are sealed. They are opened here, while the life's
 * key exists, so that only the read models ever have them in clear.
 */
export class ClearCopies {
  readonly #sources: ClearSources;
  /** For the containers met so far. A container's clear paths never change. */
  readonly #paths = new Map<ContainerNumber, readonly DocumentPath[]>();

  constructor(sources: ClearSources) {
    this.#sources = sources;
  }

  /** The changes with copied values. Only the last write of each life in the batch needs them. */
  async addTo(changes: readonly ReadModelChange[], catalog: Catalog): Promise<readonly ReadModelChange[]> {
    const last = this.#lastWrites(changes, catalog);
    if (last.size === 0) return changes;
    const copied = [...changes];
    const indexes = [...last];
    for (let from = 0; from < indexes.length; from += STEP) {
      if (from > 0) await turn();
      await Promise.all(
        indexes.slice(from, from + STEP).map(async (index) => {
          const write = changes[index] as ItemWritten;
          copied[index] = { ...write, clear: await this.#copies(write, this.#pathsOf(write.container, catalog)) };
        }),
      );
    }
    return copied;
  }

  /** The indexes of changes that write a life which is neither written again nor ended later in the batch. */
  #lastWrites(changes: readonly ReadModelChange[], catalog: Catalog): Set<number> {
    const indexes = new Set<number>();
    const settled = new Set<string>();
    for (let index = changes.length - 1; index >= 0; index -= 1) {
      const change = changes[index]!;
      const life = change.kind === 'item-ended' ? change.row : change;
      if (!('life' in life) || this.#pathsOf(life.container, catalog).length === 0) continue;
      const name = JSON.stringify([life.container, life.partitionKey, life.id, life.life]);
      if (!settled.has(name) && change.kind === 'item-written') indexes.add(index);
      settled.add(name);
    }
    return indexes;
  }

  #pathsOf(container: ContainerNumber, catalog: Catalog): readonly DocumentPath[] {
    let paths = this.#paths.get(container);
    if (paths === undefined) {
      const { clearPaths = [] } = catalog.containerByNumber(container)?.state.definition.epitaph ?? {};
      paths = clearPaths.map((path) => parseDocumentPath(path) ?? []);
      this.#paths.set(container, paths);
    }
    return paths;
  }

  async #copies(write: ItemWritten, paths: readonly DocumentPath[]): Promise<readonly ClearEntry[]> {
    const { log, vault, sealer } = this.#sources;
    const at = write.sealed ?? (await log.readAt(write.position));
    // The life was erased in the meantime, which a later event says.
    if (at?.body === undefined) return [];
    const key = await vault.findKey(write.key, at.stream);
    if (key.status === 'destroyed') return [];
    if (key.status === 'unknown') return unknownEntries(paths.length);
    let document: unknown;
    try {
      document = JSON.parse(Buffer.from(sealer.open(key.key, at.stream, write.revision, at.body)).toString('utf8'));
    } catch (error) {
      // Damage is reported to whoever reads the item, and by fsck. The projection does not stop for it.
      if (error instanceof SealBroken) return unknownEntries(paths.length);
      throw error;
    }
    return paths.flatMap((path, index) => {
      const value = clearValue(valueAt(document, path));
      return value === undefined ? [] : [{ path: index, value }];
    });
  }
}
