import { writeSync } from 'node:fs';
import { join } from 'node:path';
import { formatLedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import { run } from '@epitaph/api/cli/main.ts';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { DEFINITION } from '../support/definition.ts';
import { itemToWrite } from '../support/item.ts';

/**
 * The process that is traced: a store as it ships. It reports each acknowledgement synchronously, so that the trace shows what is on the
 * disk by then.
 *
 * Argument: a folder for its folders.
 */
const [place = ''] = process.argv.slice(2);
const data = join(place, 'some', 'data');
const ledger = join(place, 'some', 'ledger.ndjson');
const CALLER = { actor: 'key:primary', correlationId: crypto.randomUUID() };

const told = (what: string): void => void writeSync(1, `told: ${what}\n`);

const store = await openEmbeddedStore({
  folder: data,
  clock: 'manual',
  policyGraceSeconds: 0,
  automaticPurge: false,
  purgeLedger: ledger,
  backupsInto: 'anywhere',
});
await store.createDatabase(CALLER, 'db');
told('a database');
const { resource: container } = await store.createContainer(CALLER, 'db', 'c', DEFINITION, 60);
told('a container');
const write = (id: string) => {
  const item = itemToWrite({ id, pk: 'p' });
  return store.writeItem(CALLER, container, 'upsert', item);
};
await write('first');
told('an item');
await write('first');
told('an item that was replaced');
await Promise.all(Array.from({ length: 100 }, (_, index) => write(`i${index}`)));
told('many items');
await store.placeHold(CALLER, container, 'h', {
  scope: { kind: 'items', items: [{ id: 'first', partitionKey: '["p"]' }] },
  reason: 'case 7',
});
told('a hold');
await store.deleteItem(CALLER, container, 'i0', '["p"]');
told('a delete');
await store.eraseItem(CALLER, container, 'i1', '["p"]', { reason: 'asked for', requestedBy: 'ann' });
told('an erasure');
await store.setRetentionFloor(CALLER, container, 1, 'case 8');
told('a floor');
await store.advanceClock(100_000);
told('another time');
const { purged } = await store.runPurge();
told(`a purge of ${purged}`);
const backup = join(place, 'some', 'backups', 'today');
await store.backup(CALLER, { folder: backup, vaultKeptSeconds: 3_600 });
told('a backup');
await write('second');
await store.advanceClock(2_000);
await store.eraseItem(CALLER, container, 'second', '["p"]', { reason: 'asked for', requestedBy: 'ann' });
const head = formatLedgerHead(await store.purgeLedgerHead());
await store.close();
told('the end of a store');

const epitaph = async (...args: readonly string[]): Promise<void> => {
  let said = '';
  const output = { print: (line: string) => (said += line), stderr: { write: (text: string) => (said += text) } };
  if ((await run(args, {}, output)) !== 0) throw new Error(said);
};
const restored = join(place, 'some', 'restored');
const parts = [
  '--log',
  join(backup, 'log'),
  '--vault',
  join(backup, 'vault'),
  '--ledger',
  ledger,
  '--ledger-head',
  head,
];
await epitaph('restore', ...parts, '--master-key-file', join(data, 'master.key'), '--to', restored);
told('a restored store');
await epitaph('keys', 'rotate-master', '--data', data);
told('another master key');
