import type { Schema } from './schema.ts';

/** The key vault. Keys are in a tree, which key-tree.ts explains. Of the tree, only the root's key is wrapped with the master key. */
export const vaultSchema: Schema = {
  name: 'epitaph_vault',
  what: 'key vault',
  steps: [
    `
    -- Has one row, which is never updated: the table is emptied and filled in one transaction, which gives it a new file.
    CREATE TABLE epitaph_vault.root (generation bigint NOT NULL, wrapped bytea NOT NULL);
    -- Statistics would keep a sample of the column, which is a copy of the key.
    ALTER TABLE epitaph_vault.root ALTER wrapped SET STATISTICS 0;
    -- The former keys of the root up to this generation are in no file any more.
    CREATE TABLE epitaph_vault.erased (generation bigint NOT NULL);
    INSERT INTO epitaph_vault.erased VALUES (1);
    CREATE TABLE epitaph_vault.nodes (
      level smallint NOT NULL,
      number bigint NOT NULL,
      -- incremented with each new key of the node, and each time keys are added to it
      version bigint NOT NULL,
      sealed bytea NOT NULL,
      PRIMARY KEY (level, number)
    ) WITH (fillfactor = 70);
    ALTER TABLE epitaph_vault.nodes ALTER sealed SET STORAGE PLAIN, ALTER sealed SET STATISTICS 0;
    -- Blocks of life keys, each for one process. A sequence gives no number twice, not even after a rollback.
    CREATE SEQUENCE epitaph_vault.blocks;
    CREATE TABLE epitaph_vault.holds (
      hold_id text COLLATE "C" PRIMARY KEY,
      container text NOT NULL,
      scope text NOT NULL,
      placed_at bigint NOT NULL
    );
    CREATE TABLE epitaph_vault.held_lives (
      stream text COLLATE "C" NOT NULL,
      hold_id text COLLATE "C" NOT NULL,
      PRIMARY KEY (stream, hold_id)
    );
    CREATE INDEX held_lives_by_hold ON epitaph_vault.held_lives (hold_id);
    CREATE TABLE epitaph_vault.floors (container text COLLATE "C" PRIMARY KEY, seconds bigint NOT NULL);
    CREATE TABLE epitaph_vault.secrets (name text COLLATE "C" PRIMARY KEY, wrapped bytea NOT NULL);
    ALTER TABLE epitaph_vault.secrets ALTER wrapped SET STATISTICS 0;
    `,
    `
    ALTER TABLE epitaph_vault.floors ADD COLUMN kind text COLLATE "C" NOT NULL DEFAULT 'retention';
    ALTER TABLE epitaph_vault.floors DROP CONSTRAINT floors_pkey, ADD PRIMARY KEY (container, kind);
    `,
    `
    -- Which event log the keys belong to.
    CREATE TABLE epitaph_vault.log (one integer PRIMARY KEY CHECK (one = 1), id text NOT NULL, name text NOT NULL);
    `,
    `
    -- Has a row while a vault that was restored from a copy does not match the log yet.
    CREATE TABLE epitaph_vault.restoring (one integer PRIMARY KEY CHECK (one = 1));
    `,
    `
    -- The id by which the log names this vault as its owner.
    ALTER TABLE epitaph_vault.log ADD COLUMN owner text NOT NULL DEFAULT gen_random_uuid();
    `,
    '-- Since this version there are events of scripts, which older versions cannot read.',
  ],
};
