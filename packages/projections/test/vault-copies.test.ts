import { beforeEach, describe, expect, it } from 'vitest';
import type { CommandContext } from '@epitaph/core/command-context.ts';
import { appendNext, newEvent } from '@epitaph/core/handle-command.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { BACKUPS_STREAM, LONGEST_VAULT_KEPT_SECONDS, namesLost, VaultCopies } from '../src/purge/vault-copies.ts';

let log: MemoryEventLog;
let copies: VaultCopies;
beforeEach(async () => {
  log = new MemoryEventLog();
  copies = await VaultCopies.open(log);
});
const context = (nowMs: number): CommandContext => ({
  nowMs,
  actor: 'key:primary',
  correlationId: crypto.randomUUID(),
  newId: () => crypto.randomUUID(),
});
const begin = (backupId: string, vaultLapsesAtMs: number) =>
  copies.started(context(1_000), { backupId, vaultLapsesAtMs });

describe('copies of the keys', () => {
  it('count from the beginning of a backup until the last one has lapsed, whatever became of the backup', async () => {
    expect(copies.recoverableUntilMs(0)).toBe(null);
    await begin('a', 9_000);
    expect(copies.recoverableUntilMs(1_000)).toBe(9_000);
    await begin('b', 5_000);
    await begin('c', 7_000);
    await copies.completed(context(2_000), { backupId: 'b', logPosition: 12, bytes: 300 });
    await copies.failed(context(2_000), { backupId: 'a', why: 'cancelled' });
    expect(copies.recoverableUntilMs(8_999)).toBe(9_000);
    expect(copies.recoverableUntilMs(9_000)).toBe(null);
  });

  it('are read again from the log, with the outcome of each', async () => {
    await begin('a', 9_000);
    await begin('b', 5_000);
    await begin('c', 7_000);
    await begin('d', 8_000);
    await copies.completed(context(2_000), { backupId: 'b', logPosition: 12, bytes: 300 });
    await copies.failed(context(2_000), { backupId: 'c', why: 'failed' });
    await copies.failed(context(2_000), { backupId: 'd', why: 'cancelled' });
    const about = { startedAtMs: 1_000, by: 'key:primary', logPosition: null, bytes: null };
    const known = [
      { ...about, id: 'a', vaultLapsesAtMs: 9_000, state: 'unfinished' },
      { ...about, id: 'b', vaultLapsesAtMs: 5_000, state: 'completed', logPosition: 12, bytes: 300 },
      { ...about, id: 'c', vaultLapsesAtMs: 7_000, state: 'failed' },
      { ...about, id: 'd', vaultLapsesAtMs: 8_000, state: 'cancelled' },
    ];
    expect(copies.all()).toEqual(known);
    const again = await VaultCopies.open(log);
    expect(again.all()).toEqual(known);
    expect(again.recoverableUntilMs(1_000)).toBe(9_000);
  });

  it('count for the longest possible time if the record of their beginning can’t be read', async () => {
    await begin('a', 9_000);
    const unreadable = (type: string, nowMs: number) =>
      appendNext(log, BACKUPS_STREAM, () => newEvent(context(nowMs), { type, data: {} }, 1));
    await unreadable('BackupStarted', 5_000);
    await unreadable('BackupStarted', 4_000);
    await unreadable('BackupCompleted', 6_000);
    const again = await VaultCopies.open(log);
    expect(again.all().map(({ id }) => id)).toEqual(['a']);
    const untilMs = 5_000 + LONGEST_VAULT_KEPT_SECONDS * 1000;
    expect(again.recoverableUntilMs(untilMs - 1)).toBe(untilMs);
    expect(again.recoverableUntilMs(untilMs)).toBe(null);
    expect(await namesLost(log)).toEqual(new Map());
  });

  it('no longer count after a restore, which tells up to where names are lost', async () => {
    const restored = {
      logBackupId: 'a',
      vaultBackupId: 'b',
      logPosition: 3,
      ledgerHead: '0:x',
      livesEnded: 0,
    };
    await begin('a', 9_000);
    expect(await namesLost(log)).toEqual(new Map());
    await copies.restored(context(2_000), { ...restored, namesLost: ['Co1', 'Co2'] });
    await copies.restored(context(3_000), restored);
    await copies.restored(context(4_000), { ...restored, namesLost: ['Co2'] });
    expect(copies.all().map(({ id, state }) => [id, state])).toEqual([['a', 'unfinished']]);
    expect((await VaultCopies.open(log)).all()).toEqual(copies.all());
    expect(await namesLost(log)).toEqual(
      new Map([
        ['Co1', 2],
        ['Co2', 4],
      ]),
    );
  });
});
