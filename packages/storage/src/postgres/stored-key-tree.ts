import type { KeyObject } from 'node:crypto';
import { invariant } from '@epitaph/core/invariant.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { unwrapKey, wrapKey } from '../crypto/key-wrapping.ts';
import type { Statements } from './database.ts';
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

/** Binds the root's wrapped key to its place, as a life's name binds the life's. */
export const ROOT = 'vault-root';
/** A read may meet the moment in which the root is replaced; a few times in a row it would be damage. */
const READ_ATTEMPTS = 4;

/** Another master key than the vault's: since the start, where it was changed while this process was cut off from the server. */
export class WrongMasterKey extends StorageUnavailable {}

interface StoredNode {
  readonly version: number;
  readonly sealed: Buffer;
}

/** Nodes with their content in plain, from the root down to some leaves; each with the key that seals it. */
export interface OpenNode {
  readonly place: NodePlace;
  key: KeyObject;
  version: number;
  readonly content: NodeContent;
}

interface Root {
  readonly generation: number;
  readonly key: KeyObject;
}

/** The tree of keys as it lies in the database: key-tree.ts says what it is, and why. Who changes it has the vault's lock. */
export class StoredKeyTree {
  readonly #master: KeyObject;

  constructor(master: KeyObject) {
    this.#master = master;
  }

  /** Makes a tree of a root alone. */
  async plant(sql: Statements): Promise<void> {
    const bytes = freshKey();
    await sql.query('INSERT INTO epitaph_vault.root (generation, wrapped) VALUES (1, $1)', [
      wrapKey(this.#master, 1, ROOT, bytes),
    ]);
    const place: NodePlace = { level: TOP_LEVEL, number: 0 };
    await writeNodes(sql, [{ place, key: asKey(bytes), version: 1, content: NodeContent.empty(place) }]);
  }

  async readRoot(sql: Statements): Promise<Root> {
    const [row] = await sql.query<{ generation: number; wrapped: Buffer }>(
      'SELECT generation, wrapped FROM epitaph_vault.root',
    );
    invariant(row !== undefined, 'the vault has a root');
    const key = unwrapKey(this.#master, row.generation, ROOT, row.wrapped);
    if (key === undefined) {
      throw new WrongMasterKey(
        'The master key is not the one in force for this key vault: perhaps it is one from before a change, or of another store. Give the right one; nothing can be read without it.',
      );
    }
    return { generation: row.generation, key: asKey(key) };
  }

  /**
   * Opens the nodes of some paths, each given from the top down, as far as they are there.
   *
   * @param purpose `read` takes one look; `change` locks them until the transaction ends; `make` also makes what is
   * missing, in memory
   */
  async open(
    sql: Statements,
    paths: readonly (readonly NodePlace[])[],
    purpose: 'read' | 'change' | 'make',
  ): Promise<Map<string, OpenNode>> {
    for (let attempt = 1; ; attempt++) {
      const opened = await this.#tryToOpen(sql, paths, purpose);
      if (opened !== undefined) return opened;
      // Throws where the master key was changed while this process was cut off from the server.
      if (attempt === READ_ATTEMPTS) await this.readRoot(sql);
      invariant(attempt < READ_ATTEMPTS, 'each node of the key vault opens with the key that its parent holds');
    }
  }

  async #tryToOpen(
    sql: Statements,
    paths: readonly (readonly NodePlace[])[],
    purpose: 'read' | 'change' | 'make',
  ): Promise<Map<string, OpenNode> | undefined> {
    const places = new Map(paths.flat().map((place) => [placeName(place), place]));
    const values = [[...places.values()].map(({ level }) => level), [...places.values()].map(({ number }) => number)];
    const wanted =
      'SELECT n.level, n.number, n.version, n.sealed FROM unnest($1::smallint[], $2::bigint[]) AS w (level, number) JOIN epitaph_vault.nodes n USING (level, number)';
    // Nodes and root in one statement are of one moment. Who changes them has them to itself anyway.
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
    for (const path of paths) {
      let parent: OpenNode | undefined;
      for (const place of path) {
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
          // A leaf of a block that was taken, in which no key was stored yet.
          if (row === undefined && !isNew) break;
          const content = row === undefined ? NodeContent.empty(place) : NodeContent.open(key, place, row.sealed);
          if (content === undefined) return undefined;
          node = { place, key, version: row?.version ?? 1, content };
          opened.set(name, node);
        }
        parent = node;
      }
    }
    return opened;
  }

  /** Gives every node from the changed leaves up to the root a new key, and the root another place. */
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

  /** In one transaction, so that a crash leaves either the old root or the new. */
  async putRoot(sql: Statements, generation: number, key: Uint8Array): Promise<void> {
    await sql.query('TRUNCATE epitaph_vault.root');
    await sql.query('INSERT INTO epitaph_vault.root (generation, wrapped) VALUES ($1, $2)', [
      generation,
      wrapKey(this.#master, generation, ROOT, key),
    ]);
  }
}

/** From the top down to the leaf. */
export function pathOf(keyId: number): NodePlace[] {
  return Array.from({ length: TOP_LEVEL + 1 }, (_, index) => nodeOf(keyId, TOP_LEVEL - index));
}

/** From the top down to the parent. */
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
