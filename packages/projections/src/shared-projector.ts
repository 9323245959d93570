import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { HoldRegister } from '@epitaph/core/retention/hold-register.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { interval, type Subscription } from './rxjs.ts';
import { Catalog } from './catalog/catalog.ts';
import type { ClearSources } from './items/clear-copies.ts';
import { PositionWaiters, type Projection } from './projection.ts';
import { Projector, type ProjectorOptions } from './projector.ts';
import type { CatalogChange, ContainerNumber, ReadModelChange, ReadModelVersions } from './read-model-store.ts';

/** How often a node that does not project checks whether it should, and how far the read models are. */
const LOOK_MS = 1_000;
/** How many looks a node stays patient for after another node has told it that a batch takes long. */
const PATIENT_LOOKS = 5;

/** What another node has applied. */
export interface ReadModelNews {
  /** Containers whose items have changed. Undefined if news may have been missed. */
  readonly containers: readonly ContainerNumber[] | undefined;
  /** The rids of deleted databases, whose containers are deleted with them. */
  readonly databases: readonly string[];
  /** Positions of writes whose content was erased. */
  readonly erased: readonly number[];
  /**
   * The other node is still applying a long batch, such as a delete by partition key. Nothing has changed yet, and
   * nothing lags.
   */
  readonly takesLong?: true;
}

/** The news if something may have been missed. */
export const ANYTHING: ReadModelNews = { containers: undefined, databases: [], erased: [] };

/** Read models that several nodes read, and that one node at a time writes. */
export interface SharedReadModels extends ReadModelVersions {
  /**
   * Makes this node the writer, or answers undefined while another node is the writer. This ends by `release`, or when
   * the connection that holds the right to write breaks; then `onLost` is called.
   */
  lead(onLost: () => void): Promise<{ release(): Promise<void> } | undefined>;
  /** Calls `onNews` with what other nodes apply, as soon as readers see it. */
  listen(onNews: (news: ReadModelNews) => void): Promise<{ close(): Promise<void> }>;
  /** Tells the other nodes which writes' content was erased, so that none of them keeps it decoded in memory. */
  tellErased(positions: readonly number[]): Promise<void>;
  /** Tells the other nodes that this one is still applying a long batch. */
  tellTakesLong(): Promise<void>;
  /**
   * Reads which version is in use and where its checkpoint is. If the connection for news has broken, also listens
   * again, and then reports {@link ANYTHING}.
   */
  look(): Promise<{
    readonly version: number;
    readonly position: number;
    /** Number of changes of the catalog in this version so far. */
    readonly catalogChanges: number;
  }>;
  /**
   * The changes of the catalog of the version in use since an earlier number of changes, deletions included. For a
   * container's holds, only those that have changed.
   */
  catalogSince(catalogChanges: number): Promise<readonly CatalogChange[]>;
}

export interface SharedProjectorOptions extends ClearSources {
  readonly log: EventLog;
  readonly readModels: SharedReadModels;
  /** False for a node that never writes the read models. */
  readonly mayProject: boolean;
  /** Called with every change that this node has applied. */
  readonly onApplied: (changes: readonly ReadModelChange[]) => void;
  /** Called with what another node has applied. */
  readonly onNews: (news: ReadModelNews) => void;
  /** See {@link ProjectorOptions}. */
  readonly around?: ProjectorOptions['around'];
  readonly onUnreadable?: ProjectorOptions['onUnreadable'];
}

interface Leading {
  readonly projector: Projector;
  readonly release: () => Promise<void>;
  /** The version of the read models that it writes. Undefined while it is stopped, until it has begun again. */
  version: number | undefined;
}

/**
 * The projection on one of several nodes. One of the nodes that may project does so. The others follow its checkpoint,
 * and one of them takes over when it dies.
 */
export class SharedProjector implements Projection {
  readonly #options: SharedProjectorOptions;
  readonly #waiters = new PositionWaiters();
  #leading: Leading | undefined;
  #position = 0;
  #catalog = new Catalog();
  #error: Error | undefined;
  #news: { close(): Promise<void> } | undefined;
  #looks: Subscription | undefined;
  /** The looks run one at a time, in order. */
  #looking: Promise<void> = Promise.resolve();
  #nextLook: Promise<void> | undefined;
  /**
   * The next look must also check whether a node projects. Not needed for a look because of news: a node that projects
   * sent them, and the next look by time will find out.
   */
  #mayBeLeaderless = false;
  /** Resolves when the projector of this node has moved to other read models. */
  #moving: Promise<void> = Promise.resolve();
  /** True during that time. Readers use the other read models already, and must not take for deleted what is not in these yet. */
  #isMoving = false;
  /** The version of the read models and number of changes that the catalog is from. Undefined if it is from none. */
  #catalogState: { readonly version: number; readonly catalogChanges: number } | undefined;
  #stopped = true;
  /** True while this node can't reach the log. Another node may reach it, so this node leaves the right to write to others. */
  #isCutOff = false;
  #isAskingLog = false;
  /** How many looks may pass before waiters are told that the projection lags. */
  #patientLooks = 0;
  /** True if news came that could not be followed by a look, or that this node took for its own. */
  #unseen = false;

  constructor(options: SharedProjectorOptions) {
    this.#options = options;
  }

  get position(): number {
    if (this.#isMoving) return 0;
    return this.#leading?.projector.position ?? this.#position;
  }

  get catalog(): Catalog {
    return this.#leading?.projector.catalog ?? this.#catalog;
  }

  get error(): string | undefined {
    return this.#leading === undefined ? this.#error?.message : this.#leading.projector.error;
  }

  get projects(): boolean {
    return this.#leading !== undefined;
  }

  async start(): Promise<void> {
    await this.resume();
    // The server may be reachable at the next start.
    if (this.#error instanceof StorageUnavailable) throw this.#error;
    invariant(this.#error === undefined, `the read models can be read: ${this.#error?.message}`);
    const head = await this.#options.log.head();
    await this.#wait(head, 'endless');
  }

  async resume(): Promise<void> {
    this.#stopped = false;
    // After a rebuild, for which this node has kept the right to write.
    if (this.#leading !== undefined && (await this.#beginAgain(this.#leading))) return;
    await this.#look();
    this.#looks?.unsubscribe();
    this.#looks = interval(LOOK_MS).subscribe(() => {
      if (this.#leading !== undefined || this.#isCutOff) void this.#askLog();
      if (this.#leading !== undefined) {
        // The node's projector tells the waiters itself when they have waited too long. If listening fails, it is tried
        // again each time.
        this.#lookWhileLeading(this.#leading).catch(() => {});
        return;
      }
      if (this.#patientLooks > 0) this.#patientLooks -= 1;
      else this.#waiters.sweep(this.#error);
      void this.#look();
    });
  }

  /** Starts the projector again. True if it has begun, and this node still has the right to write. */
  async #beginAgain(leading: Leading): Promise<boolean> {
    try {
      // If the answer to a swap was lost, this node does not know the version in use.
      const { version } = await this.#options.readModels.look();
      await leading.projector.begin();
      leading.version = version;
      if (this.#leading === leading) return true;
      // The right to write was lost in the meantime. What the loss should have stopped had not begun then, so it is stopped here.
      await leading.projector.stop();
    } catch {
      // The next node that gets the right to write begins anew. If this node kept the right, it would prevent that.
      if (this.#leading === leading) this.#follows(leading);
      await leading.projector.stop();
      await leading.release();
    }
    return false;
  }

  /**
   * A node that has started since may have made new read models, because these were gone, and waits until they are kept
   * up to date.
   */
  async #lookWhileLeading(leading: Leading): Promise<void> {
    const { version } = await this.#options.readModels.look();
    // Without a version the projector was stopped, or is being started, and the caller that does so begins it. If it began
    // twice, it would apply each event twice.
    if (leading.version === undefined || leading.version === version || this.#isOver(leading)) return;
    leading.version = undefined;
    this.#isMoving = true;
    this.#moving = this.#move(leading)
      .catch(() => {})
      .finally(() => {
        this.#isMoving = false;
        this.#waiters.reached(this.position);
      });
    await this.#moving;
  }

  async #move(leading: Leading): Promise<void> {
    await leading.projector.stop();
    if (!this.#isOver(leading) && !(await this.#beginAgain(leading))) await this.#look();
  }

  #isOver(leading: Leading): boolean {
    return this.#stopped || this.#leading !== leading;
  }

  /** Stops projecting. The right to write is kept, for {@link resume}; {@link close} gives it up. */
  async stop(): Promise<void> {
    if (this.#leading === undefined) return this.#end();
    // If the right is lost in the meantime, this node does not try to get it again before `resume`.
    this.#stopped = true;
    await this.#stopProjector();
  }

  async #stopProjector(): Promise<void> {
    await this.#moving;
    if (this.#leading === undefined) return;
    this.#leading.version = undefined;
    await this.#leading.projector.stop();
  }

  /** Stops for good. Another node takes over. */
  async close(): Promise<void> {
    await this.#end();
    await this.#stopProjector();
    await this.#leading?.release();
    this.#leading = undefined;
    await this.#news?.close();
    this.#news = undefined;
  }

  waitFor(position: number): Promise<void> | undefined {
    return position <= this.position ? undefined : this.#wait(position);
  }

  /** A projector that has lost the right to write may still reach the position; this node learns that only when it looks. */
  async #wait(position: number, patience?: 'endless'): Promise<void> {
    while (position > this.position) await this.#waiters.wait(position, patience);
  }

  async #end(): Promise<void> {
    this.#stopped = true;
    this.#looks?.unsubscribe();
    await this.#looking;
  }

  /** The projector's subscription does not report for how long it can't reach the log, and there may be no event for hours. */
  async #askLog(): Promise<void> {
    if (this.#isAskingLog) return;
    this.#isAskingLog = true;
    try {
      await this.#options.log.head();
      this.#isCutOff = false;
    } catch (error) {
      // A fault that only an operator can correct is the same for every node.
      if (!(error instanceof StorageUnavailable) || error.isForOperator) return;
      this.#isCutOff = true;
      const leading = this.#leading;
      if (leading === undefined || this.#stopped) return;
      await Promise.allSettled([leading.release(), this.#loseLead()]);
    } finally {
      this.#isAskingLog = false;
    }
  }

  #look({ isByNews = false } = {}): Promise<void> {
    this.#mayBeLeaderless ||= !isByNews;
    // A look that has not begun yet will see everything up to now.
    if (this.#nextLook !== undefined) return this.#nextLook;
    this.#nextLook = this.#looking.then(async () => {
      this.#nextLook = undefined;
      const mayBeLeaderless = this.#mayBeLeaderless;
      this.#mayBeLeaderless = false;
      if (this.#stopped || this.#leading !== undefined) return;
      try {
        this.#news ??= await this.#options.readModels.listen((news) => this.#hear(news));
        const mayLead = mayBeLeaderless && this.#options.mayProject && !this.#isCutOff;
        if (!mayLead || !(await this.#tryToLead())) await this.#follow();
        this.#error = undefined;
        if (this.#unseen) this.#options.onNews(ANYTHING);
        this.#unseen = false;
      } catch (error) {
        this.#error = error as Error;
      }
    });
    this.#looking = this.#nextLook;
    return this.#nextLook;
  }

  #hear(news: ReadModelNews): void {
    if (news.takesLong === true) {
      this.#patientLooks = PATIENT_LOOKS;
      return;
    }
    // The node that projects hears its own news, too. Of other nodes' news it needs only what they have erased.
    if (this.#leading !== undefined) {
      if (news === ANYTHING) this.#options.onNews(ANYTHING);
      else if (news.erased.length > 0) this.#options.onNews({ containers: [], databases: [], erased: news.erased });
      return;
    }
    // If another server has taken the place of the former one, the same number may stand for other changes.
    if (news === ANYTHING) this.#catalogState = undefined;
    void this.#look({ isByNews: news !== ANYTHING }).then(() => {
      this.#unseen ||= this.#error !== undefined;
      this.#options.onNews(news);
    });
  }

  async #follow(): Promise<void> {
    const { readModels } = this.#options;
    const { version, position, catalogChanges } = await readModels.look();
    const known = this.#catalogState;
    // If these are new read models made from the log, what is not in them yet must not be taken for deleted.
    this.#position = Math.min(this.#position, position);
    if (known?.version !== version) this.#catalog = await Catalog.load(readModels.current.store);
    else if (known.catalogChanges !== catalogChanges) {
      for (const change of await readModels.catalogSince(known.catalogChanges)) this.#put(change);
    }
    this.#catalogState = { version, catalogChanges };
    // The position may be lower than before, if a standby that lags has taken the server's place.
    if (position !== this.#position) this.#patientLooks = 0;
    this.#position = position;
    this.#waiters.reached(position);
  }

  #put(change: CatalogChange): void {
    if (change.kind !== 'container') return this.#catalog.put(change);
    const { retention } = change.state;
    const known = this.#catalog.containerByNumber(change.number)?.state.retention.holds ?? HoldRegister.empty;
    const holds = known.with(retention.holds);
    this.#catalog.put({ ...change, state: { ...change.state, retention: { ...retention, holds } } });
  }

  async #tryToLead(): Promise<boolean> {
    const { readModels, log, vault, sealer, onApplied, onNews, onUnreadable, around } = this.#options;
    let lost = false;
    const lead = await readModels.lead(() => {
      lost = true;
      void this.#loseLead();
    });
    if (lead === undefined) return false;
    const projector = new Projector({
      log,
      vault,
      sealer,
      store: () => readModels.current.store,
      onApplied,
      onMissed: () => onNews(ANYTHING),
      onTakesLong: () => void readModels.tellTakesLong().catch(() => {}),
      onUnreadable,
      around,
      recordsIdleProgress: true,
      waiters: this.#waiters,
    });
    let version: number;
    try {
      ({ version } = await readModels.look());
      await projector.begin();
    } catch (error) {
      // If this node kept the right to write now, no node could write, not even this one.
      await lead.release();
      throw error;
    }
    if (lost) {
      await projector.stop();
      return false;
    }
    this.#leading = { projector, release: () => lead.release(), version };
    this.#waiters.reached(projector.position);
    // Nobody has told this node what happened between the last news and now.
    this.#options.onNews(ANYTHING);
    return true;
  }

  async #loseLead(): Promise<void> {
    const leading = this.#leading;
    if (leading === undefined) return;
    this.#follows(leading);
    await leading.projector.stop();
    await this.#look();
  }

  #follows({ projector }: Leading): void {
    this.#position = projector.position;
    this.#catalog = projector.catalog;
    this.#catalogState = undefined;
    this.#leading = undefined;
    // Another node may have got the right to write before this node noticed the loss, or the last answer was lost with it.
    this.#unseen = true;
  }
}
