import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  readClientEncryptionKeyEvent,
  clientEncryptionKeyEventVersions,
} from '@epitaph/core/client-encryption-key/upcast.ts';
import { containerEventVersions, readContainerEvent } from '@epitaph/core/container/upcast.ts';
import { databaseEventVersions, readDatabaseEvent } from '@epitaph/core/database/upcast.ts';
import { itemEventVersions, readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { readScriptEvent, scriptEventVersions } from '@epitaph/core/script/upcast.ts';
import { readUniqueKeyEvent, uniqueKeyEventVersions } from '@epitaph/core/unique-key/upcast.ts';
import { readUserEvent, userEventVersions } from '@epitaph/core/user/upcast.ts';
import { purgeEventVersions, readPurgeRunEvent } from '@epitaph/projections/purge/events.ts';
import { vaultSchema } from '@epitaph/storage/postgres/vault-schema.ts';
import { VAULT_SCHEMA_VERSION } from '@epitaph/storage/sqlite/schema.ts';

type Recorded = Pick<RecordedEvent, 'type' | 'version' | 'stream' | 'data'>;

/** The kinds of streams, by the prefixes of their names. */
const kinds: Readonly<
  Record<
    string,
    { readonly versions: Readonly<Record<string, number>>; readonly read: (event: RecordedEvent) => unknown }
  >
> = {
  'client-encryption-key': { versions: clientEncryptionKeyEventVersions, read: readClientEncryptionKeyEvent },
  container: { versions: containerEventVersions, read: readContainerEvent },
  database: { versions: databaseEventVersions, read: readDatabaseEvent },
  item: { versions: itemEventVersions, read: readItemEvent },
  'purge-run': { versions: purgeEventVersions, read: readPurgeRunEvent },
  script: { versions: scriptEventVersions, read: readScriptEvent },
  unique: { versions: uniqueKeyEventVersions, read: readUniqueKeyEvent },
  user: { versions: userEventVersions, read: readUserEvent },
};
const kindOf = (stream: string): string => Object.keys(kinds).find((kind) => stream.startsWith(`${kind}-`))!;

/** One event of each form that any version of this program has recorded. Lines are only ever added. */
const recorded = readFileSync(path.join(import.meta.dirname, '../data/recorded-events.ndjson'), 'utf8')
  .trimEnd()
  .split('\n')
  .map((line) => JSON.parse(line) as Recorded);

describe('an event recorded by any version', () => {
  it.each(recorded.map((event, index) => [event.type, index] as const))('can be read for ever: %s (%i)', (_, index) => {
    const { stream, ...event } = recorded[index]!;
    const id = crypto.randomUUID();
    const about = { id, correlationId: id, causationId: id, occurredAtMs: 0, actor: 'test', revision: 0, position: 1 };
    expect(kinds[kindOf(stream)]!.read({ ...event, stream, ...about })).toMatchObject({
      type: event.type,
      data: event.data,
    });
  });

  it('exists here for each type that is written today', () => {
    const known = new Set(recorded.map(({ type, stream }) => `${kindOf(stream)} ${type}`));
    const written = Object.entries(kinds).flatMap(([kind, { versions }]) =>
      Object.keys(versions).map((type) => `${kind} ${type}`),
    );
    // Only the types of these events are used.
    const bare = ['purge-run PurgePaused', 'purge-run PurgeResumed'];
    expect(written.filter((type) => !known.has(type))).toEqual(bare);
  });
});

/** The events as they are written today. The comments say what else must change with them. */
const WRITTEN = {
  // If you add a type of events, or raise a version, raise these as well: an empty migration will do. Then versions that can't read the
  // events refuse the store, because they open the vault first.
  vaultSchemas: { sqlite: 5, postgres: 6 },
  events: {
    'client-encryption-key': 'ClientEncryptionKeyCreated 1, ClientEncryptionKeyRewrapped 1',
    container:
      'ContainerCreated 2, ContainerDeleted 1, ContainerReplaced 1, ContainerTtlChanged 1, ContainerTtlWithdrawn 1, ErasureCompleted 1, ErasureRefused 1, ErasureRequested 1, HeldContentRead 1, HoldPlaced 1, HoldReleased 1, PartitionKeyDeleteCompleted 1, PartitionKeyDeleted 1, PolicyGraceChanged 1, RecoveryRequested 1, RecoveryWindowChanged 1, RetentionFloorChanged 1, ThroughputChanged 1, TtlBrakeChanged 1',
    database: 'DatabaseCreated 1, DatabaseDeleted 1, ThroughputChanged 1',
    item: 'ItemDeleted 1, ItemExpired 1, ItemPurged 1, ItemRecovered 1, ItemUpserted 1',
    'purge-run': 'PurgePaused 1, PurgeResumed 1, PurgeRunCompleted 1, PurgeRunStarted 1',
    script: 'ScriptCreated 1, ScriptDeleted 1, ScriptReplaced 1',
    unique: 'UniqueKeyReleased 1, UniqueKeyTaken 1',
    user: 'PermissionCreated 1, PermissionDeleted 1, PermissionReplaced 1, UserCreated 1, UserDeleted 1, UserNameTaken 1, UserRenamed 1',
  },
};

it('the vault’s schema version differs between versions that write different events, so that older ones refuse the store', () => {
  const events = Object.entries(kinds).map(([kind, { versions }]) => [
    kind,
    Object.entries(versions)
      .map(([type, version]) => `${type} ${version}`)
      .toSorted()
      .join(', '),
  ]);
  expect({
    vaultSchemas: { sqlite: VAULT_SCHEMA_VERSION, postgres: vaultSchema.steps.length },
    events: Object.fromEntries(events) as object,
  }).toEqual(WRITTEN);
});
