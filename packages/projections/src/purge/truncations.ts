import { handleCommand, newEvents } from '@epitaph/core/handle-command.ts';
import { decideUniqueKey } from '@epitaph/core/unique-key/decide.ts';
import { foldUniqueKey } from '@epitaph/core/unique-key/evolve.ts';
import { uniqueKeyEventVersions } from '@epitaph/core/unique-key/upcast.ts';
import { Pace } from '@epitaph/core/turn.ts';
import { despiteFaults, type PurgeFault } from './faults.ts';
import { type LifeReading, readFacts } from './life-reading.ts';
import { type PurgePorts, stepContext } from './ports.ts';

/** Takes out of the log what is left of lives that are on record as purged: their writes, whose keys are gone. */
export class Truncations {
  readonly #ports: Pick<PurgePorts, 'log' | 'sealer' | 'newId' | 'projected'>;
  readonly #under = new Set<Promise<void>>();
  /** Lives whose purge may come on record though who recorded it was told of a fault, also after all was looked through. */
  readonly #inDoubt = new Set<string>();
  #fault: { readonly error: unknown } | undefined;
  /** Between which positions every life that is on record as purged is truncated. */
  #looked = { from: 0, upTo: 0 };

  constructor(ports: Pick<PurgePorts, 'log' | 'sealer' | 'newId' | 'projected'>) {
    this.#ports = ports;
  }

  /**
   * Resolves when every truncation begun so far is done.
   *
   * @throws what one of them met; the next run finds what is left.
   */
  async done(): Promise<void> {
    await Promise.all(this.#under);
    const fault = this.#fault;
    this.#fault = undefined;
    if (fault !== undefined) throw fault.error;
  }

  /** Resolves when no truncation is under way, however they went. */
  async settled(): Promise<void> {
    await Promise.all(this.#under);
  }

  /**
   * Begins a truncation that nobody waits for but {@link done}, which is told of its faults. It comes when readers have the
   * record of the purge: a rebuild must find in the log what the read models have in use when it is compared with them.
   *
   * @param purged where the purge is recorded, and what the life's stream had
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
   * Truncates what a crash or a fault left between the record of a purge and the truncation, from a position on. What
   * an earlier call has read is not read again: a run that lasting damage keeps open is taken up by every pass. What comes
   * meanwhile is left by nobody: where it comes faster than it is read, there is no end of it.
   *
   * @param isOver true when it is to be left to another call, which begins where this one has come to
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

  /** Told of a life whose purge could not be recorded, as far as is known. */
  doubt(stream: string): void {
    this.#inDoubt.add(stream);
  }

  /**
   * Truncates those lives in doubt that are on record as purged.
   *
   * @returns the first fault that was met, when all others are done
   */
  finishInDoubt(nowMs: number): Promise<PurgeFault | undefined> {
    return despiteFaults([...this.#inDoubt], async (stream) => {
      if (await this.finishLife(stream, nowMs)) this.#inDoubt.delete(stream);
    });
  }

  /**
   * Truncates what is left of a life, if it is on record as purged.
   *
   * @returns whether it is
   */
  async finishLife(stream: string, nowMs: number): Promise<boolean> {
    const { log, sealer, projected } = this.#ports;
    const reading = await readFacts(log, sealer, stream);
    if (reading?.last.read.type !== 'ItemPurged') return false;
    // To whoever finds its row and not its writes, the log is damaged. Another attempt may have recorded it.
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
    // Before the writes go, which alone say what there is to release.
    await this.#releaseUniqueKeys(stream, uniqueKeys, nowMs);
    await this.#ports.log.truncateStream(stream, firstFact?.revision ?? last.recorded.revision + 1);
  }

  /** Takes a purged life out of the streams of all unique keys' values that it ever had. */
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
