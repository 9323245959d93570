import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { ceilingOf, type Throughput } from '@epitaph/core/throughput/throughput.ts';
import type { PurgeBudget } from '@epitaph/projections/purge/budget.ts';
import { charge } from './charge.ts';
import { Budget } from './budget.ts';

/** What request units are spent on. */
export const requestUnitKinds = ['read', 'query', 'changeFeed', 'write', 'batch', 'purge'] as const;
export type RequestUnitKind = (typeof requestUnitKinds)[number];
/** What users spend, as against the purge. */
export type UserKind = Exclude<RequestUnitKind, 'purge'>;

/** What was metered of one kind since the server started. */
export interface Consumption {
  /** Operations that were carried out or refused for a reason of their own. */
  readonly operations: number;
  readonly requestUnits: number;
  /** Operations turned away with 429. */
  readonly throttled: number;
}

/** A container's throughput, budget and consumption at a moment. */
export interface RequestUnitStatus {
  /** Whose throughput the container is held to; `none` for neither: what is spent is metered and not limited. */
  readonly budget: 'container' | 'database' | 'none';
  readonly serverless: boolean;
  readonly throughput: Throughput;
  /** What users may spend at once, below zero for what was spent ahead; null without a budget. */
  readonly available: number | null;
  /** What users left over for the purge; null without a budget. */
  readonly leftOver: number | null;
  readonly consumed: Readonly<Record<RequestUnitKind, Consumption>>;
}

export interface RequestUnitsOptions {
  /** Monotonic milliseconds. */
  readonly monotonicMs: () => number;
  readonly database: (rid: string) => DatabaseState | undefined;
  /** Nothing is limited and all is metered, as in a serverless account. */
  readonly serverless?: boolean;
}

/** What becomes of an operation that asked for its budget. */
export interface Admission {
  /** Milliseconds after which to try again; 0 when the operation may run. */
  readonly waitMs: number;
  /** Told once after an operation that was admitted, also of one that was refused for a reason of its own. */
  readonly charge: (requestUnits: number) => void;
}

/** Left-overs are spent once half a second's worth is there, so that the purge works in batches. */
const PURGE_BATCH_SECONDS = 0.5;
/** What an operation is taken to cost before it is known. */
const expected: Readonly<Record<UserKind, number>> = {
  read: charge.pointRead(0),
  query: charge.query(0, 0),
  changeFeed: charge.changeFeed(0, 0),
  write: charge.write(0, 2),
  batch: 2 * charge.write(0, 2),
};
/** What an expiry is taken to cost before it is known. */
const TYPICAL_DELETE = charge.delete(0);

type Meter = Record<RequestUnitKind, { operations: number; requestUnits: number; throttled: number }>;

interface Provisioned {
  readonly rid: string;
  readonly throughput: Throughput;
}

/**
 * Who may spend how much, and who has spent what. A container with throughput of its own, or in a database that shares
 * its throughput, is held to it; what has neither is metered only. In memory: a restart begins with full budgets and
 * with meters at zero.
 */
export class RequestUnits implements PurgeBudget {
  readonly serverless: boolean;
  readonly #options: RequestUnitsOptions;
  readonly #budgets = new Map<string, Budget>();
  readonly #meters = new Map<string, Meter>();

  constructor(options: RequestUnitsOptions) {
    this.#options = options;
    this.serverless = options.serverless ?? false;
  }

  /**
   * Asked before an operation does anything. What it is expected to cost is set aside while it runs, so that many at
   * once don't all run on the same unit: who is admitted must charge what it took once, whatever comes of it.
   */
  admit(container: ContainerState, kind: UserKind): Admission {
    const meter = this.#meter(container);
    const budget = this.#budget(container);
    const waitMs = budget?.waitMs(this.#options.monotonicMs(), expected[kind]) ?? 0;
    if (waitMs > 0) meter[kind].throttled += 1;
    else budget?.spend(expected[kind]);
    return {
      waitMs,
      charge: (requestUnits) => {
        // Of the budget that it was admitted by, whatever has become of the container since.
        budget?.settle(requestUnits, expected[kind]);
        count(meter, kind, requestUnits);
      },
    };
  }

  /** For what a query works that no answer to a request charges. */
  later(container: ContainerState): (work: { readonly examined: number; readonly extraWork: number }) => void {
    const meter = this.#meter(container);
    const budget = this.#budget(container);
    return ({ examined, extraWork }) => {
      const requestUnits = charge.restOfQuery(examined, extraWork);
      budget?.spend(requestUnits);
      meter.query.requestUnits += requestUnits;
    };
  }

  affordable(container: ContainerState): number {
    const provisioned = this.#provisioned(container);
    if (provisioned === undefined) return Number.POSITIVE_INFINITY;
    const leftOver = this.#budgetOf(provisioned).leftOver(this.#options.monotonicMs());
    if (leftOver < ceilingOf(provisioned.throughput) * PURGE_BATCH_SECONDS) return 0;
    return Math.max(1, Math.floor(leftOver / TYPICAL_DELETE));
  }

  spend(container: ContainerState, bytes: number): void {
    const requestUnits = charge.delete(bytes);
    this.#budget(container)?.spendLeftOver(requestUnits);
    count(this.#meter(container), 'purge', requestUnits);
  }

  status(container: ContainerState): RequestUnitStatus {
    const provisioned = this.#provisioned(container);
    const budget = provisioned === undefined ? undefined : this.#budgetOf(provisioned);
    const nowMs = this.#options.monotonicMs();
    return {
      budget: provisioned === undefined ? 'none' : provisioned.rid === container.rid ? 'container' : 'database',
      serverless: this.serverless,
      throughput: provisioned?.throughput ?? { kind: 'none' },
      available: budget?.balance(nowMs) ?? null,
      leftOver: budget?.leftOver(nowMs) ?? null,
      consumed: this.#meters.get(container.rid) ?? newMeter(),
    };
  }

  /** What was spent, of every container that spent anything. */
  metered(): { readonly rid: string; readonly consumed: Readonly<Record<RequestUnitKind, Consumption>> }[] {
    return Array.from(this.#meters, ([rid, consumed]) => ({ rid, consumed }));
  }

  /** What is gone spends nothing more: its budget and its meter go, so that both are bounded by what is there. */
  forget(rid: string): void {
    this.#budgets.delete(rid);
    this.#meters.delete(rid);
  }

  #meter({ rid }: ContainerState): Meter {
    let meter = this.#meters.get(rid);
    if (meter === undefined) this.#meters.set(rid, (meter = newMeter()));
    return meter;
  }

  /** Whose throughput a container is held to. */
  #provisioned(container: ContainerState): Provisioned | undefined {
    if (this.serverless) return undefined;
    if (container.throughput.kind !== 'none') return container;
    const database = this.#options.database(container.databaseRid);
    return database === undefined || database.throughput.kind === 'none' ? undefined : database;
  }

  #budget(container: ContainerState): Budget | undefined {
    const provisioned = this.#provisioned(container);
    return provisioned === undefined ? undefined : this.#budgetOf(provisioned);
  }

  #budgetOf({ rid, throughput }: Provisioned): Budget {
    const rate = ceilingOf(throughput);
    const nowMs = this.#options.monotonicMs();
    let budget = this.#budgets.get(rid);
    if (budget === undefined) this.#budgets.set(rid, (budget = new Budget(rate, nowMs)));
    else budget.provision(rate, nowMs);
    return budget;
  }
}

function newMeter(): Meter {
  const none = () => ({ operations: 0, requestUnits: 0, throttled: 0 });
  return { read: none(), query: none(), changeFeed: none(), write: none(), batch: none(), purge: none() };
}

function count(meter: Meter, kind: RequestUnitKind, requestUnits: number): void {
  meter[kind].operations += 1;
  meter[kind].requestUnits += requestUnits;
}
