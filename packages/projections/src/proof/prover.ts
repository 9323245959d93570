import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { sameBytes } from '@epitaph/core/proof/certificate.ts';
import { isPermanentFact } from '@epitaph/core/proof/leaf.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { UnreadableEvent, WHEN_DAMAGED } from '@epitaph/core/upcast.ts';
import { defer, Observable, retry, type Subscription } from '../rxjs.ts';
import { readableRestores, type RecordedRestore } from '../purge/vault-copies.ts';
import { factHash, type Leaf, ProofTree } from './proof-tree.ts';
import { type ProofStore, TILE_HASHES } from './proof-store.ts';

/** After this many events without a fact, the tree's position in the log is written nevertheless. */
const MARK_EVERY_EVENTS = 10_000;
const PAGE_EVENTS = 1_000;
/** How long the prover waits after a fault before it continues from the tree's position. */
const RETRY_DELAY_MS = 1_000;

/** A fact with its proof. */
export interface ProvenFact {
  readonly event: RecordedEvent;
  readonly leaf: number;
  readonly path: readonly Uint8Array[];
}

/** Keeps the tree of permanent facts up to date with the log. A separate projection, which no client waits for. */
export class Prover {
  readonly #log: EventLog;
  readonly #store: ProofStore;
  #tree: ProofTree;
  readonly #onFault: (error: unknown) => void;
  #subscription: Subscription | undefined;
  #ended: Promise<void> = Promise.resolve();
  /**
   * Facts that are not in the tree yet. `#seen` is how far the log was read for them. They are collected until they are
   * asked for or fill a tile: writing one costs as much as writing many, and what a crash loses is in the log.
   */
  #gathered: Leaf[] = [];
  #seen: number;
  #unmarked = 0;
  #waiters: {
    readonly position: number;
    readonly resolve: () => void;
    readonly reject: (error: unknown) => void;
  }[] = [];

  constructor(log: EventLog, store: ProofStore, onFault: (error: unknown) => void) {
    this.#log = log;
    this.#store = store;
    this.#tree = ProofTree.open(store);
    this.#seen = this.#tree.position;
    this.#onFault = onFault;
  }

  get tree(): ProofTree {
    return this.#tree;
  }

  /** Deletes a tree that is damaged or belongs to another log. To be called before {@link start}. */
  async prepare(): Promise<void> {
    if (!this.#tree.isWhole) {
      this.#makeAnew('the proof tree has lost leaves: it is built again from the log');
    } else if (!(await this.#isOfThisLog())) {
      this.#makeAnew(
        'the log was restored to an earlier moment than the proof tree. The tree is built again, and checkpoints that were signed after that moment do not match it',
      );
    }
  }

  #makeAnew(why: string): void {
    this.#onFault(new Error(why));
    this.#store.clear();
    this.#tree = ProofTree.open(this.#store);
    this.#seen = 0;
  }

  /** Begins to follow the log, from the tree's position. */
  start(): void {
    this.#subscription = defer(() => this.#follow())
      .pipe(retry({ delay: RETRY_DELAY_MS, resetOnSuccess: true }))
      .subscribe();
  }

  /**
   * False if the tree has facts of a log that does not exist any more, because it was restored to an earlier moment and
   * gives out the same positions again. A fact that was changed in its place is for fsck to find, and the tree is kept.
   */
  async #isOfThisLog(): Promise<boolean> {
    const { position } = this.#tree;
    if (position > (await this.#log.head())) return false;
    // If the record of a restore can't be read, the tree is kept. If it belongs to another log, fsck reports that, too.
    for (const restore of await readableRestores(this.#log)) {
      if (position > restore.logPosition && !(await this.#hasRestore(restore))) return false;
    }
    return true;
  }

  /** Whether the tree has the leaf of a restore's record. */
  async #hasRestore({ recorded, logPosition }: RecordedRestore): Promise<boolean> {
    // Up to this position both logs are the same. After it, positions in the tree may not exist in the log.
    const tile = this.#tree.tileAt(logPosition);
    let leaf = tile === undefined ? 0 : tile.firstLeaf + 1;
    for (let after = tile?.firstPosition ?? 0; ;) {
      const events = await this.#log.readAll(after, PAGE_EVENTS, { withBodies: false });
      for (const event of events.filter((one) => isPermanentFact(one))) {
        if (event.position === recorded.position) {
          return leaf < this.#tree.size && sameBytes(this.#tree.leaf(leaf), factHash(event));
        }
        leaf += 1;
      }
      if (events.length === 0) return false;
      after = events.at(-1)!.position;
    }
  }

  async stop(): Promise<void> {
    this.#subscription?.unsubscribe();
    await this.#ended;
    this.#giveUp(new StorageUnavailable('the proofs are stopped'));
    try {
      this.#write();
    } catch (error) {
      // For example on a full disk. The next start reads again what this write would have saved it.
      this.#onFault(error);
    }
  }

  #follow(): Observable<never> {
    return new Observable<never>((subscriber) => {
      this.#seen = this.#tree.position;
      this.#gathered = [];
      const fail = (error: unknown): void => {
        this.#onFault(error);
        this.#giveUp(error);
        subscriber.error(error);
      };
      const carefully = (work: () => void): void => {
        try {
          work();
        } catch (error) {
          fail(error);
        }
      };
      const subscription = this.#log.subscribe(this.#seen, {
        onEvents: async (events) => {
          carefully(() => this.#take(events));
        },
        onCaughtUp: (position) => carefully(() => this.#reached(position)),
        onError: fail,
      });
      return () => {
        this.#ended = subscription.unsubscribe();
      };
    });
  }

  /**
   * Resolves when every fact up to a position is in the tree.
   *
   * @throws the error that keeps the tree from being written, or the log from being read
   */
  async reached(position: number): Promise<void> {
    if (position <= this.#seen) this.#write();
    else await new Promise<void>((resolve, reject) => this.#waiters.push({ position, resolve, reject }));
  }

  /** No caller is kept waiting for what may never come. A caller that still wants it asks again. */
  #giveUp(error: unknown): void {
    for (const { reject } of this.#waiters.splice(0)) reject(error);
  }

  /**
   * Proves that facts are in the tree with `size` leaves.
   *
   * @throws {UnreadableEvent} for a fact that is not as it was recorded
   */
  prove(facts: readonly RecordedEvent[], size: number): ProvenFact[] {
    return facts.map((event) => {
      const leaf = this.#tree.leafOf(event.position, factHash(event));
      if (leaf === undefined || leaf >= size) {
        throw new UnreadableEvent(
          `${event.type} at ${event.position} is damaged: it differs from the proof tree. ${WHEN_DAMAGED}`,
        );
      }
      return { event, leaf, path: this.#tree.inclusion(leaf, size) };
    });
  }

  #take(events: readonly RecordedEvent[]): void {
    const facts = events
      .filter((event) => isPermanentFact(event))
      .map((event) => ({ hash: factHash(event), position: event.position }));
    this.#gathered.push(...facts);
    this.#unmarked += events.length;
    this.#reached(events.at(-1)!.position);
    if (this.#gathered.length >= TILE_HASHES || this.#unmarked >= MARK_EVERY_EVENTS) this.#write();
  }

  #reached(position: number): void {
    if (position <= this.#seen) return;
    this.#seen = position;
    const waited = this.#waiters.filter((waiter) => waiter.position <= position);
    if (waited.length === 0) return;
    this.#write();
    this.#waiters = this.#waiters.filter((waiter) => waiter.position > position);
    for (const { resolve } of waited) resolve();
  }

  /** Writes the collected facts to the tree, and how far the log was read. */
  #write(): void {
    if (this.#seen <= this.#tree.position) return;
    this.#tree.append(this.#gathered, this.#seen);
    this.#gathered = [];
    this.#unmarked = 0;
  }
}
