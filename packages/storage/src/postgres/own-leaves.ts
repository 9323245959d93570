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

/** Versions that a leaf can begin with; they are counted up from there. */
const FIRST_VERSIONS = 2 ** 47;
/**
 * So many blocks are left out where another server may have taken the place of the one before: that need not have heard of the last
 * ones which were taken, and no number means two keys.
 */
const LEFT_OUT = 64;

/** What new keys would be put behind is damaged. */
class DamagedKeys extends StorageUnavailable {
  override readonly isForOperator = true;

  constructor() {
    super(
      'The key vault in PostgreSQL is damaged where new keys are made, so no new item can be written. Restore it: docs/backup-and-restore.md says how.',
    );
  }
}

/** A leaf that this process alone puts new keys in. */
interface OwnLeaf extends OpenNode {
  /** Slots of which it is not known that what was put in is stored. */
  readonly unstored: Set<number>;
}

interface Waiting {
  readonly leaf: OwnLeaf;
  readonly slot: number;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** A new life's key, which may be used when it is stored. */
interface GivenKey {
  readonly keyId: number;
  readonly owner: Buffer;
  readonly secret: KeyObject;
  /** Rejects where it is not known that it is stored; its id is used up then. */
  readonly stored: Promise<void>;
}

/** Gives keys out of blocks of leaves that this process alone puts keys in, so that no node waits for another. */
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

  /** @param isSameServer whether the server has been the same one since this was asked last */
  constructor(database: PostgresDatabase, tree: StoredKeyTree, isSameServer: (sql: Statements) => Promise<boolean>) {
    this.#database = database;
    this.#tree = tree;
    this.#isSameServer = isSameServer;
  }

  /**
   * @param stream whose life it is the key of
   * @throws {StorageUnavailable} once it is closed
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

  /** Resolves when nothing is to be stored any more, and the keys are wiped from memory. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#block?.catch(() => {});
    await this.#storing;
    for (const leaf of this.#leaves) leaf.content.wipe();
    this.#leaves = [];
    this.#nextSlot = 0;
  }

  /** A node of leaves, all its ids for this process alone, linked into the tree. */
  async #takeBlock(): Promise<void> {
    const leaves = await aloneInVault(this.#database, async (sql): Promise<OwnLeaf[]> => {
      if (!(await this.#isSameServer(sql))) {
        await sql.query("SELECT setval('epitaph_vault.blocks', last_value + $1) FROM epitaph_vault.blocks", [LEFT_OUT]);
      }
      const block: NodePlace = { level: 1, number: await nextBlock(sql) };
      invariant(nodeOf(HIGHEST_KEY_ID, 1).number >= block.number, 'the vault has key ids left');
      const { nodes, damaged } = await this.#tree.open(sql, [ancestorsOf(block)], 'make');
      // Made anew, it would take all that is behind it from who puts the right one back.
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
        // No other process's leaf of that number would have the same version.
        const version = randomInt(FIRST_VERSIONS);
        made.push({ place, key: asKey(key), version, content: NodeContent.empty(place), unstored: new Set() });
      }
      const blockNode: OpenNode = { place: block, key: asKey(blockKey), version: 1, content };
      // The leaves, too: what is then put in one is written over the one that is linked here, or not at all.
      await writeNodes(sql, [...nodes.values(), blockNode, ...made]);
      for (const node of [...nodes.values(), blockNode]) node.content.wipe();
      return made;
    });
    this.#leaves = leaves;
    this.#nextSlot = 0;
  }

  /** Stores what waits, together, until nothing does. */
  async #storeAll(): Promise<void> {
    // Whoever asks for keys within this turn shares the transaction.
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
          // Its id is used up. Should it have been stored all the same, nothing was ever sealed with it.
          leaf.unstored.delete(slot);
          leaf.content.destroy(slot);
          reject(error);
        }
      }
    }
    // In the step in which nothing waits: whoever comes after it begins anew.
    this.#storing = undefined;
  }

  async #store(leaves: ReadonlySet<OwnLeaf>): Promise<void> {
    let left = [...leaves].toSorted((one, other) => one.place.number - other.place.number);
    while (left.length > 0) {
      const rows = await this.#database.query<{ number: number }>(
        // Locked in the order in which whoever destroys keys locks them.
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
        // A key of this leaf was destroyed meanwhile, which gave the leaf another key; or this process has stored it and
        // was not told. What was given up may reach the server after this: it finds another version then, too.
        else await this.#reload(leaf);
      }
      left = left.filter(({ place }) => !stored.has(place.number));
    }
  }

  /** @throws StorageUnavailable for a leaf that is not this process's own any more: others are taken for the keys to come */
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
 * The number of a block that nobody has. What puts tables back, or copies them to a standby, may leave sequences behind: keys that
 * are there would be written over.
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
 * Whether what stands of a leaf is what this process has stored in it, but for keys that were destroyed. A server whose place
 * an older copy has taken knows nothing of the block, or has given its number to somebody else.
 */
function isOwn({ content, unstored }: OwnLeaf, stands: NodeContent): boolean {
  for (let slot = 0; slot < FANOUT; slot++) {
    if (stands.owner(slot).equals(content.owner(slot))) continue;
    // Whether one that was given up is stored nobody knows.
    if (stands.wasGiven(slot) || (!unstored.has(slot) && content.key(slot) !== undefined)) return false;
  }
  return true;
}
