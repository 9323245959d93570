import { handleCommand, newEvents } from '@epitaph/core/handle-command.ts';
import { decideUniqueKey } from '@epitaph/core/unique-key/decide.ts';
import { foldUniqueKey } from '@epitaph/core/unique-key/evolve.ts';
import { uniqueKeyEventVersions } from '@epitaph/core/unique-key/upcast.ts';
import { Pace } from '@epitaph/core/turn.ts';
import { despiteFaults, type PurgeFault } from './faults.ts';
import { type LifeReading, readFacts } from './life-reading.ts';
import { type PurgePorts, stepContext } from './ports.ts';

/** Truncates lives that are recorded as purged: removes their writes, whose keys are destroyed, from the log. */
export class Truncations {
  readonly #ports: Pick<PurgePorts, 'log' | 'sealer' | 'newId' | 'projected'>;
  readonly #under = new Set<Promise<void>>();
  /**
   * Lives whose purge may get recorded although the call that recorded it failed. That can happen after the log was
   * looked through.
   */
  readonly #inDoubt = new Set<string>();
  #fault: { readonly error: unknown } | undefined;
  /** Between these positions every life that is recorded as purged is truncated. */
  #looked = { from: 0, upTo: 0 };

  constructor(ports: Pick<PurgePorts, 'log' | 'sealer' | 'newId' | 'projected'>) {
    this.#ports = ports;
  }

  /**
   * Resolves when every truncation begun so far is done.
   *
   * @throws the error of one of them; the next run finds what is left
   */
  async done(): Promise<void> {
    await Promise.all(this.#under);
    const fault = this.#fault;
    this.#fault = undefined;
    if (fault !== undefined) throw fault.error;
  }

  /** Resolves when no truncation is in progress, whether or not they succeeded. */
  async settled(): Promise<void> {
    await Promise.all(this.#under);
  }

  /**
   * Begins a truncation that only {@link done} waits for, which reports its errors. It starts when readers have the
   * record of the purge: a rebuild that is compared with the read models in use must find in the log what these have.
   *
   * @param purged the position of the purge's record, and what was read of the life's stream
   */
  begin(stream: string, purged: { readonly position: number; readonly reading: LifeReading }, nowMs: number): void {
    const truncate = async () => {
      await this.#ports.projected(purged.position);
      await this.truncate(stream, purged.reading, nowMs);
    };
    const under = truncate()
      .catch((error: unknown) => {
        this.#fault ??= { error };
      })
      .finally(() => this.#under.delete(under));
    this.#under.add(under);
  }

  /**
   * Truncates what a crash or a fault left between the record of a purge and the truncation, from a position on. Parts
   * of the log that an earlier call has read are not read again, because a run that lasting damage keeps open is
   * continued by every pass. Events that are appended in the meantime are not read: they are left by no crash, and if
   * they came faster than they are read, the call would never end.
   *
   * @param isOver true when the rest is to be left to another call, which begins where this one stopped
   */
  async finish(fromPosition: number, nowMs: number, isOver = () => false): Promise<void> {
    const { log } = this.#ports;
    const pace = new Pace();
    const { from, upTo } = this.#looked;
    if (fromPosition < from || fromPosition > upTo) this.#looked = { from: fromPosition, upTo: fromPosition };
    const head = await log.head();
    while (this.#looked.upTo <= head && !isOver()) {
      await pace.step();
      const events = await log.readAll(this.#looked.upTo, 1_000, { withBodies: false, mayBeTruncated: true });
      if (events.length === 0) return;
      for (const { type, stream } of events) {
        if (type !== 'ItemPurged') continue;
        await pace.step();
        await this.finishLife(stream, nowMs);
      }
      this.#looked.upTo = events.at(-1)!.position;
    }
  }

  /** A life whose purge could not be recorded, as far as is known. */
  doubt(stream: string): void {
    this.#inDoubt.add(stream);
  }

  /**
   * Truncates those lives in doubt that are recorded as purged.
   *
   * @returns the first fault that was met, when all others are done
   */
  finishInDoubt(nowMs: number): Promise<PurgeFault | undefined> {
    return despiteFaults([...this.#inDoubt], async (stream) => {
      if (await this.finishLife(stream, nowMs)) this.#inDoubt.delete(stream);
    });
  }

  /**
   * Truncates what is left of a life, if it is recorded as purged.
   *
   * @returns whether it is recorded as purged
   */
  async finishLife(stream: string, nowMs: number): Promise<boolean> {
    const { log, sealer, projected } = this.#ports;
    const reading = await readFacts(log, sealer, stream);
    if (reading?.last.read.type !== 'ItemPurged') return false;
    // Another attempt may have recorded the purge. A reader that finds the row but not the writes would take the log
    // for damaged, so readers must have the record first.
    await projected(reading.last.recorded.position);
    await this.truncate(stream, reading, nowMs);
    return true;
  }

  /** Removes a purged life's writes from the log; its permanent facts stay. */
  async truncate(
    stream: string,
    { firstFact, last, lastWrite, uniqueKeys }: LifeReading,
    nowMs: number,
  ): Promise<void> {
    if (lastWrite === undefined) return;
    // Before the writes are removed, because only they say what is to be released.
    await this.#releaseUniqueKeys(stream, uniqueKeys, nowMs);
    await this.#ports.log.truncateStream(stream, firstFact?.revision ?? last.recorded.revision + 1);
  }

  /** Releases the values of unique keys that a purged life ever had, in the streams of these values. */
  async #releaseUniqueKeys(life: string, streams: ReadonlySet<string>, nowMs: number): Promise<void> {
    const { log } = this.#ports;
    for (const stream of streams) {
      await handleCommand(log, {
        stream,
        background: true,
        load: 'last',
        fold: foldUniqueKey,
        decide: (state) => decideUniqueKey(state, { type: 'ReleaseUniqueKey', of: life }),
        record: (decision) =>
          decision.kind === 'accepted'
            ? { events: newEvents(stepContext(this.#ports, nowMs), decision.events, uniqueKeyEventVersions) }
            : undefined,
      });
      const last = await log.readLast(stream);
      if (last !== undefined && last.revision > 0) await log.truncateStream(stream, last.revision);
    }
  }
}
