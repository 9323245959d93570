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

/** How many events are read, or keys are changed, at a time. */
const BATCH = 512;

/** A key as it is recorded in the log. */
export interface RestoredKey {
  readonly keyId: number;
  readonly stream: string;
  readonly isDestroyed: boolean;
  /** The item that the key belongs to, by the event at `position`. */
  readonly item: ItemName;
  readonly position: number;
}

/** Keys that were restored from a copy, while no store uses them. */
export interface RestoredKeys {
  /** Those of the given keys that the copy does not know. */
  unknownOf(keys: readonly RestoredKey[]): MaybePromise<RestoredKey[]>;
  /**
   * Makes each key match the log. A key that the log has as destroyed is destroyed, whatever holds there are in the copy. A key that the
   * copy lacks is recorded as destroyed.
   *
   * @returns how many keys were destroyed by this call, and the ids of all that are destroyed after it
   */
  settleRestored(
    keys: readonly RestoredKey[],
  ): MaybePromise<{ readonly destroyed: number; readonly gone: ReadonlySet<number> }>;
}

export interface SettledKeys {
  /** How many keys the copy had although the log has them as destroyed. */
  readonly keysDestroyed: number;
  /** Keys that are destroyed although the log does not record it. */
  readonly unrecorded: KeysOfLives;
  /** Streams of lives whose purge is recorded, but whose writes a crash has left in the log. */
  readonly unfinished: readonly string[];
  /** The highest id of a key in the log. */
  readonly highest: number;
  /** The time of the latest event in the log, in milliseconds. */
  readonly lastMs: number;
}

/** Keys of lives that are not purged by the log, but that a copy of the keys lacks. The content of these lives is lost. */
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

/** Makes keys that were restored from a copy match the log. */
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

/** The container secrets in a copy of the keys. */
export interface CopiedSecrets {
  secretOf(containerRid: string): MaybePromise<Uint8Array | undefined>;
}

/** Finds the containers whose secret, from which their items' stream names are made, a copy of the keys lacks. */
export class LostNames {
  readonly #secrets: CopiedSecrets;
  readonly #naming: HashedItemNaming;
  /** By container: the position up to which an earlier restore has recorded that the secret is lost. */
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

  /** Checks some names of streams from the log. */
  async look(keys: readonly RestoredKey[]): Promise<void> {
    for (const { stream, position, item } of keys) {
      const { containerRid, prefix } = parseItemStream(stream)!;
      if (this.#lost.has(containerRid) || position <= (this.#known.get(containerRid) ?? 0)) continue;
      // The secret is checked first, because a pseudonym's stream name is made without it and would always match. But only the secret
      // tells which item a pseudonym stands for.
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
      // A damaged secret counts as lost.
      if (error instanceof UnreadableSecret) return undefined;
      throw error;
    }
  }

  get rids(): readonly string[] {
    return [...this.#lost];
  }
}

/** The keys that are recorded in the log, page by page. */
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
