import { type KeyObject, randomInt } from 'node:crypto';
import { invariant } from '@epitaph/core/invariant.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { turn } from '@epitaph/core/turn.ts';
import { ownerOf } from '../crypto/key-wrapping.ts';
import type { PostgresDatabase, Statements } from './database.ts';
import {
  asKey,
  FANOUT,
  freshKey,
  HIGHEST_KEY_ID,
  NodeContent,
  nodeOf,
  type NodePlace,
  parentOf,
  placeName,
  slotOf,
} from './key-tree.ts';
import { ancestorsOf, type OpenNode, pathOf, type StoredKeyTree, writeNodes } from './stored-key-tree.ts';
import { aloneInVault } from './vault-lock.ts';

/** The first version of a leaf is a random number below this. Each write of the leaf increments it. */
const FIRST_VERSIONS = 2 ** 47;
/**
 * How many block numbers are skipped if another server may have replaced the former one. The new server may not know the last
 * blocks that were taken, and a key id must never be used for two keys.
 */
const LEFT_OUT = 64;

/** A node of the tree that new keys would be linked to is damaged. */
class DamagedKeys extends StorageUnavailable {
  override readonly isForOperator = true;

  constructor() {
    super(
      'The key vault in PostgreSQL is damaged where new keys are made, so no new item can be written. Restore it: docs/backup-and-restore.md says how.',
    );
  }
}

/** A leaf to which only this process adds keys. */
interface OwnLeaf extends OpenNode {
  /** Slots whose keys are not known to be stored. */
  readonly unstored: Set<number>;
}

interface Waiting {
  readonly leaf: OwnLeaf;
  readonly slot: number;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** The key of a new life. It may be used once it is stored. */
interface GivenKey {
  readonly keyId: number;
  readonly owner: Buffer;
  readonly secret: KeyObject;
  /** Rejects if the key may not have been stored. Its id is then used up. */
  readonly stored: Promise<void>;
}

/** Makes keys in blocks of leaves that belong to this process alone, so that no node waits for another. */
export class OwnLeaves {
  readonly #database: PostgresDatabase;
  readonly #tree: StoredKeyTree;
  readonly #isSameServer: (sql: Statements) => Promise<boolean>;
  #leaves: OwnLeaf[] = [];
  #nextSlot = 0;
  #block: Promise<void> | undefined;
  #waiting: Waiting[] = [];
  #storing: Promise<void> | undefined;
  #closed = false;

  /** @param isSameServer whether the server is still the same as at the last call of this function */
  constructor(database: PostgresDatabase, tree: StoredKeyTree, isSameServer: (sql: Statements) => Promise<boolean>) {
    this.#database = database;
    this.#tree = tree;
    this.#isSameServer = isSameServer;
  }

  /**
   * @param stream the stream of the life that the key is for
   * @throws {StorageUnavailable} after {@link close}
   */
  async give(stream: string): Promise<GivenKey> {
    while (!this.#closed && this.#nextSlot >= this.#leaves.length * FANOUT) {
      this.#block ??= this.#takeBlock().finally(() => (this.#block = undefined));
      await this.#block;
    }
    if (this.#closed) throw new StorageUnavailable('the key vault is closed');
    const index = this.#nextSlot++;
    const leaf = this.#leaves[Math.floor(index / FANOUT)]!;
    const slot = slotOf(index);
    const keyId = leaf.place.number * FANOUT + slot;
    const [bytes, owner] = [freshKey(), ownerOf(stream)];
    leaf.content.put(slot, bytes, owner);
    leaf.unstored.add(slot);
    const secret = asKey(bytes);
    const stored = new Promise<void>((resolve, reject) => this.#waiting.push({ leaf, slot, resolve, reject }));
    this.#storing ??= this.#storeAll();
    return { keyId, owner, secret, stored };
  }

  /** Resolves when nothing is left to store, and the keys are wiped from memory. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#block?.catch(() => {});
    await this.#storing;
    for (const leaf of this.#leaves) leaf.content.wipe();
    this.#leaves = [];
    this.#nextSlot = 0;
  }

  /** Takes a block: makes a node with leaves and links it into the tree. All of its key ids belong to this process. */
  async #takeBlock(): Promise<void> {
    const leaves = await aloneInVault(this.#database, async (sql): Promise<OwnLeaf[]> => {
      if (!(await this.#isSameServer(sql))) {
        await sql.query("SELECT setval('epitaph_vault.blocks', last_value + $1) FROM epitaph_vault.blocks", [LEFT_OUT]);
      }
      const block: NodePlace = { level: 1, number: await nextBlock(sql) };
      invariant(nodeOf(HIGHEST_KEY_ID, 1).number >= block.number, 'the vault has key ids left');
      const { nodes, damaged } = await this.#tree.open(sql, [ancestorsOf(block)], 'make');
      // A damaged node is not made anew: then nobody could restore it, and all keys below it would be lost.
      if (damaged.size > 0) throw new DamagedKeys();
      const parent = nodes.get(placeName(parentOf(block)))!;
      const blockKey = freshKey();
      parent.content.put(slotOf(block.number), blockKey);
      const content = NodeContent.empty(block);
      const made: OwnLeaf[] = [];
      for (let slot = 0; slot < FANOUT; slot++) {
        const place: NodePlace = { level: 0, number: block.number * FANOUT + slot };
        const key = freshKey();
        content.put(slot, key);
        // The version is random, so that a leaf of the same number made by another process has a different one.
        const version = randomInt(FIRST_VERSIONS);
        made.push({ place, key: asKey(key), version, content: NodeContent.empty(place), unstored: new Set() });
      }
      const blockNode: OpenNode = { place: block, key: asKey(blockKey), version: 1, content };
      // The empty leaves are written too: keys are later stored by updates, which succeed only on the leaf that is linked here.
      await writeNodes(sql, [...nodes.values(), blockNode, ...made]);
      for (const node of [...nodes.values(), blockNode]) node.content.wipe();
      return made;
    });
    this.#leaves = leaves;
    this.#nextSlot = 0;
  }

  /** Stores all waiting keys together, and repeats that until none waits. */
  async #storeAll(): Promise<void> {
    // All keys that are made within this turn of the event loop are stored by one statement.
    await turn();
    while (this.#waiting.length > 0) {
      const waiting = this.#waiting;
      this.#waiting = [];
      try {
        await this.#store(new Set(waiting.map(({ leaf }) => leaf)));
        for (const { leaf, slot, resolve } of waiting) {
          leaf.unstored.delete(slot);
          resolve();
        }
      } catch (error) {
        for (const { leaf, slot, reject } of waiting) {
          // The id is used up. If the key was stored after all, that does no harm: nothing was sealed with it.
          leaf.unstored.delete(slot);
          leaf.content.destroy(slot);
          reject(error);
        }
      }
    }
    // Cleared in the same step in which nothing waits, so that the next caller begins anew.
    this.#storing = undefined;
  }

  async #store(leaves: ReadonlySet<OwnLeaf>): Promise<void> {
    let left = [...leaves].toSorted((one, other) => one.place.number - other.place.number);
    while (left.length > 0) {
      const rows = await this.#database.query<{ number: number }>(
        // Rows are locked in the same order as by the destruction of keys, so that the two can't deadlock.
        `WITH known AS (
           SELECT n.number, leaf.sealed
           FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS leaf (number, version, sealed)
           JOIN epitaph_vault.nodes n ON n.level = 0 AND n.number = leaf.number AND n.version = leaf.version
           ORDER BY n.number FOR UPDATE OF n
         )
         UPDATE epitaph_vault.nodes n SET version = n.version + 1, sealed = known.sealed
         FROM known WHERE n.level = 0 AND n.number = known.number
         RETURNING n.number`,
        [
          left.map(({ place }) => place.number),
          left.map(({ version }) => version),
          left.map(({ content, key, place }) => content.seal(key, place)),
        ],
      );
      const stored = new Set(rows.map(({ number }) => number));
      for (const leaf of left) {
        if (stored.has(leaf.place.number)) leaf.version += 1;
        // The leaf has another version. Either a key in it was destroyed meanwhile, which gave the leaf a new key; or an earlier
        // statement has stored it, but its answer was lost. A statement that arrives even later finds another version too.
        else await this.#reload(leaf);
      }
      left = left.filter(({ place }) => !stored.has(place.number));
    }
  }

  /** @throws {StorageUnavailable} if the leaf no longer belongs to this process; then a new block is taken for the next keys */
  async #reload(leaf: OwnLeaf): Promise<void> {
    const { nodes } = await this.#tree.open(this.#database, [pathOf(leaf.place.number * FANOUT)], 'read');
    const now = nodes.get(placeName(leaf.place));
    if (now === undefined || !isOwn(leaf, now.content)) {
      if (this.#leaves.includes(leaf)) {
        this.#leaves = [];
        this.#nextSlot = 0;
      }
      throw new StorageUnavailable('the key vault has gone back to an earlier state');
    }
    leaf.key = now.key;
    leaf.version = now.version;
    for (let slot = 0; slot < FANOUT; slot++) {
      if (!leaf.unstored.has(slot) && now.content.key(slot) === undefined) leaf.content.destroy(slot);
    }
  }
}

/**
 * The number of a block that nobody has taken. A restore of tables, or a copy of them on a standby, may have an outdated sequence,
 * whose next numbers would overwrite existing keys. So the number is higher than that of each stored block.
 */
async function nextBlock(sql: Statements): Promise<number> {
  const [row] = await sql.query<{ block: number }>(
    `WITH taken AS (SELECT max(number) AS highest FROM epitaph_vault.nodes WHERE level = 1),
          next AS (SELECT nextval('epitaph_vault.blocks') AS block)
     SELECT CASE WHEN block > coalesce(highest, 0) THEN block ELSE setval('epitaph_vault.blocks', highest + $1) END AS block
     FROM taken, next`,
    [LEFT_OUT],
  );
  return row!.block;
}

/**
 * Whether the stored leaf is the one that this process has written, except for destroyed keys. If an older copy has replaced the
 * server, it does not know the block, or has given its number to another process.
 */
function isOwn({ content, unstored }: OwnLeaf, stands: NodeContent): boolean {
  for (let slot = 0; slot < FANOUT; slot++) {
    if (stands.owner(slot).equals(content.owner(slot))) continue;
    // A slot whose storing failed may be stored or not.
    if (stands.wasGiven(slot) || (!unstored.has(slot) && content.key(slot) !== undefined)) return false;
  }
  return true;
}
