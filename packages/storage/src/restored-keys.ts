import type { KeysOfLives } from '@epitaph/core/backup/purge-ledger.ts';
import { isItemWrite } from '@epitaph/core/item/events.ts';
import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import { parseItemStream } from '@epitaph/core/item/stream-name.ts';
import type { EventLog, Leniency } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { UnreadableSecret } from '@epitaph/core/vault/key-vault.ts';
import { namesLost } from '@epitaph/projections/purge/vault-copies.ts';
import { HashedItemNaming } from './crypto/item-naming.ts';

/** Events of the log looked at, and keys changed, at a time. */
const BATCH = 512;

/** What the log says of a key. */
export interface RestoredKey {
  readonly keyId: number;
  readonly stream: string;
  readonly isDestroyed: boolean;
  /** Whose key it is, by the event of that position. */
  readonly item: ItemName;
  readonly position: number;
}

/** Keys that were put back from a copy, while nobody else has them. */
export interface RestoredKeys {
  /** Those of some keys that these never gave to their lives, as far as they know. */
  unknownOf(keys: readonly RestoredKey[]): MaybePromise<RestoredKey[]>;
  /**
   * Makes of each key what the log says: one that it has as destroyed is destroyed, whatever holds stood then, and one
   * that is not here counts as destroyed.
   *
   * @returns how many were there and are destroyed now, and which are gone after it
   */
  settleRestored(
    keys: readonly RestoredKey[],
  ): MaybePromise<{ readonly destroyed: number; readonly gone: ReadonlySet<number> }>;
}

export interface SettledKeys {
  /** Keys that the copy had, and that the log has on record as destroyed. */
  readonly keysDestroyed: number;
  /** Keys that are gone, of which the log does not say so. */
  readonly unrecorded: KeysOfLives;
  /** Streams of lives that are purged on record, and whose writes a crash has left in the log. */
  readonly unfinished: readonly string[];
  /** The highest number that the log has of a key. */
  readonly highest: number;
  /** The time of the latest event in the log, in milliseconds. */
  readonly lastMs: number;
}

/** Keys of lives that the log has as not purged, and that a copy of the keys has not: their content is lost. */
export async function lostKeys(
  copy: Pick<RestoredKeys, 'unknownOf'>,
  log: EventLog,
  onProgress: (position: number) => void,
): Promise<KeysOfLives> {
  const lost = new Map<number, string>();
  for await (const { keys, position } of keysOf(log)) {
    const unknown = new Set(await copy.unknownOf(keys));
    for (const key of keys) {
      if (key.isDestroyed) lost.delete(key.keyId);
      else if (unknown.has(key)) lost.set(key.keyId, key.stream);
    }
    onProgress(position);
  }
  return [...lost];
}

/** Brings keys that were put back from a copy to what the log says of them. */
export async function settleKeys(
  restored: RestoredKeys,
  log: EventLog,
  onProgress: (position: number) => void,
): Promise<SettledKeys> {
  let keysDestroyed = 0;
  let highest = 0;
  let lastMs = 0;
  const unrecorded = new Map<number, string>();
  const written = new Set<number>();
  const unfinished: string[] = [];
  for await (const { keys, position, atMs } of keysOf(log)) {
    lastMs = Math.max(lastMs, atMs);
    const settled = await restored.settleRestored(keys);
    keysDestroyed += settled.destroyed;
    for (const { keyId, stream, isDestroyed } of keys) {
      highest = Math.max(highest, keyId);
      if (isDestroyed) {
        unrecorded.delete(keyId);
        if (written.delete(keyId)) unfinished.push(stream);
      } else {
        written.add(keyId);
        if (settled.gone.has(keyId)) unrecorded.set(keyId, stream);
      }
    }
    onProgress(position);
  }
  return { keysDestroyed, unrecorded: [...unrecorded], unfinished, highest, lastMs };
}

/** The secrets of containers that are in a copy of the keys. */
export interface CopiedSecrets {
  secretOf(containerRid: string): MaybePromise<Uint8Array | undefined>;
}

/** Finds the containers of which a copy of the keys has not the secret that their items were named with. */
export class LostNames {
  readonly #secrets: CopiedSecrets;
  readonly #naming: HashedItemNaming;
  /** Up to which position that is on record by an earlier restore. */
  readonly #known: ReadonlyMap<string, number>;
  readonly #found = new Set<string>();
  readonly #lost = new Set<string>();

  private constructor(secrets: CopiedSecrets, known: ReadonlyMap<string, number>) {
    this.#secrets = secrets;
    this.#known = known;
    this.#naming = new HashedItemNaming({ containerSecret: async (rid) => (await secrets.secretOf(rid))! });
  }

  static async of(log: EventLog, secrets: CopiedSecrets): Promise<LostNames> {
    return new LostNames(secrets, await namesLost(log));
  }

  /** Tries some names that the log has. */
  async look(keys: readonly RestoredKey[]): Promise<void> {
    for (const { stream, position, item } of keys) {
      const { containerRid, prefix } = parseItemStream(stream)!;
      if (this.#lost.has(containerRid) || position <= (this.#known.get(containerRid) ?? 0)) continue;
      // Asked first: a pseudonym tells by itself what its stream is called; what it is of, only the secret does.
      const isThere = await this.#isThere(containerRid);
      if (!isThere || (await this.#naming.itemStreamPrefix(containerRid, item.partitionKey, item.id)) !== prefix) {
        this.#lost.add(containerRid);
      }
    }
  }

  async #isThere(containerRid: string): Promise<boolean> {
    if (this.#found.has(containerRid)) return true;
    const isThere = (await this.#secretOf(containerRid)) !== undefined;
    if (isThere) this.#found.add(containerRid);
    return isThere;
  }

  async #secretOf(containerRid: string): Promise<Uint8Array | undefined> {
    try {
      return await this.#secrets.secretOf(containerRid);
    } catch (error) {
      // One that is damaged is as good as lost.
      if (error instanceof UnreadableSecret) return undefined;
      throw error;
    }
  }

  get rids(): readonly string[] {
    return [...this.#lost];
  }
}

/** What the log says of keys, page by page. */
export async function* keysOf(
  log: EventLog,
  leniency: Leniency = {},
  isAsked: (event: RecordedEvent) => boolean = () => true,
): AsyncGenerator<{ keys: RestoredKey[]; position: number; atMs: number }> {
  let position = 0;
  for (;;) {
    const events = await log.readAll(position, BATCH, { withBodies: false, ...leniency });
    if (events.length === 0) return;
    position = events.at(-1)!.position;
    const keys = events.flatMap((event): RestoredKey[] => {
      const { type, stream, position } = event;
      if (!isAsked(event)) return [];
      const { key: keyId, id, partitionKey } = event.data as Partial<ItemName> & { readonly key?: unknown };
      const isDestroyed = type === 'ItemPurged';
      if (typeof keyId !== 'number' || !(isDestroyed || isItemWrite(event))) return [];
      return [{ keyId, stream, isDestroyed, item: { id: id!, partitionKey: partitionKey! }, position }];
    });
    yield { keys, position, atMs: events.reduce((last, { occurredAtMs }) => Math.max(last, occurredAtMs), 0) };
  }
}
