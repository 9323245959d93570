import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { type DestroyRequest, UnreadableSecret } from '@epitaph/core/vault/key-vault.ts';
import { describeKeyVault } from '@epitaph/core/testing/key-vault-contract.ts';
import { GcmBodySealer } from '@epitaph/storage/crypto/gcm-body-sealer.ts';
import { openDatabase, PostgresDatabase, UnusableServer } from '@epitaph/storage/postgres/database.ts';
import { PostgresKeyVault } from '@epitaph/storage/postgres/postgres-key-vault.ts';
import { takeVaultLock } from '@epitaph/storage/postgres/vault-lock.ts';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';

const framework = { describe, it, expect };
const sealer = new GcmBodySealer();
const NOW_MS = 1_763_722_800_500;

let server: TestServer;
beforeAll(async () => {
  if (whyNoPostgres === undefined) server = await TestServer.start();
});
afterAll(() => server?.dispose());

/** A vault in a database of its own. It can be opened any number of times, as by several nodes. */
class VaultWorld {
  readonly url: string;
  readonly master: KeyObject;
  readonly #opened: { vault: PostgresKeyVault; database: PostgresDatabase }[] = [];

  private constructor(url: string, master: KeyObject) {
    this.url = url;
    this.master = master;
  }

  static async make(): Promise<VaultWorld> {
    return new VaultWorld(await server.newDatabase(), createSecretKey(randomBytes(32)));
  }

  async open({ url = this.url, master = this.master, copiesKeptSeconds = undefined as number | undefined } = {}) {
    const database = await openDatabase(url);
    try {
      const vault = await PostgresKeyVault.open({ database, master, copiesKeptSeconds });
      this.#opened.push({ vault, database });
      return vault;
    } catch (error) {
      await database.close();
      throw error;
    }
  }

  async dispose(): Promise<void> {
    for (const { vault, database } of this.#opened.splice(0)) {
      await vault.close();
      await database.close();
    }
  }
}

async function inWorld(body: (world: VaultWorld) => Promise<void>): Promise<void> {
  const world = await VaultWorld.make();
  try {
    await body(world);
  } finally {
    await world.dispose();
  }
}

async function makeLife(vault: PostgresKeyVault, stream: string) {
  const { key, stored } = await vault.createKey(stream);
  await stored;
  return { keyId: key.keyId, stream, lastWriteTs: NOW_MS / 1000, lastEventAtMs: NOW_MS, nowMs: NOW_MS };
}

const stream = (name: string | number) => `item-rid.${name}.0`;

describe.skipIf(whyNoPostgres !== undefined)(`on a real PostgreSQL server${skipReason}`, () => {
  describeKeyVault(
    'the PostgreSQL key vault with AES-GCM',
    async () => {
      const world = await VaultWorld.make();
      return {
        vault: await world.open(),
        sealer,
        reopen: async () => ({ vault: await world.open(), sealer }),
        dispose: () => world.dispose(),
      };
    },
    framework,
  );

  it('every key reported as stored is kept, although an earlier statement reaches the server only afterwards', () =>
    inWorld(async (world) => {
      const vault = await world.open();
      const first = await makeLife(vault, stream('first'));
      const query = vi.spyOn(PostgresDatabase.prototype, 'query');
      onTestFinished(() => query.mockRestore());
      // The connection is given up, while a statement sent on it is still on its way.
      let arrive: (() => Promise<unknown>) | undefined;
      query.mockImplementationOnce(function (this: PostgresDatabase, ...args) {
        arrive = () => this.query(...args);
        return Promise.reject(new StorageUnavailable('Connection terminated'));
      });
      await expect(makeLife(vault, stream('given up'))).rejects.toThrow('Connection terminated');
      const second = await makeLife(vault, stream('second'));
      await arrive!();
      const other = await world.open();
      for (const { keyId, stream: life } of [first, second]) {
        expect(await other.findKey(keyId, life)).toMatchObject({ status: 'there' });
      }
    }));

  it.each([
    { what: 'nobody knows of any more', lost: 1_060, ahead: 0 },
    { what: 'another has begun, and has not come so far', lost: 1_060, ahead: 1 },
    // The next leaf of the first node is empty, and contains keys of the other node.
    { what: 'another has begun, and is further', lost: 1_023 + 32, ahead: 40 },
  ])(
    'every key reported as stored can be found, although the server goes back behind the block of numbers in use, which $what',
    ({ lost, ahead }) =>
      inWorld(async (world) => {
        const [vault, other] = [await world.open(), await world.open()];
        await makeLife(vault, stream('before'));
        // A standby that lacks the last transactions replaces the server.
        const standby = TestServer.dump(world.url, 'epitaph_vault');
        await Promise.all(Array.from({ length: lost }, (_, index) => makeLife(vault, stream(`lost ${index}`))));
        TestServer.load(world.url, 'epitaph_vault', standby);
        // The other node now gets numbers from that block.
        const kept = await Promise.all(Array.from({ length: ahead }, (_, n) => makeLife(other, stream(`ahead ${n}`))));
        await expect(makeLife(vault, stream('late'))).rejects.toThrow('gone back to an earlier state');
        for (let round = 0; round < 10; round++) {
          kept.push(await makeLife(vault, stream(`one ${round}`)), await makeLife(other, stream(`other ${round}`)));
        }
        const third = await world.open();
        const found = await Promise.all(kept.map(async ({ keyId, stream: life }) => third.findKey(keyId, life)));
        expect(found.filter(({ status }) => status !== 'there')).toEqual([]);
      }),
  );

  const DAMAGED_NODES = [
    {
      what: 'damaged',
      damage: 'UPDATE epitaph_vault.nodes SET sealed = set_byte(sealed, 40, get_byte(sealed, 40) # 1)',
    },
    { what: 'lost', damage: 'DELETE FROM epitaph_vault.nodes' },
  ];

  it.each(DAMAGED_NODES)(
    'with a $what node, its keys are unknown, and all others can be found, created and destroyed',
    ({ damage }) =>
      inWorld(async (world) => {
        const vault = await world.open();
        const lives = await Promise.all(Array.from({ length: 40 }, (_, index) => makeLife(vault, stream(index))));
        const [first, last] = [lives[0]!, lives[39]!];
        await server.run(`${damage} WHERE level = 0 AND number = ${Math.floor(first.keyId / 32)}`, world.url);
        const other = await world.open();
        const statusOf = async ({ keyId, stream: life }: typeof first) => (await other.findKey(keyId, life)).status;
        expect([await statusOf(first), await statusOf(last)]).toEqual(['unknown', 'there']);
        // The number has been given out, so its absence does not show that this is an older copy.
        expect(await other.lacks([first])).toBe(false);
        const made = await makeLife(other, stream('made'));
        const outcomes = await other.destroyKeys([first, last, made]);
        expect(outcomes.map(({ kind }) => kind)).toEqual(['unknown', 'destroyed', 'destroyed']);

        // A key that can't be read is lost. A restore is told of it and may accept the loss.
        const keys = [first, last].map((life, position) => ({
          ...life,
          isDestroyed: false,
          item: { id: 'x', partitionKey: '[]' },
          position,
        }));
        expect(await other.unknownOf(keys)).toEqual([keys[0]]);
        expect(await other.settleRestored(keys)).toEqual({ destroyed: 0, gone: new Set([first.keyId, last.keyId]) });
        expect([await statusOf(first), await statusOf(lives[38]!)]).toEqual(['destroyed', 'there']);
      }),
  );

  it.each(DAMAGED_NODES)(
    'creates no key after a node that is $what until the keys of that node are given up',
    ({ damage }) =>
      inWorld(async (world) => {
        const life = await makeLife(await world.open(), stream('one'));
        await server.run(`${damage} WHERE level = 2`, world.url);
        const vault = await world.open();
        await expect(vault.createKey(stream('two'))).rejects.toMatchObject({
          isForOperator: true,
          message: expect.stringContaining('damaged where new keys are made'),
        });
        const key = { ...life, isDestroyed: false, item: { id: 'x', partitionKey: '[]' }, position: 1 };
        expect(await vault.lacks([life])).toBe(false);
        expect(await vault.unknownOf([key])).toEqual([key]);
        expect(await vault.settleRestored([key])).toEqual({ destroyed: 0, gone: new Set([life.keyId]) });
        const made = await makeLife(vault, stream('two'));
        const other = await world.open();
        const statuses = [life, made].map(async ({ keyId, stream: of }) => (await other.findKey(keyId, of)).status);
        expect(await Promise.all(statuses)).toEqual(['destroyed', 'there']);
      }),
  );

  it('overwrites no key if a copy of its tables was put back without the sequence for their numbers', () =>
    inWorld(async (world) => {
      const before = await makeLife(await world.open(), stream('before'));
      await server.run("SELECT setval('epitaph_vault.blocks', 1, false)", world.url);
      const vault = await world.open();
      const made = await makeLife(vault, stream('made'));
      const third = await world.open();
      for (const { keyId, stream: life } of [before, made]) {
        expect(await third.findKey(keyId, life)).toMatchObject({ status: 'there' });
      }
    }));

  it.each([
    { what: 'cut short', damage: 'scope = substr(scope, 1, 20)' },
    { what: 'empty', damage: "scope = 'null'" },
    { what: 'of no kind that there is', damage: `scope = replace(scope, '"kind":"', '"kind":"x')` },
    { what: 'without what it names', damage: `scope = replace(scope, '"prefix":', '"x":')` },
    { what: 'in another container', damage: "container = 'other'" },
    { what: 'under another name', damage: "hold_id = 'hold'" },
  ])('destroys nothing under a hold whose row is $what by damage, and everything else', ({ damage }) =>
    inWorld(async (world) => {
      const vault = await world.open();
      const [held, free] = [await makeLife(vault, stream('held')), await makeLife(vault, 'item-free.a.0')];
      const scope = { kind: 'stream-prefix', prefix: 'item-rid.held.' } as const;
      await vault.placeHold({ holdId: 'rid case', containerRid: 'rid', scope, placedAtMs: NOW_MS });
      await server.run(`UPDATE epitaph_vault.holds SET ${damage}`, world.url);
      const outcomes = await vault.destroyKeys([held, free]);
      expect(outcomes.map(({ kind }) => kind)).toEqual(['refused', 'destroyed']);
      expect(await vault.holds()).toHaveLength(1);
      // Making the vault agree with the log, as a start does, repairs the hold.
      await vault.placeHold({ holdId: 'rid case', containerRid: 'rid', scope, placedAtMs: NOW_MS });
      expect(await vault.holdsOn([held.stream, free.stream])).toEqual([expect.arrayContaining(['rid case']), []]);
    }),
  );

  it('destroys and erases keys even if the row that counts erasures is lost', () =>
    inWorld(async (world) => {
      const vault = await world.open();
      const lives = [await makeLife(vault, stream('one')), await makeLife(vault, stream('two'))];
      await server.run('DELETE FROM epitaph_vault.erased', world.url);
      for (const life of lives) expect(await vault.destroyKeys([life])).toMatchObject([{ kind: 'destroyed' }]);
      expect(await server.run('SELECT generation FROM epitaph_vault.erased', world.url)).toEqual([{ generation: 3 }]);
    }));

  it('creates no other secret for a container whose secret is damaged, and reports it', () =>
    inWorld(async (world) => {
      const vault = await world.open();
      const other = await vault.containerSecret('other');
      await vault.containerSecret('rid');
      await server.run(
        "UPDATE epitaph_vault.secrets SET wrapped = set_byte(wrapped, 30, get_byte(wrapped, 30) # 1) WHERE name = 'container rid'",
        world.url,
      );
      for (const each of [vault, await world.open()]) {
        await expect(each.containerSecret('rid')).rejects.toThrow(UnreadableSecret);
        expect(Buffer.from(await each.containerSecret('other')).equals(other)).toBe(true);
      }
    }));

  it('stores every key, at whatever step of storing earlier keys it is created', () =>
    inWorld(async (world) => {
      const vault = await world.open();
      const query = vi.spyOn(PostgresDatabase.prototype, 'query');
      onTestFinished(() => query.mockRestore());
      await makeLife(vault, stream('first'));
      for (let steps = 0; steps < 20; steps++) {
        const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
        const { promise: done, resolve: isDone } = Promise.withResolvers<void>();
        query.mockImplementationOnce(async function (this: PostgresDatabase, ...args) {
          const rows = await this.query(...args);
          isDone();
          await answered;
          return rows;
        });
        const before = await vault.createKey(stream(`before ${steps}`));
        await done;
        await new Promise((resolve) => setTimeout(resolve, 5));
        // Both continue from the same answer, this one some steps later.
        const made = (async () => {
          await answered;
          for (let step = 0; step < steps; step++) await Promise.resolve();
          return vault.createKey(stream(`then ${steps}`));
        })();
        answer();
        await before.stored;
        const late = new Promise((resolve) => setTimeout(resolve, 2_000)).then(() => 'not stored');
        const { stored } = await made;
        expect([steps, await Promise.race([stored.then(() => 'stored'), late])]).toEqual([steps, 'stored']);
      }
    }));

  describe('a vault that several nodes share', () => {
    it('gives out no id twice, while all nodes create and destroy keys', () =>
      inWorld(async (world) => {
        const nodes = await Promise.all([world.open(), world.open(), world.open()]);
        const made = await Promise.all(
          nodes.map(async (vault, node) => {
            const lives = [];
            for (let round = 0; round < 12; round++) {
              const batch = await Promise.all(
                Array.from({ length: 100 }, (_, index) => makeLife(vault, stream(`${node}-${round}-${index}`))),
              );
              lives.push(...batch);
              // Another node destroys some of them, in leaves that this node goes on filling.
              const destroyed = await nodes[(node + 1) % 3]!.destroyKeys(batch.filter((_, index) => index % 3 === 0));
              expect(new Set(destroyed.map(({ kind }) => kind))).toEqual(new Set(['destroyed']));
            }
            return lives;
          }),
        );
        const lives = made.flat();
        expect(new Set(lives.map(({ keyId }) => keyId)).size).toBe(3_600);
        // A node that opens later finds every key in the right state, and so do the other nodes with their caches.
        const later = await world.open();
        for (const [index, { keyId, stream: of }] of lives.entries()) {
          const expected = ((index % 1_200) % 100) % 3 === 0 ? 'destroyed' : 'there';
          expect((await later.findKey(keyId, of)).status).toBe(expected);
        }
      }));

    it('a restore leaves a key alone whose number the log also has for a life whose key was lost', () =>
      inWorld(async (world) => {
        const vault = await world.open();
        const { keyId, stream: life } = await makeLife(vault, stream('written since'));
        const item = { id: 'i', partitionKey: '["p"]' };
        const lost = { keyId, stream: stream('lost'), item, position: 1 };
        expect(await vault.unknownOf([{ ...lost, isDestroyed: false }])).toHaveLength(1);
        for (const isDestroyed of [false, true]) {
          const settled = await vault.settleRestored([{ ...lost, isDestroyed }]);
          expect(settled).toEqual({ destroyed: 0, gone: new Set([keyId]) });
          expect(await vault.findKey(keyId, life)).toMatchObject({ status: 'there' });
          expect(await vault.findKey(keyId, lost.stream)).toEqual({ status: 'unknown' });
        }
      }));

    it('no node keeps a key in memory for long after another node has destroyed it, whether it asked for the key or got it with others', () =>
      inWorld(async (world) => {
        const [one, other] = [await world.open(), await world.open()];
        const [asked, beside, kept] = await Promise.all(['a', 'b', 'c'].map((name) => makeLife(one, stream(name))));
        const statusOf = async ({ keyId, stream: of }: DestroyRequest) => (await other.findKey(keyId, of)).status;
        expect(await statusOf(asked!)).toBe('there');
        await one.destroyKeys([asked!, beside!]);
        for (const life of [asked!, beside!]) await expect.poll(() => statusOf(life)).toBe('destroyed');
        expect(await statusOf(kept!)).toBe('there');
      }));

    it('refuses to destroy a key under a hold placed on another node, from the moment the hold is acknowledged', () =>
      inWorld(async (world) => {
        const [one, other] = await Promise.all([world.open(), world.open()]);
        const life = await makeLife(one, stream('held'));
        const scope = { kind: 'lives' as const, streams: [life.stream] };
        await other.placeHold({ holdId: 'hold', containerRid: 'rid', scope, placedAtMs: 1 });
        expect(await one.destroyKeys([life])).toEqual([{ kind: 'refused', holds: ['hold'], floorUntilMs: null }]);
        await other.releaseHold('hold');
        await other.setFloor('rid', 'retention', 3_600);
        expect((await one.destroyKeys([life]))[0]?.kind).toBe('refused');
        await other.setFloor('rid', 'retention', 0);
        expect(await one.destroyKeys([life])).toMatchObject([{ kind: 'destroyed' }]);
      }));

    it('refuses to destroy a key under a hold that is placed while it waits, whatever the database’s default isolation level', () =>
      inWorld(async (world) => {
        const name = new URL(world.url).pathname.slice(1);
        await server.run(`ALTER DATABASE ${name} SET default_transaction_isolation = 'repeatable read'`);
        const [one, other] = [await world.open(), await world.open()];
        const life = await makeLife(one, stream('held'));
        const database = await openDatabase(world.url);
        const { promise: over, resolve: goOn } = Promise.withResolvers<void>();
        const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
        const busy = database.transaction(async (sql) => {
          await takeVaultLock(sql);
          begin();
          await over;
        });
        await begun;
        const waiting = async (count: number) => {
          const asked = "SELECT count(*) AS waiting FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
          await expect.poll(() => server.run(asked, world.url)).toEqual([{ waiting: count }]);
        };
        const scope = { kind: 'lives' as const, streams: [life.stream] };
        const placed = other.placeHold({ holdId: 'hold', containerRid: 'rid', scope, placedAtMs: 1 });
        await waiting(1);
        const destroyed = one.destroyKeys([life]);
        await waiting(2);
        goOn();
        await Promise.all([busy, placed]);
        expect(await destroyed).toEqual([{ kind: 'refused', holds: ['hold'], floorUntilMs: null }]);
        await database.close();
      }));

    it('keeps connections free for the check of what is due, however many others wait for the vault meanwhile', () =>
      inWorld(async (world) => {
        const one = await world.open();
        const life = await makeLife(one, stream('due'));
        const scope = { kind: 'lives' as const, streams: [stream('other')] };
        const placed: Promise<boolean>[] = [];
        const outcomes = one.destroyKeys([life], async () => {
          for (let place = 0; place < 20; place++) {
            placed.push(one.placeHold({ holdId: `hold-${place}`, containerRid: 'rid', scope, placedAtMs: 1 }));
          }
          // By now, those of them that have a connection wait for the vault.
          await new Promise((resolve) => setTimeout(resolve, 200));
          expect(await one.holds()).toEqual([]);
          return [true];
        });
        expect(await outcomes).toMatchObject([{ kind: 'destroyed' }]);
        expect(await Promise.all(placed)).toHaveLength(20);
      }));

    it('can be opened by two nodes that start on an empty database together', () =>
      inWorld(async (world) => {
        const vaults = await Promise.all(Array.from({ length: 4 }, () => world.open()));
        const life = await makeLife(vaults[0]!, stream('first'));
        for (const vault of vaults) expect((await vault.findKey(life.keyId, life.stream)).status).toBe('there');
      }));
  });

  describe('opening a vault', () => {
    it('with another master key is refused with one line, and changes nothing', () =>
      inWorld(async (world) => {
        const life = await makeLife(await world.open(), stream('one'));
        const wrong = world.open({ master: createSecretKey(randomBytes(32)) });
        await expect(wrong).rejects.toThrow(UnusableServer);
        await expect(wrong).rejects.toThrow('master key is not the one');
        expect((await (await world.open()).findKey(life.keyId, life.stream)).status).toBe('there');
      }));

    it('of an older version upgrades it; with another master key it leaves it as it is', () =>
      inWorld(async (world) => {
        await world.open();
        await server.run('UPDATE epitaph_vault.schema_version SET version = 4', world.url);
        await server.run('ALTER TABLE epitaph_vault.log DROP COLUMN owner', world.url);
        const version = () => server.run('SELECT version FROM epitaph_vault.schema_version', world.url);
        const wrong = world.open({ master: createSecretKey(randomBytes(32)) });
        await expect(wrong).rejects.toThrow('master key is not the one');
        expect(await version()).toEqual([{ version: 4 }]);
        await world.open();
        expect(await version()).toEqual([{ version: 6 }]);
      }));

    it.each([0, 4, -1])('that claims version %i and has other tables is refused with advice', (version) =>
      inWorld(async (world) => {
        await world.open();
        await server.run(`UPDATE epitaph_vault.schema_version SET version = ${version}`, world.url);
        const opening = world.open();
        await expect(opening).rejects.toThrow(UnusableServer);
        await expect(opening).rejects.toThrow(`schema_version says ${version}, but its other tables are of another`);
      }),
    );

    it('of a newer version is refused, and so is a schema that is not a vault', () =>
      inWorld(async (world) => {
        await world.open();
        await server.run('UPDATE epitaph_vault.schema_version SET version = 99', world.url);
        await expect(world.open()).rejects.toThrow(/version 99, made by a later Epitaph/);
        const url = await server.newDatabase();
        await server.run('CREATE SCHEMA epitaph_vault', url);
        await expect(world.open({ url })).rejects.toThrow(/is not the key vault of Epitaph/);
      }));

    it.each([
      { what: 'without its root', damage: 'DELETE FROM epitaph_vault.root', says: 'its table root is empty' },
      { what: 'without a table', damage: 'DROP TABLE epitaph_vault.root', says: /"epitaph_vault.root" does not exist/ },
      { what: 'without its tree', damage: 'DELETE FROM epitaph_vault.nodes', says: 'copied at different moments' },
    ])('$what is refused with one line', ({ damage, says }) =>
      inWorld(async (world) => {
        await world.open();
        await server.run(damage, world.url);
        const opening = world.open();
        await expect(opening).rejects.toThrow(UnusableServer);
        await expect(opening).rejects.toThrow(says);
      }),
    );

    it('goes on without a table that a copy left out, and reports that to each call that needs it', () =>
      inWorld(async (world) => {
        const vault = await world.open();
        await server.run('DROP TABLE epitaph_vault.held_lives', world.url);
        const life = await makeLife(vault, stream('one'));
        expect(await vault.findKey(life.keyId, life.stream)).toMatchObject({ status: 'there' });
        await expect(vault.holds()).rejects.toMatchObject({
          isForOperator: true,
          message: expect.stringMatching(/is incomplete: relation "epitaph_vault.held_lives" does not exist/),
        });
      }));

    it('whose root was copied after its tree, with a key destroyed in between, is refused with one line', () =>
      inWorld(async (world) => {
        const vault = await world.open();
        const life = await makeLife(vault, stream('one'));
        await server.run('CREATE TABLE dumped AS SELECT * FROM epitaph_vault.nodes', world.url);
        await vault.destroyKeys([life]);
        await server.run('DELETE FROM epitaph_vault.nodes', world.url);
        await server.run('INSERT INTO epitaph_vault.nodes SELECT * FROM dumped', world.url);
        const opening = world.open();
        await expect(opening).rejects.toThrow(UnusableServer);
        await expect(opening).rejects.toThrow('copied at different moments, between which keys were destroyed');
      }));

    it('with a floor that is too long has the longest possible floor', () =>
      inWorld(async (world) => {
        const vault = await world.open();
        const row = "('rid', 'retention', 9223372036854775807)";
        await server.run(`INSERT INTO epitaph_vault.floors (container, kind, seconds) VALUES ${row}`, world.url);
        expect(await vault.floors()).toEqual(new Map([['rid', { retention: 2_147_483_647 }]]));
      }));

    it('by a database user who may not erase is refused unless the time for which copies are kept is given', () =>
      inWorld(async (world) => {
        const user = `weak_${process.pid}`;
        await server.run(`DROP ROLE IF EXISTS ${user}`);
        await server.run(`CREATE ROLE ${user} LOGIN PASSWORD 'weak'`);
        const name = new URL(world.url).pathname.slice(1);
        await server.run(`GRANT ALL ON DATABASE ${name} TO ${user}`);
        const url = server.url(name, user, 'weak');
        await expect(world.open({ url })).rejects.toThrow(
          /GRANT pg_checkpoint.*GRANT EXECUTE ON FUNCTION pg_switch_wal.*GRANT pg_monitor.*--vault-copies-kept/,
        );
        const vault = await world.open({ url, copiesKeptSeconds: 86_400 });
        const life = await makeLife(vault, stream('weak'));
        const outcome = { kind: 'destroyed', recoverableUntilMs: NOW_MS + 86_400_000 };
        expect(await vault.destroyKeys([life])).toMatchObject([outcome]);
        expect(await vault.destroyKeys([life])).toMatchObject([{ ...outcome, kind: 'already-destroyed' }]);
        await world.dispose();
        await server.run(`DROP OWNED BY ${user} CASCADE`, world.url);
        await server.run(`REVOKE ALL ON DATABASE ${name} FROM ${user}`);
        await server.run(`DROP ROLE ${user}`);
      }));

    it.each([
      { setting: "log_statement = 'all'", remedy: 'log_parameter_max_length to 0' },
      { setting: 'log_min_duration_statement = 60000', remedy: 'log_parameter_max_length to 0' },
      { setting: 'log_min_duration_sample = 60000', remedy: 'log_parameter_max_length to 0' },
      { setting: 'log_transaction_sample_rate = 0.01', remedy: 'log_parameter_max_length to 0' },
      { setting: 'log_parameter_max_length_on_error = -1', remedy: 'log_parameter_max_length_on_error to 0' },
      { setting: 'debug_print_plan = on', remedy: 'debug_print_plan to off' },
      { setting: 'pgaudit.log_parameter = on', remedy: 'pgaudit.log_parameter to off' },
    ])('on a server whose log would get the erased keys, by $setting, is refused with advice', ({ setting, remedy }) =>
      inWorld(async (world) => {
        const name = new URL(world.url).pathname.slice(1);
        await server.run(`ALTER DATABASE ${name} SET ${setting}`);
        await expect(world.open()).rejects.toThrow(remedy);
        await server.run(`ALTER DATABASE ${name} SET ${remedy.replace(' to ', ' = ')}`);
        await world.open();
      }),
    );

    // A server given by an environment variable may be in use by others.
    it.skipIf(process.env['EPITAPH_TEST_POSTGRES'] !== undefined)(
      'whose server gets such a setting while it is in use destroys nothing until the setting is changed back',
      () =>
        inWorld(async (world) => {
          const vault = await world.open();
          const life = await makeLife(vault, stream('set otherwise'));
          const set = async (change: string, wanted: string) => {
            await server.run(`ALTER SYSTEM ${change} log_statement${change === 'SET' ? ` = ${wanted}` : ''}`);
            await server.run('SELECT pg_reload_conf()');
            const shown = async () => (await server.run('SHOW log_statement'))[0]!['log_statement'];
            await expect.poll(shown).toBe(wanted);
          };
          await set('SET', 'mod');
          try {
            await expect
              .poll(() => vault.destroyKeys([life]).catch((error: Error) => error.message))
              .toMatch(/^Nothing can be erased, .*set log_parameter_max_length to 0.* continues by itself\.$/);
            expect((await vault.findKey(life.keyId, life.stream)).status).toBe('there');
          } finally {
            await set('RESET', 'none');
          }
          await expect
            .poll(async () => vault.destroyKeys([life]).catch((error: Error) => error.message))
            .toMatchObject([{ kind: 'destroyed' }]);
        }),
    );

    it('with auto_explain logging plans with their values is refused with advice', () =>
      inWorld(async (world) => {
        const set = (setting: string) =>
          server.run(`ALTER DATABASE ${new URL(world.url).pathname.slice(1)} SET ${setting}`);
        await set('auto_explain.log_verbose = on');
        await set('auto_explain.log_min_duration = 60000');
        await world.open();
        await set('session_preload_libraries = auto_explain');
        await expect(world.open()).rejects.toThrow('auto_explain.log_verbose to off');
        await set('auto_explain.log_verbose = off');
        const [row] = await server.run('SHOW server_version_num');
        if (Number(row!['server_version_num']) >= 160_000) {
          await expect(world.open()).rejects.toThrow('auto_explain.log_parameter_max_length to 0');
          await set('auto_explain.log_parameter_max_length = 0');
        }
        await world.open();
      }));

    it.each([
      [
        'nothing listens there, or not yet',
        () => `postgresql://epitaph@127.0.0.1:1/postgres`,
        StorageUnavailable,
        /127\.0\.0\.1:1.*nothing listens/,
      ],
      ['there is no such database', () => server.url('not_there'), UnusableServer, /no such database/],
      ['it is no URL', () => 'localhost', UnusableServer, /invalid; it must look like/],
      ['it is for another program', () => 'mysql://localhost/x', UnusableServer, /must begin with postgresql/],
    ])('is refused with one line if %s', async (_, url, kind, line) => {
      const refused = openDatabase(url());
      await expect(refused).rejects.toThrow(kind);
      await expect(refused).rejects.toThrow(line);
    });
  });
});
