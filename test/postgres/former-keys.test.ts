import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { DestroyRequest } from '@epitaph/core/vault/key-vault.ts';
import type { SecretLifeKey } from '@epitaph/storage/crypto/gcm-body-sealer.ts';
import { openDatabase, type PostgresDatabase } from '@epitaph/storage/postgres/database.ts';
import { FormerRootsKept } from '@epitaph/storage/postgres/former-roots.ts';
import { unwrapKey } from '@epitaph/storage/crypto/key-wrapping.ts';
import { NodeContent, nodeOf } from '@epitaph/storage/postgres/key-tree.ts';
import { PostgresKeyVault } from '@epitaph/storage/postgres/postgres-key-vault.ts';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';

// The test searches the server's files, so it needs a server of its own.
const why =
  process.env['EPITAPH_TEST_POSTGRES'] === undefined
    ? whyNoPostgres
    : 'the files of the server that EPITAPH_TEST_POSTGRES names are out of reach';
const reason = why === undefined ? skipReason : ` [skipped: ${why}]`;

const NOW_MS = 1_763_722_800_500;
const LIVES = 300;

interface Life extends DestroyRequest {
  readonly secret: Buffer;
}

/** A vault on a server of its own, whose files can be searched. */
class FileWorld {
  readonly server: TestServer;
  readonly database: PostgresDatabase;
  readonly vault: PostgresKeyVault;
  readonly master: KeyObject;
  readonly url: string;

  private constructor(
    server: TestServer,
    url: string,
    master: KeyObject,
    database: PostgresDatabase,
    vault: PostgresKeyVault,
  ) {
    this.server = server;
    this.url = url;
    this.master = master;
    this.database = database;
    this.vault = vault;
  }

  static async make(settings?: readonly string[], copiesKeptSeconds?: number): Promise<FileWorld> {
    const server = await TestServer.start(settings);
    try {
      const url = await server.newDatabase();
      const master = createSecretKey(randomBytes(32));
      const database = await openDatabase(url);
      const vault = await PostgresKeyVault.open({ database, master, copiesKeptSeconds });
      return new FileWorld(server, url, master, database, vault);
    } catch (error) {
      await server.dispose();
      throw error;
    }
  }

  async makeLives(count = LIVES): Promise<Life[]> {
    return Promise.all(
      Array.from({ length: count }, async (): Promise<Life> => {
        const stream = `item-rid.${crypto.randomUUID()}.0`;
        const { key, stored } = await this.vault.createKey(stream);
        await stored;
        const secret = (key as SecretLifeKey).secret.export();
        return { keyId: key.keyId, stream, lastWriteTs: 1, lastEventAtMs: 1_000, nowMs: NOW_MS, secret };
      }),
    );
  }

  async root(): Promise<Buffer> {
    const [row] = await this.database.query<{ wrapped: Buffer }>('SELECT wrapped FROM epitaph_vault.root');
    return row!.wrapped;
  }

  async nodes(): Promise<{ level: number; number: number; sealed: Buffer }[]> {
    return this.database.query('SELECT level, number, sealed FROM epitaph_vault.nodes ORDER BY level, number');
  }

  /** The files that contain these bytes, or one half of them. */
  filesWith(bytes: Buffer): string[] {
    const half = Math.floor(bytes.length / 2);
    const parts = [bytes, bytes.subarray(0, half), bytes.subarray(-half)];
    // Each part as it is, and as text in the form of the client protocol or a log.
    const forms = parts.flatMap((part) => [part, Buffer.from(part.toString('hex'))]);
    return this.server
      .files()
      .filter((file) => forms.some((form) => file.bytes.includes(form)))
      .map(({ file }) => file);
  }

  async dispose(): Promise<void> {
    await this.vault.close();
    await this.database.close();
    await this.server.dispose();
  }
}

const isWal = (file: string) => /^[0-9A-F]{24}$/.test(file);

describe.skipIf(why !== undefined)(`a destroyed key on a PostgreSQL server${reason}`, () => {
  let world: FileWorld;
  let lives: Life[];
  let gone: Life[];
  let rootBefore: Buffer;
  let nodesBefore: Awaited<ReturnType<FileWorld['nodes']>>;

  beforeAll(async () => {
    world = await FileWorld.make();
    lives = await world.makeLives();
    rootBefore = await world.root();
    nodesBefore = await world.nodes();
    // What a server does by itself after a while: sampling columns for statistics, writing pages, moving rows.
    await world.database.query('ANALYZE');
    await world.database.query('CHECKPOINT');
    gone = lives.filter((_, index) => index % 3 === 0);
  });
  afterAll(() => world?.dispose());

  it('would be found by the search: before, the key of the root is in a table and in the WAL', () => {
    const files = world.filesWith(rootBefore);
    expect(files.some(isWal)).toBe(true);
    expect(files.some((file) => /^\d+$/.test(file))).toBe(true);
    expect(files.every((file) => isWal(file) || /^\d+$/.test(file))).toBe(true);
    expect(world.filesWith(nodesBefore[0]!.sealed).length).toBeGreaterThan(0);
  });

  it('is in no file in any form from which it could be recovered', async () => {
    const outcomes = await world.vault.destroyKeys(gone);
    expect(outcomes).toMatchObject(gone.map(() => ({ kind: 'destroyed' })));
    // The only thing that the master key opens is gone: from the table, the WAL, the server's log, everything.
    expect(world.filesWith(rootBefore)).toEqual([]);
    expect(world.filesWith(await world.root()).length).toBeGreaterThan(0);
  });

  it('is only in old versions of its leaf, which no remaining key opens', async () => {
    const touched = new Set(gone.map(({ keyId }) => nodeOf(keyId, 0).number));
    const leaves = nodesBefore.filter(({ level, number }) => level === 0 && touched.has(number));
    const now = await world.nodes();
    const still = leaves.filter(({ sealed }) => world.filesWith(sealed).length > 0);
    // PostgreSQL leaves such bytes behind, as expected; the key tree makes them useless.
    expect(still.length).toBeGreaterThan(0);
    const contents = keysReachable(await world.root(), world.master, now);
    expect(contents.opened).toBe(now.length);
    for (const { level, number, sealed } of still) {
      const changed = now.find((node) => node.level === level && node.number === number)!;
      expect(changed.sealed.equals(sealed)).toBe(false);
      for (const key of contents.keys) expect(NodeContent.open(key, { level, number }, sealed)).toBe(undefined);
    }
    const old = keysReachable(rootBefore, world.master, nodesBefore);
    // With the former root they would open, so the test examines the right bytes.
    for (const { level, number, sealed } of still) {
      expect(old.keys.some((key) => NodeContent.open(key, { level, number }, sealed) !== undefined)).toBe(true);
    }
  });

  it('is never in a file unwrapped, and neither are the remaining keys', () => {
    const files = world.server.files();
    for (const { secret } of lives) expect(files.some(({ bytes }) => bytes.includes(secret))).toBe(false);
  });

  it('leaves all other keys readable, even if the server crashes right after', async () => {
    const [next, ...others] = lives.filter((life) => !gone.includes(life));
    const formerRoot = await world.root();
    expect(await world.vault.destroyKeys([next!])).toMatchObject([{ kind: 'destroyed' }]);
    world.server.stop('immediate');
    world.server.startAgain();
    expect(world.filesWith(formerRoot)).toEqual([]);
    expect(world.filesWith(rootBefore)).toEqual([]);
    const database = await openDatabase(world.url);
    const vault = await PostgresKeyVault.open({ database, master: world.master });
    for (const life of others) {
      const found = await vault.findKey(life.keyId, life.stream);
      expect(found.status === 'there' && (found.key as SecretLifeKey).secret.export().equals(life.secret)).toBe(true);
    }
    for (const life of [next!, ...gone])
      await expect(vault.findKey(life.keyId, life.stream)).resolves.toEqual({ status: 'destroyed' });
    await vault.close();
    await database.close();
  });
});

describe.skipIf(why !== undefined)(`destroying a key on a PostgreSQL server${reason}`, () => {
  it('fails while a replication slot keeps old WAL, and is completed once the slot is gone', async () => {
    const world = await FileWorld.make();
    try {
      const [life] = await world.makeLives(1);
      const former = await world.root();
      await world.database.query("SELECT pg_create_physical_replication_slot('behind', true)");
      await expect(world.vault.destroyKeys([life!])).rejects.toThrow(FormerRootsKept);
      expect(world.filesWith(former).some(isWal)).toBe(true);
      // The key is gone from the tables. The destruction is not undone, but it was not acknowledged either.
      expect((await world.vault.findKey(life!.keyId, life!.stream)).status).toBe('destroyed');
      await expect(world.vault.destroyKeys([life!])).rejects.toThrow(FormerRootsKept);
      await world.database.query("SELECT pg_drop_replication_slot('behind')");
      expect(await world.vault.destroyKeys([life!])).toMatchObject([{ kind: 'already-destroyed' }]);
      expect(world.filesWith(former)).toEqual([]);
    } finally {
      await world.dispose();
    }
  });

  it('on a server configured to keep old WAL tells until when the key could be recovered', async () => {
    // Each of these settings alone would keep what is destroyed.
    const keeping = ['wal_recycle=on', 'archive_mode=on', 'wal_keep_size=16MB', 'log_statement=mod'];
    await expect(FileWorld.make(keeping)).rejects.toThrow(
      /wal_recycle is on.*WAL is archived.*wal_keep_size.*log_parameter_max_length.*--vault-copies-kept/,
    );
    const world = await FileWorld.make(['wal_recycle=on'], 3_600);
    try {
      const [life] = await world.makeLives(1);
      const former = await world.root();
      expect(await world.vault.destroyKeys([life!])).toMatchObject([
        { kind: 'destroyed', recoverableUntilMs: NOW_MS + 3_600_000 },
      ]);
      expect(world.filesWith(former).length).toBeGreaterThan(0);
    } finally {
      await world.dispose();
    }
  });
});

/** The nodes that open from a root down, and the keys in them. */
function keysReachable(wrapped: Buffer, master: KeyObject, nodes: { level: number; number: number; sealed: Buffer }[]) {
  const keys: KeyObject[] = [];
  let opened = 0;
  const descend = (key: KeyObject, level: number, number: number) => {
    keys.push(key);
    const node = nodes.find((one) => one.level === level && one.number === number);
    if (node === undefined) return;
    const content = NodeContent.open(key, node, node.sealed);
    if (content === undefined) return;
    opened += 1;
    for (let slot = 0; slot < 32; slot++) {
      const child = content.key(slot);
      if (child === undefined) continue;
      if (level === 0) keys.push(createSecretKey(child));
      else descend(createSecretKey(child), level - 1, number * 32 + slot);
    }
  };
  descend(rootKeyOf(wrapped, master), 6, 0);
  return { keys, opened };
}

function rootKeyOf(wrapped: Buffer, master: KeyObject): KeyObject {
  for (let generation = 1; generation < 1_000; generation++) {
    const key = unwrapKey(master, generation, 'vault-root', wrapped);
    if (key !== undefined) return createSecretKey(key);
  }
  throw new Error('no generation of the root opens');
}
