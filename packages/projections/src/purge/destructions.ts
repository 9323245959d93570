import type { LedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import type { CommandContext } from '@epitaph/core/command-context.ts';
import { appendNext, newEvent } from '@epitaph/core/handle-command.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { parseEvent } from '@epitaph/core/upcast.ts';
import type { BodySealer } from '@epitaph/core/vault/body-sealer.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';
import { z } from 'zod';

/** The vault is an older copy than the log, so it has keys again that were destroyed since. */
class VaultIsOlder extends StorageUnavailable {
  override readonly isForOperator = true;
}

const STREAM = 'key-destructions';
const TYPE = 'KeysDestroyed';
const VERSION = 1;

/** The vault's count of its destructions. */
const destroyed = z.object({ count: z.int() });

/**
 * The number of times that the vault has destroyed keys, as recorded in the log, for a vault that counts this itself.
 * Each count is recorded before the first `ItemPurged` that depends on it. So if a vault has counted less than the log
 * has recorded, the vault is an older copy, with keys that were destroyed since. And if the log lacks a count that was
 * noted elsewhere, it lacks facts about keys that are destroyed.
 */
export class Destructions {
  readonly #log: EventLog;
  readonly #sealer: Pick<BodySealer, 'digest'>;

  constructor(log: EventLog, sealer: Pick<BodySealer, 'digest'>) {
    this.#log = log;
    this.#sealer = sealer;
  }

  /** The last count recorded; 0 if there is none. */
  async recorded(): Promise<number> {
    const last = await this.#log.readLast(STREAM);
    return last === undefined ? 0 : countOf(last);
  }

  /** Whether a vault lacks recorded destructions, and so is an older copy than the log. */
  async areMissingIn(vault: Pick<KeyVault, 'destructions'>): Promise<boolean> {
    // In this order, because other nodes are working, and they count before they record.
    const recorded = await this.recorded();
    const counted = await vault.destructions?.();
    return counted !== undefined && counted < recorded;
  }

  /**
   * Checks that the vault lacks no recorded destructions. Every key that is destroyed from here on is counted, too, so
   * an older copy could soon not be recognized by its count any more.
   *
   * @throws {StorageUnavailable} for a vault that lacks recorded destructions
   */
  async assertIn(vault: KeyVault): Promise<void> {
    if (!(await this.areMissingIn(vault))) return;
    throw new VaultIsOlder(
      'The keys in PostgreSQL are an older copy than the event log: it has keys that were destroyed since. Nothing more is erased. Stop all nodes and run epitaph restore; docs/backup-and-restore.md says how.',
    );
  }

  /** What can be noted outside the log: the last count, and a hash that identifies its record. */
  async head(): Promise<LedgerHead> {
    return this.#headOf(await this.#log.readLast(STREAM));
  }

  /** Whether the log contains the record of a head that was noted. */
  async reaches(head: LedgerHead): Promise<boolean> {
    if (head.lines === 0) return true;
    for (const event of await this.#log.readStream(STREAM)) {
      if (countOf(event) === head.lines) return this.#headOf(event).hash === head.hash;
    }
    return false;
  }

  /** Must be called with the count after keys were destroyed, before anything is recorded that depends on it. */
  async record(context: CommandContext, count: number): Promise<void> {
    await appendNext(this.#log, STREAM, (last) =>
      last !== undefined && countOf(last) >= count
        ? undefined
        : newEvent(context, { type: TYPE, data: { count } }, VERSION),
    );
  }

  #headOf(event: RecordedEvent | undefined): LedgerHead {
    const hash = this.#sealer.digest(new TextEncoder().encode(event?.id ?? ''));
    return { lines: event === undefined ? 0 : countOf(event), hash };
  }
}

function countOf(event: RecordedEvent): number {
  return parseEvent(event, { [TYPE]: destroyed }, { [TYPE]: VERSION }).data.count;
}
