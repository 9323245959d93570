const ITEMS_EACH = 3;

/** The state of one item by its worker. Nobody else writes the item, so the store must agree with this. */
export interface WorkedItem {
  readonly id: string;
  /** The highest number that was sent. */
  attempted: number;
  /** The highest number that was acknowledged; 0 before the first. */
  acknowledged: number;
  acknowledgements: number;
}

/** What workers write to and read from. Each worker's later reads must see its writes. */
export interface Target {
  write(id: string, n: number): Promise<void>;
  /** The number in the item, or undefined if the item does not exist. */
  read(id: string): Promise<number | undefined>;
}

/**
 * Workers that write rising numbers, each to items of its own, and read back what they wrote. Each number is sent only once, so a write
 * that was made twice, or lost, or read stale, is noticed.
 */
export class Load {
  readonly items: WorkedItem[] = [];
  readonly failures: { readonly atMs: number; readonly tookMs: number; readonly error: unknown }[] = [];
  readonly wrong: string[] = [];
  #stopped = false;
  readonly #workers: Promise<void>[] = [];

  static start(targets: readonly Target[], { workers, prefix = '' }: { workers: number; prefix?: string }): Load {
    const load = new Load();
    for (let worker = 0; worker < workers; worker++) {
      const own = Array.from({ length: ITEMS_EACH }, (_, index) => ({
        id: `${prefix}w${worker}-${index}`,
        attempted: 0,
        acknowledged: 0,
        acknowledgements: 0,
      }));
      load.items.push(...own);
      load.#workers.push(load.#work(worker, targets, own));
    }
    return load;
  }

  get acknowledged(): number {
    return this.items.reduce((sum, item) => sum + item.acknowledgements, 0);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#workers);
  }

  /** Resolves when this many more writes were acknowledged. */
  async goesOn(writes: number, withinSeconds = 30): Promise<void> {
    const from = this.acknowledged;
    const untilMs = performance.now() + withinSeconds * 1000;
    while (this.acknowledged < from + writes) {
      if (performance.now() > untilMs) throw new Error(`no ${writes} writes in ${withinSeconds} s`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  async #work(worker: number, targets: readonly Target[], items: readonly WorkedItem[]): Promise<void> {
    for (let turn = 0; !this.#stopped; turn++) {
      const item = items[turn % items.length]!;
      const target = targets[(worker + turn) % targets.length]!;
      const startMs = performance.now();
      try {
        if (turn % 4 === 3) await this.#readBack(target, item);
        else {
          item.attempted += 1;
          const n = item.attempted;
          await target.write(item.id, n);
          item.acknowledged = n;
          item.acknowledgements += 1;
          await this.#readBack(target, item);
        }
      } catch (error) {
        this.failures.push({ atMs: startMs, tookMs: performance.now() - startMs, error });
        // A short pause, so that not all time goes into failing requests.
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
  }

  async #readBack(target: Target, item: WorkedItem): Promise<void> {
    const { acknowledged } = item;
    const n = await target.read(item.id);
    this.judge(item, n, acknowledged);
  }

  /** Notes an item that is older than what was acknowledged, or newer than what was sent. */
  judge(item: WorkedItem, n: number | undefined, acknowledged = item.acknowledged): void {
    if ((n ?? 0) < acknowledged || (n ?? 0) > item.attempted) {
      this.wrong.push(`${item.id} reads ${n}; acknowledged was ${acknowledged}, sent ${item.attempted}`);
    }
  }
}
