import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { turn } from '@epitaph/core/turn.ts';
import { isDiskFull, sqliteCodeOf, sqliteCodes } from './failures.ts';

/** The next group takes this share of the waiting jobs. */
const GROUP_SHARE = 1 / 2;
/** A group takes at least this many of the waiting jobs. */
const MIN_GROUP = 32;
/** While clients write too, background jobs fill a group up to this weight. It limits how long a client's job waits for them. */
const SHARED_GROUP = 32;
/** While no client writes, background jobs fill a group up to this weight. */
const QUIET_GROUP = 256;
/** A group always takes background jobs of this weight, so that the purge continues under any load. */
const LEAST_ROOM = 8;
/** Clients count as writing for this many groups after their last job. */
const SHARED_GROUPS = 32;
/** How many outcomes are reported before others get a turn: their callers go on at once, and must not delay everything else. */
const TOLD_AT_ONCE = 32;
/**
 * One unit of work for a writer: plain data, so that it can be sent to another thread. Bytes are in `blobs` and rows in flat arrays:
 * cloning a view copies the whole buffer behind it, and cloning objects copies the name of each property.
 */
export interface Job {
  readonly kind: string;
  readonly blobs?: readonly Uint8Array[];
  /** The time that it takes, as a multiple of a small write; 1 by default. */
  readonly weight?: number;
  /**
   * True for a background job that syncs several times and empties a journal. It shares no group with other jobs, which would have
   * to wait for that.
   */
  readonly apart?: true;
}

export type JobOutcome =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly failure: Failure };

/** A failure, as plain data. */
interface Failure {
  readonly fault: string;
  /** The operator's remedy, if it is known. */
  readonly remedy?: string | undefined;
}

/** The synchronous side of a writer: it owns the writing connections, and executes a group of jobs at once. */
export interface WriterCore {
  /** One outcome for each job, in order. */
  execute(jobs: readonly Job[]): JobOutcome[];
  close(): void;
}

/** A write failed in the storage itself, for example because of a full disk, a missing file or damage. It was rolled back. */
export class StorageFault extends StorageUnavailable {
  override readonly name: string = 'StorageFault';
  override readonly isForOperator = true;
  /** The fault, without the remedy. */
  readonly fault: string;

  constructor({ fault, remedy }: Failure) {
    super(remedy === undefined ? fault : `${fault}: ${remedy}`);
    this.fault = fault;
  }
}

/**
 * Called before a group is written, and again after it, before the outcomes of its jobs are reported.
 *
 * @param needsReadersGone true if the group that begins has to wait, with all later jobs, until open read transactions end
 */
export type GroupListener = (needsReadersGone: boolean) => void;

interface Pending {
  readonly job: Job;
  readonly resolve: (value: never) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Group commit: while the writer works on one group of jobs, the next group gathers. The jobs of a group are written in one
 * transaction, and answered after it.
 */
export abstract class Writer {
  readonly #pending: Pending[] = [];
  readonly #background: Pending[] = [];
  /** For how many more groups clients count as writing. */
  #sharedGroups = 0;
  /** Whether the last group was one of jobs `apart`. */
  #wasApart = false;
  #busy = false;
  #scheduled = false;
  #closing = false;
  /** Resolves when the outcomes of all finished groups have been reported. They are reported in order. */
  #telling: Promise<void> = Promise.resolve();
  #idle: (() => void)[] = [];
  readonly #onGroup: GroupListener[] = [];

  onGroup(listener: GroupListener): void {
    this.#onGroup.push(listener);
  }

  /** Submits a job. A background job is executed when a group has room beside the other jobs. */
  submit<Value>(job: Job, { background = false }: { readonly background?: boolean | undefined } = {}): Promise<Value> {
    if (this.#closing) return Promise.reject(new StorageFault({ fault: 'the storage is closed' }));
    return new Promise<Value>((resolve, reject) => {
      (background ? this.#background : this.#pending).push({ job, resolve, reject });
      this.#schedule();
    });
  }

  /** Resolves when everything submitted so far is done. */
  async idle(): Promise<void> {
    while (this.#busy || this.#queued > 0) await new Promise<void>((resolve) => this.#idle.push(resolve));
    await this.#telling;
  }

  /** Waits until all submitted jobs are done, then closes the files. */
  async close(): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    await this.idle();
    await this.closeCore();
  }

  protected abstract run(jobs: readonly Job[]): Promise<JobOutcome[]>;
  protected abstract closeCore(): Promise<void>;

  get #queued(): number {
    return this.#pending.length + this.#background.length;
  }

  #announce(needsReadersGone: boolean): void {
    for (const listener of this.#onGroup) listener(needsReadersGone);
  }

  #schedule(): void {
    if (this.#busy || this.#scheduled) return;
    this.#scheduled = true;
    // Not a microtask, so that all jobs submitted in this turn of the event loop join the group.
    setImmediate(() => {
      this.#scheduled = false;
      if (this.#queued > 0) void this.#write(this.#nextGroup());
    });
  }

  #nextGroup(): Pending[] {
    // Between two groups of jobs `apart`, one group of clients' jobs is written, if there are any.
    const apart = this.#background[0]?.job.apart === true && !(this.#wasApart && this.#pending.length > 0);
    this.#wasApart = apart;
    // Not all waiting jobs are taken at once: while one part is written, other writes are decided and answered.
    const share = apart ? 0 : Math.max(MIN_GROUP, Math.ceil(this.#pending.length * GROUP_SHARE));
    this.#sharedGroups = this.#pending.length > 0 ? SHARED_GROUPS : Math.max(0, this.#sharedGroups - 1);
    const group = this.#pending.splice(0, share);
    const limit = this.#sharedGroups > 0 ? Math.max(SHARED_GROUP, group.length + LEAST_ROOM) : QUIET_GROUP;
    let taken = 0;
    for (let weight = group.length; weight < limit; taken++) {
      const next = this.#background[taken]?.job;
      if (next === undefined || (next.apart === true) !== apart) break;
      weight += next.weight ?? 1;
    }
    group.push(...this.#background.splice(0, taken));
    return group;
  }

  async #write(group: readonly Pending[]): Promise<void> {
    this.#busy = true;
    let outcomes: JobOutcome[];
    this.#announce(group.some(({ job }) => job.apart === true));
    try {
      outcomes = await this.run(group.map((pending) => pending.job)).finally(() => this.#announce(false));
    } catch (error) {
      for (const pending of group) pending.reject(error);
      outcomes = [];
    }
    this.#busy = false;
    this.#telling = this.#telling.then(() => tell(group, outcomes));
    // If enough jobs wait for a group, the writer goes on at once, while the outcomes of the last group are reported.
    if (this.#queued >= MIN_GROUP) void this.#write(this.#nextGroup());
    else if (this.#queued > 0) this.#schedule();
    else for (const resolve of this.#idle.splice(0)) resolve();
  }
}

async function tell(group: readonly Pending[], outcomes: readonly JobOutcome[]): Promise<void> {
  for (let index = 0; index < outcomes.length; index++) {
    const outcome = outcomes[index]!;
    if (index > 0 && index % TOLD_AT_ONCE === 0) await turn();
    if (outcome.ok) group[index]!.resolve(outcome.value as never);
    else group[index]!.reject(new StorageFault(outcome.failure));
  }
}

/** Runs the core on the calling thread: for tests that place crashes, and where no threads are wanted. */
export class InlineWriter extends Writer {
  readonly #core: WriterCore;

  constructor(core: WriterCore) {
    super();
    this.#core = core;
  }

  protected override async run(jobs: readonly Job[]): Promise<JobOutcome[]> {
    return this.#core.execute(jobs);
  }

  protected override async closeCore(): Promise<void> {
    this.#core.close();
  }
}

/**
 * Turns an error of SQLite or the disk into an outcome that says what to do.
 *
 * @param whenDamaged what to do about damaged files, as part of a sentence
 * @param known what to do about this error, if that is known
 */
export function failureOutcome(error: unknown, whenDamaged = 'restore it from a backup', known?: string): JobOutcome {
  const { message = String(error), cause } = error as { message?: string; cause?: unknown };
  const remedy = known ?? remedyFor(cause ?? error, whenDamaged);
  return { ok: false, failure: { fault: message, remedy } };
}

function remedyFor(error: unknown, whenDamaged: string): string | undefined {
  const sqliteCode = sqliteCodeOf(error);
  const { code } = error as { code?: string };
  if (isDiskFull(error)) {
    return 'there is no space left on the disk of the data folder. Free some space; a running store then continues by itself.';
  }
  if (sqliteCode === sqliteCodes.readOnly || code === 'EROFS' || code === 'EACCES') {
    return "the data folder can't be written to any more. Check its disk and its permissions; a running store then continues by itself.";
  }
  if (sqliteCode === sqliteCodes.ioError) {
    return 'the disk of the data folder fails or is full. Check the disk.';
  }
  if (sqliteCode === sqliteCodes.corrupt || sqliteCode === sqliteCodes.notADatabase) {
    return `a file of the data folder is damaged. Stop the store, and ${whenDamaged}.`;
  }
  return undefined;
}
