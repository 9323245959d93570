import type { KeyObject } from 'node:crypto';
import { invariant } from '@epitaph/core/invariant.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { unwrapKey, wrapKey } from '../crypto/key-wrapping.ts';
import { type Statements, VaultNotWhole } from './database.ts';
import {
  asKey,
  freshKey,
  NodeContent,
  nodeOf,
  type NodePlace,
  parentOf,
  placeName,
  slotOf,
  TOP_LEVEL,
} from './key-tree.ts';

/** Binds the root's wrapped key to its place, as the stream's name binds the key of a life. */
export const ROOT = 'vault-root';
/** A read may happen while the root is being replaced, and fail. If it fails this many times in a row, something is damaged. */
const READ_ATTEMPTS = 4;

/** The master key is not the vault's. In a running process: it was changed while the process was disconnected from the server. */
export class WrongMasterKey extends StorageUnavailable {}

interface StoredNode {
  readonly version: number;
  readonly sealed: Buffer;
}

/** A node with its content decrypted, and the key that seals it. */
export interface OpenNode {
  readonly place: NodePlace;
  key: KeyObject;
  version: number;
  readonly content: NodeContent;
}

/** The nodes of some paths, as far as they could be opened. */
interface OpenPaths {
  /** The opened nodes by the names of their places. */
  readonly nodes: ReadonlyMap<string, OpenNode>;
  /** Names of places whose content is unknown: the node there can't be opened, or is below one that can't be opened. */
  readonly damaged: ReadonlySet<string>;
}

interface Root {
  readonly generation: number;
  readonly key: KeyObject;
}

/** The tree of keys in the database. key-tree.ts explains the tree. A caller that changes it must hold the vault's lock. */
export class StoredKeyTree {
  readonly #master: KeyObject;

  constructor(master: KeyObject) {
    this.#master = master;
  }

  /** Makes a tree that only has a root. */
  async plant(sql: Statements): Promise<void> {
    const bytes = freshKey();
    await sql.query('INSERT INTO epitaph_vault.root (generation, wrapped) VALUES (1, $1)', [
      wrapKey(this.#master, 1, ROOT, bytes),
    ]);
    await writeNodes(sql, [{ place: TOP, key: asKey(bytes), version: 1, content: NodeContent.empty(TOP) }]);
  }

  /** @throws {VaultNotWhole} if the root's key does not open the top node */
  async assertWhole(sql: Statements): Promise<void> {
    const { nodes } = await this.open(sql, [[TOP]], 'read');
    if (nodes.size > 0) return;
    throw new VaultNotWhole(
      'its tables root and nodes were copied at different moments, between which keys were destroyed, or one of them is damaged',
    );
  }

  async readRoot(sql: Statements): Promise<Root> {
    const [row] = await sql.query<{ generation: number; wrapped: Buffer }>(
      'SELECT generation, wrapped FROM epitaph_vault.root',
    );
    if (row === undefined) throw new VaultNotWhole('its table root is empty');
    const key = unwrapKey(this.#master, row.generation, ROOT, row.wrapped);
    if (key === undefined) {
      throw new WrongMasterKey(
        'The master key is not the one in force for this key vault: perhaps it is one from before a change, or of another store. Give the right one; nothing can be read without it.',
      );
    }
    return { generation: row.generation, key: asKey(key) };
  }

  /**
   * Opens the existing nodes of some paths, each given from the top down. A damaged node only affects the nodes below it.
   *
   * @param purpose `read` reads the nodes without a lock; `change` locks them until the transaction ends; `make` also makes missing
   *   and damaged nodes, in memory
   */
  async open(
    sql: Statements,
    paths: readonly (readonly NodePlace[])[],
    purpose: 'read' | 'change' | 'make',
  ): Promise<OpenPaths> {
    for (let attempt = 1; ; attempt++) {
      const opened = await this.#tryToOpen(sql, paths, purpose);
      if (opened !== undefined && (opened.damaged.size === 0 || attempt === READ_ATTEMPTS)) return opened;
      // This throws if the master key was changed while this process was disconnected from the server.
      if (attempt === READ_ATTEMPTS) await this.readRoot(sql);
      invariant(attempt < READ_ATTEMPTS, 'the root of the key vault opens with the master key');
    }
  }

  async #tryToOpen(
    sql: Statements,
    paths: readonly (readonly NodePlace[])[],
    purpose: 'read' | 'change' | 'make',
  ): Promise<OpenPaths | undefined> {
    const places = new Map(paths.flat().map((place) => [placeName(place), place]));
    const values = [[...places.values()].map(({ level }) => level), [...places.values()].map(({ number }) => number)];
    const wanted =
      'SELECT n.level, n.number, n.version, n.sealed FROM unnest($1::smallint[], $2::bigint[]) AS w (level, number) JOIN epitaph_vault.nodes n USING (level, number)';
    // A read gets nodes and root by one statement, so that they are of the same moment. A change holds the lock anyway.
    const rows = await sql.query<{ level: number; number: number; version: number; sealed: Buffer }>(
      purpose === 'read'
        ? `${wanted} UNION ALL SELECT -1, generation, 0, wrapped FROM epitaph_vault.root`
        : `${wanted} ORDER BY n.level, n.number FOR UPDATE OF n`,
      values,
    );
    const stored = new Map<string, StoredNode>(rows.map((row) => [placeName(row), row]));
    let rootKey: KeyObject;
    if (purpose === 'read') {
      const root = rows.find(({ level }) => level === -1);
      if (root === undefined) return undefined;
      const key = unwrapKey(this.#master, root.number, ROOT, root.sealed);
      if (key === undefined) return undefined;
      rootKey = asKey(key);
    } else rootKey = (await this.readRoot(sql)).key;

    const opened = new Map<string, OpenNode>();
    const damaged = new Set<string>();
    for (const path of paths) {
      let parent: OpenNode | undefined;
      for (const [index, place] of path.entries()) {
        const name = placeName(place);
        let node = opened.get(name);
        if (node === undefined) {
          const slot = slotOf(place.number);
          let bytes = parent?.content.key(slot);
          const isNew = bytes === undefined && parent !== undefined;
          if (isNew && purpose !== 'make') break;
          if (isNew) parent!.content.put(slot, (bytes = freshKey()));
          const key: KeyObject = bytes === undefined ? rootKey : asKey(bytes);
          const row = stored.get(name);
          let content = row && NodeContent.open(key, place, row.sealed);
          if (row === undefined && isNew) content = NodeContent.empty(place);
          // The node does not open. Or its row is lost: a node is always stored together with its key in the parent.
          if (content === undefined) {
            for (const behind of path.slice(index)) damaged.add(placeName(behind));
            if (purpose !== 'make') break;
            content = NodeContent.empty(place);
          }
          node = { place, key, version: row?.version ?? 1, content };
          opened.set(name, node);
        }
        parent = node;
      }
    }
    return { nodes: opened, damaged };
  }

  /** Gives every node from the changed leaves up to the root a new key, and stores the root in a new file. */
  async changeKeys(
    sql: Statements,
    nodes: ReadonlyMap<string, OpenNode>,
    leaves: ReadonlySet<OpenNode>,
    generation: number,
  ): Promise<void> {
    const rewritten: OpenNode[] = [];
    let level = leaves;
    for (;;) {
      const parents = new Set<OpenNode>();
      for (const node of level) {
        const key = freshKey();
        if (node.place.level === TOP_LEVEL) {
          await this.putRoot(sql, generation, key);
        } else {
          const parent = nodes.get(placeName(parentOf(node.place)))!;
          parent.content.put(slotOf(node.place.number), key);
          parents.add(parent);
        }
        node.key = asKey(key);
        node.version += 1;
        rewritten.push(node);
      }
      if (parents.size === 0) break;
      level = parents;
    }
    await writeNodes(sql, rewritten);
  }

  /** Replaces the root. Must be called in a transaction, so that a crash leaves either the old or the new root. */
  async putRoot(sql: Statements, generation: number, key: Uint8Array): Promise<void> {
    await sql.query('TRUNCATE epitaph_vault.root');
    await sql.query('INSERT INTO epitaph_vault.root (generation, wrapped) VALUES ($1, $2)', [
      generation,
      wrapKey(this.#master, generation, ROOT, key),
    ]);
  }
}

const TOP: NodePlace = { level: TOP_LEVEL, number: 0 };

/** The places of the nodes from the top down to the key's leaf. */
export function pathOf(keyId: number): NodePlace[] {
  return Array.from({ length: TOP_LEVEL + 1 }, (_, index) => nodeOf(keyId, TOP_LEVEL - index));
}

/** The places of the nodes from the top down to the parent. */
export function ancestorsOf(place: NodePlace): NodePlace[] {
  const ancestors: NodePlace[] = [];
  for (let at = place; at.level < TOP_LEVEL;) ancestors.unshift((at = parentOf(at)));
  return ancestors;
}

export async function writeNodes(sql: Statements, nodes: readonly OpenNode[]): Promise<void> {
  await sql.query(
    `INSERT INTO epitaph_vault.nodes (level, number, version, sealed)
     SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bytea[])
     ON CONFLICT (level, number) DO UPDATE SET version = excluded.version, sealed = excluded.sealed`,
    [
      nodes.map(({ place }) => place.level),
      nodes.map(({ place }) => place.number),
      nodes.map(({ version }) => version),
      nodes.map(({ content, key, place }) => content.seal(key, place)),
    ],
  );
}
