import type { DatabaseSync } from 'node:sqlite';
import { openForWriting } from './database.ts';
import { VAULT_MIGRATIONS, VAULT_SCHEMA, VAULT_SCHEMA_VERSION } from './schema.ts';

/** Opens the key vault's file for writing, with `secure_delete`: former bytes of changed keys must not stay in the file. */
export function openVault(file: string, synchronous: 'FULL' | 'OFF' = 'FULL'): DatabaseSync {
  return openForWriting({
    file,
    what: 'key vault',
    schema: VAULT_SCHEMA,
    schemaVersion: VAULT_SCHEMA_VERSION,
    migrations: VAULT_MIGRATIONS,
    synchronous,
    secureDelete: true,
  });
}
