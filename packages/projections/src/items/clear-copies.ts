import { parseDocumentPath, type DocumentPath, valueAt } from '@epitaph/core/document-path.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { type BodySealer, SealBroken } from '@epitaph/core/vault/body-sealer.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';
import { turn } from '@epitaph/core/turn.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { ContainerNumber, ReadModelChange } from '../read-model-store.ts';
import { type ClearEntry, clearValue, unknownEntries } from './clear-values.ts';
import type { ItemWritten } from './row.ts';

/** What it takes to open what was written. */
export interface ClearSources {
  readonly log: Pick<EventLog, 'readAt'>;
  readonly vault: Pick<KeyVault, 'findKey'>;
  readonly sealer: Pick<BodySealer, 'open'>;
}

/** Bodies opened before others get their turn. */
const STEP = 64;

/**
 * Puts into changes what containers with clear paths keep in clear of their items. The log has it only sealed: it is
 * opened here, while the life's key is there, so that nothing but the read models ever has it in clear.
 */
export class ClearCopies {
  readonly #sources: ClearSources;
  /** Of the containers met so far; a container's clear paths never change. */
  readonly #paths = new Map<ContainerNumber, readonly DocumentPath[]>();

  constructor(sources: ClearSources) {
    this.#sources = sources;
  }

  /** The changes, with copies where each life is written last: what is written over in the same batch needs none. */
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

  /** Where in the changes lives are written that are neither written again nor ended later in them. */
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
    // It was erased meanwhile, which an event to come says.
    if (at?.body === undefined) return [];
    const key = await vault.findKey(write.key, at.stream);
    if (key.status === 'destroyed') return [];
    if (key.status === 'unknown') return unknownEntries(paths.length);
    let document: unknown;
    try {
      document = JSON.parse(Buffer.from(sealer.open(key.key, at.stream, write.revision, at.body)).toString('utf8'));
    } catch (error) {
      // Damage is for those to meet who ask for the item, and for fsck to find: others need not wait for that.
      if (error instanceof SealBroken) return unknownEntries(paths.length);
      throw error;
    }
    return paths.flatMap((path, index) => {
      const value = clearValue(valueAt(document, path));
      return value === undefined ? [] : [{ path: index, value }];
    });
  }
}
