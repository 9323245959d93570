import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { ceilingOf, type Throughput } from '@epitaph/core/throughput/throughput.ts';
import type { PurgeBudget } from '@epitaph/projections/purge/budget.ts';
import { charge } from './charge.ts';
import { Budget } from './budget.ts';

/** The kinds of operations that spend request units. */
export const requestUnitKinds = ['read', 'query', 'changeFeed', 'write', 'batch', 'purge'] as const;
export type RequestUnitKind = (typeof requestUnitKinds)[number];
/** The kinds that users spend on; the other one is the purge. */
export type UserKind = Exclude<RequestUnitKind, 'purge'>;

/** Consumption of one kind since the start of the server. */
export interface Consumption {
  /** Operations that were carried out, or refused for another reason than the budget. */
  readonly operations: number;
  readonly requestUnits: number;
  /** Operations that were refused with 429. */
  readonly throttled: number;
}

/** A container's throughput, budget and consumption at a moment. */
export interface RequestUnitStatus {
  /** Whose throughput limits the container. With `none`, consumption is metered but not limited. */
  readonly budget: 'container' | 'database' | 'none';
  readonly serverless: boolean;
  readonly throughput: Throughput;
  /** The request units that users may spend at once; negative if more was spent than there was; null without a budget. */
  readonly available: number | null;
  /** The request units that users left over for the purge; null without a budget. */
  readonly leftOver: number | null;
  readonly consumed: Readonly<Record<RequestUnitKind, Consumption>>;
}

export interface RequestUnitsOptions {
  /** Monotonic milliseconds. */
  readonly monotonicMs: () => number;
  readonly database: (rid: string) => DatabaseState | undefined;
  /** If true, everything is metered and nothing is limited, as in a serverless account. */
  readonly serverless?: boolean;
}

/** The answer of a budget to an operation. */
export interface Admission {
  /** Milliseconds after which to try again; 0 if the operation may run. */
  readonly waitMs: number;
  /** Must be called once after an operation that was admitted, also if it failed. */
  readonly charge: (requestUnits: number) => void;
}

/** The purge spends left-over units only when those of half a second have accumulated, so that it works in batches. */
const PURGE_BATCH_SECONDS = 0.5;
/** The cost of an operation that is assumed before it is known. */
const expected: Readonly<Record<UserKind, number>> = {
  read: charge.pointRead(0),
  query: charge.query(0, 0),
  changeFeed: charge.changeFeed(0, 0),
  write: charge.write(0, 2),
  batch: 2 * charge.write(0, 2),
};
/** The cost of an expiry that is assumed before it is known. */
const TYPICAL_DELETE = charge.delete(0);

type Meter = Record<RequestUnitKind, { operations: number; requestUnits: number; throttled: number }>;

interface Provisioned {
  readonly rid: string;
  readonly throughput: Throughput;
}

/**
 * The budgets and the consumption of all containers. A container with throughput of its own, or in a database with shared
 * throughput, is limited to it; all others are only metered. This is kept in memory only: after a restart, budgets are
 * full and meters are zero.
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
   * Must be called before an operation does anything. The expected cost is set aside while the operation runs, so that
   * many at once don't all run on the same unit. An admitted operation must call `charge` once, however it ends.
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
        // Taken from the budget that admitted it, even if the container has another one by now.
        budget?.settle(requestUnits, expected[kind]);
        count(meter, kind, requestUnits);
      },
    };
  }

  /** Returns a function that charges the work of a query which no answer charges. */
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

  /** The consumption of each container that has been used since the start. */
  metered(): { readonly rid: string; readonly consumed: Readonly<Record<RequestUnitKind, Consumption>> }[] {
    return Array.from(this.#meters, ([rid, consumed]) => ({ rid, consumed }));
  }

  /** Removes budget and meter of a deleted container or database, so that their number is bounded. */
  forget(rid: string): void {
    this.#budgets.delete(rid);
    this.#meters.delete(rid);
  }

  #meter({ rid }: ContainerState): Meter {
    let meter = this.#meters.get(rid);
    if (meter === undefined) this.#meters.set(rid, (meter = newMeter()));
    return meter;
  }

  /** The container or database whose throughput limits a container. */
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
