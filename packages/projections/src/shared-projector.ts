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

/** How often a node that does not project looks for itself whether it should, and how far the read models are. */
const LOOK_MS = 1_000;
/** For how many looks it has patience where it is told that what is being applied takes long, as it is with each. */
const PATIENT_LOOKS = 5;

/** What another node has applied. */
export interface ReadModelNews {
  /** Containers in which items have changed; undefined when news may have been missed. */
  readonly containers: readonly ContainerNumber[] | undefined;
  /** The rids of databases that went, and their containers with them. */
  readonly databases: readonly string[];
  /** Positions of writes whose content was erased. */
  readonly erased: readonly number[];
  /** It is still applying what takes long, as a delete by partition key does: nothing has changed yet, and nothing lags. */
  readonly takesLong?: true;
}

/** What is told when news may have been missed. */
export const ANYTHING: ReadModelNews = { containers: undefined, databases: [], erased: [] };

/** Read models that several nodes read and one at a time writes. */
export interface SharedReadModels extends ReadModelVersions {
  /**
   * Makes this node the one that writes, or answers undefined while another node is. That ends by `release`, or when
   * the connection that holds the right breaks, which `onLost` tells.
   */
  lead(onLost: () => void): Promise<{ release(): Promise<void> } | undefined>;
  /** Tells of what other nodes apply, as soon as readers see it. */
  listen(onNews: (news: ReadModelNews) => void): Promise<{ close(): Promise<void> }>;
  /** Tells the other nodes whose content is gone, so that none keeps it decoded in memory. */
  tellErased(positions: readonly number[]): Promise<void>;
  /** Tells the other nodes that this one is still at what takes long. */
  tellTakesLong(): Promise<void>;
  /**
   * Looks which version is in use and where it stands; and listens again, should the connection have broken, and tells of
   * {@link ANYTHING} then.
   */
  look(): Promise<{
    readonly version: number;
    readonly position: number;
    /** Counts the changes of the catalog in this version. */
    readonly catalogChanges: number;
  }>;
  /**
   * What has changed in the catalog of the version in use since so many changes, including what is gone. Of a
   * container's holds only those that have changed.
   */
  catalogSince(catalogChanges: number): Promise<readonly CatalogChange[]>;
}

export interface SharedProjectorOptions extends ClearSources {
  readonly log: EventLog;
  readonly readModels: SharedReadModels;
  /** False for a node that never writes the read models. */
  readonly mayProject: boolean;
  /** Told of every change that this node has applied. */
  readonly onApplied: (changes: readonly ReadModelChange[]) => void;
  /** Told of what another node has applied. */
  readonly onNews: (news: ReadModelNews) => void;
  /** As in {@link ProjectorOptions}. */
  readonly around?: ProjectorOptions['around'];
  readonly onUnreadable?: ProjectorOptions['onUnreadable'];
}

interface Leading {
  readonly projector: Projector;
  readonly release: () => Promise<void>;
  /** Which version of the read models it writes; undefined while it stands still, and until it has begun again. */
  version: number | undefined;
}

/**
 * The projection on one of several nodes. One of those that may projects; the others follow its checkpoint, and one
 * of them goes on when it dies.
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
  /** One look at a time, in order. */
  #looking: Promise<void> = Promise.resolve();
  #nextLook: Promise<void> | undefined;
  /** The next look is not only for another node's news: these come from one that projects, or the next look by time will find out. */
  #mayBeLeaderless = false;
  /** Until the projector of the right to write has gone on with other read models. */
  #moving: Promise<void> = Promise.resolve();
  /** True while that is under way: readers find others already, and must not take for gone what is not in them yet. */
  #isMoving = false;
  /** Which version of the read models the catalog is of, and after how many changes; undefined while it is of none. */
  #catalogState: { readonly version: number; readonly catalogChanges: number } | undefined;
  #stopped = true;
  /** True while the log can't be reached from here. Another node may reach it, and is left the right to write. */
  #isCutOff = false;
  #isAskingLog = false;
  /** How many looks may pass before those who wait are told that the projection lags. */
  #patientLooks = 0;
  /** True when news came of what could not be looked at, or was taken for this node's own voice. */
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
    // It may be there again at the next start.
    if (this.#error instanceof StorageUnavailable) throw this.#error;
    invariant(this.#error === undefined, `the read models can be read: ${this.#error?.message}`);
    const head = await this.#options.log.head();
    await this.#wait(head, 'endless');
  }

  async resume(): Promise<void> {
    this.#stopped = false;
    // After a rebuild, during which this node went on holding the right to write.
    if (this.#leading !== undefined && (await this.#beginAgain(this.#leading))) return;
    await this.#look();
    this.#looks?.unsubscribe();
    this.#looks = interval(LOOK_MS).subscribe(() => {
      if (this.#leading !== undefined || this.#isCutOff) void this.#askLog();
      if (this.#leading !== undefined) {
        // Its projector sweeps the waiters by itself. If listening is not possible yet, it is tried again each time.
        this.#lookWhileLeading(this.#leading).catch(() => {});
        return;
      }
      if (this.#patientLooks > 0) this.#patientLooks -= 1;
      else this.#waiters.sweep(this.#error);
      void this.#look();
    });
  }

  /** Answers whether this node still has the right to write, and its projector has begun to. */
  async #beginAgain(leading: Leading): Promise<boolean> {
    try {
      // If the answer to a swap was lost, this node does not know of it yet.
      const { version } = await this.#options.readModels.look();
      await leading.projector.begin();
      leading.version = version;
      if (this.#leading === leading) return true;
      // The right to write was lost meanwhile, before what had to be stopped for that had begun.
      await leading.projector.stop();
    } catch {
      // The next node that has the right to write begins anew. If this one kept the right, it would keep everybody
      // from that.
      if (this.#leading === leading) this.#follows(leading);
      await leading.projector.stop();
      await leading.release();
    }
    return false;
  }

  /** A node that has started since has made others, where these were gone, and waits for them to be kept up. */
  async #lookWhileLeading(leading: Leading): Promise<void> {
    const { version } = await this.#options.readModels.look();
    // Whoever has stopped it, or makes it begin, sees to that: begun twice it would apply each event twice.
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

  /** Stands still. The right to write is kept, for {@link resume}; {@link close} gives it back. */
  async stop(): Promise<void> {
    if (this.#leading === undefined) return this.#end();
    // If the right is lost meanwhile, this node does not try for it before it goes on.
    this.#stopped = true;
    await this.#stopProjector();
  }

  async #stopProjector(): Promise<void> {
    await this.#moving;
    if (this.#leading === undefined) return;
    this.#leading.version = undefined;
    await this.#leading.projector.stop();
  }

  /** Ends for good; another node goes on. */
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

  /** The projector of a right to write that was lost may still reach it, of which this node knows only when it has looked. */
  async #wait(position: number, patience?: 'endless'): Promise<void> {
    while (position > this.position) await this.#waiters.wait(position, patience);
  }

  async #end(): Promise<void> {
    this.#stopped = true;
    this.#looks?.unsubscribe();
    await this.#looking;
  }

  /** The subscription of a projector tells nobody how long it has not reached the log, and may have nothing to tell for hours. */
  async #askLog(): Promise<void> {
    if (this.#isAskingLog) return;
    this.#isAskingLog = true;
    try {
      await this.#options.log.head();
      this.#isCutOff = false;
    } catch (error) {
      // What only an operator can put right is the same for every node.
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
    // A look that has not begun yet will see everything that there is by now.
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
    // The node that projects hears its own news, too; of others' it needs only what they have erased.
    if (this.#leading !== undefined) {
      if (news === ANYTHING) this.#options.onNews(ANYTHING);
      else if (news.erased.length > 0) this.#options.onNews({ containers: [], databases: [], erased: news.erased });
      return;
    }
    // Of a server whose place another one has taken the same number may stand for other changes.
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
    // Others that are made from the log: what is not in them yet must not be taken for gone.
    this.#position = Math.min(this.#position, position);
    if (known?.version !== version) this.#catalog = await Catalog.load(readModels.current.store);
    else if (known.catalogChanges !== catalogChanges) {
      for (const change of await readModels.catalogSince(known.catalogChanges)) this.#put(change);
    }
    this.#catalogState = { version, catalogChanges };
    // Less than before where a standby that lags has taken the server's place.
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
      // If it kept the right to write, no node could write, this one included.
      await lead.release();
      throw error;
    }
    if (lost) {
      await projector.stop();
      return false;
    }
    this.#leading = { projector, release: () => lead.release(), version };
    this.#waiters.reached(projector.position);
    // What happened between the last news and now was told by nobody.
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
    // Another node may have had the right to write before this one noticed, or the last answer was lost with it.
    this.#unseen = true;
  }
}
