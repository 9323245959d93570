import {
  type Command,
  type ItemCommand,
  nameOf,
  type RetentionCommand,
  type ScriptCommand,
  type ScriptStep,
  type WantedScope,
} from './commands.ts';
import { anyValue, fieldsOf, markOf } from './documents.ts';
import { liveContainer, WITH_UNIQUE_KEY } from './expected.ts';
import { deadline, endingAt, type ModelContainer, type ModelLife, visibleLife } from './model.ts';
import { Random } from './random.ts';
import { withTurnsOf } from './turns.ts';
import { Divergence, fakeMachine, World } from './world.ts';

const START_MS = 1_700_000_000_500;
const CONTAINERS = ['c1', 'c2'];
const ITEMS = ['x/a', 'x/b', 'x/c', 'y/a', 'y/b', 'y/c'];
const PARTITIONS = ['x', 'y'];
const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

export interface RunReport {
  readonly seed: number;
  readonly commands: number;
  readonly crashes: number;
  readonly faults: number;
  readonly restores: number;
  /** The executed commands and events of the run, in order. */
  readonly trail: readonly string[];
}

/** The failure of a run, with its seed and its last commands. */
export class FailedRun extends Error {
  override readonly name = 'FailedRun';
}

/**
 * Executes random commands on the store and on the model. All randomness comes from the seed, so a run can be repeated.
 *
 * @throws {FailedRun} with the seed, the last commands and the cause
 */
export function simulate(seed: number, length = 60): Promise<RunReport> {
  return withTurnsOf(seed, () => simulated(seed, length));
}

async function simulated(seed: number, length: number): Promise<RunReport> {
  const random = new Random(seed);
  const trail: string[] = [];
  // One run in three uses the guarded clock, on a machine whose clocks jump.
  const world = await World.open(random, random.chance(1 / 3) ? fakeMachine(START_MS) : START_MS);
  const run = new Run(random, world, trail);
  try {
    await run.begin();
    for (let index = 0; index < length; index++) await run.step();
    await run.end();
    return { seed, commands: length, crashes: run.crashes, faults: run.faults, restores: run.restores, trail };
  } catch (error) {
    const cause = error as Error;
    const what = cause instanceof Divergence ? cause.message : (cause.stack ?? cause.message);
    throw new FailedRun(
      `seed ${seed}: ${what}\n  last commands:\n  ${trail.slice(-25).join('\n  ')}\n  again: npm run simulate -- --seed ${seed} --count 1`,
      { cause },
    );
  } finally {
    await world.close().catch(() => {});
  }
}

class Run {
  readonly #random: Random;
  readonly #world: World;
  readonly #trail: string[];
  #value = 0;
  crashes = 0;
  faults = 0;
  restores = 0;

  constructor(random: Random, world: World, trail: string[]) {
    this.#random = random;
    this.#world = world;
    this.#trail = trail;
  }

  async begin(): Promise<void> {
    for (const container of CONTAINERS) {
      await this.#do(this.#createContainer(container));
    }
  }

  async end(): Promise<void> {
    if (this.#world.held) await this.#world.confirmClock();
    await this.#world.run({ kind: 'purge' });
    await this.#world.checkPurged();
    await this.#world.check();
    await this.#world.restart();
    await this.#world.check();
  }

  async step(): Promise<void> {
    const random = this.#random;
    const what = random.weighted({
      command: 32,
      batch: 4,
      script: 4,
      overtake: 3,
      partition: 1,
      retention: 8,
      advance: 14,
      race: 6,
      policy: 7,
      purge: 6,
      check: 5,
      crash: 5,
      fault: 5,
      restart: 2,
      rebuild: 1.5,
      clock: 3,
      backup: 2,
      restore: 2,
    });
    switch (what) {
      case 'command':
        return this.#do(this.#itemCommand());
      case 'batch':
        return this.#do(this.#batch());
      case 'script':
        return this.#do(this.#script());
      case 'overtake': {
        const command = this.#itemCommand();
        const { container, item } = command;
        const script = this.#script(container, nameOf(item).partition, item);
        const look = { kind: 'read', item, bySelf: false } as const;
        return this.#do({ ...script, steps: [look, ...script.steps] }, command);
      }
      case 'partition':
        return this.#do(this.#deletePartition());
      case 'retention': {
        const command = this.#retention();
        if ((command.kind === 'recover' || command.kind === 'read-ended') && random.chance(0.7)) {
          await this.#do({ kind: 'delete', container: command.container, item: command.item });
        }
        return this.#do(command);
      }
      case 'race': {
        const first = random.chance(0.25) ? this.#retention() : this.#itemCommand();
        const second = random.chance(0.25)
          ? ({ kind: 'purge' } as const)
          : random.weighted({ item: 6, others: 3 }) === 'item'
            ? this.#itemCommand()
            : this.#besideItem();
        // Most often, both commands are about the same item.
        const same =
          'item' in first && 'item' in second && random.chance(0.8)
            ? { ...second, container: first.container, item: first.item, ...sameDocument(first.item, second) }
            : second;
        // After a recovery by policy, the recovered lives are counted in the store. A second recovery would add to the count.
        const recoveries = [first, same].filter(({ kind }) => kind === 'recover' || kind === 'recover-policy');
        return recoveries.length === 2 ? this.#do(first) : this.#do(first, same);
      }
      case 'policy': {
        const command = await this.#policyCommand();
        return command === undefined ? undefined : this.#changePolicy(command);
      }
      case 'advance':
        return this.#advance();
      case 'purge':
        await this.#do({ kind: 'purge' });
        if (!this.#world.held && random.chance(0.7)) {
          this.#note('check what the purge left');
          await this.#world.checkPurged();
        }
        return;
      case 'check':
        this.#note('check');
        return this.#world.check();
      case 'rebuild':
        return this.#do({ kind: 'rebuild' });
      case 'crash':
        return this.#crash();
      case 'fault':
        return this.#fault();
      case 'restart':
        return this.#restart();
      case 'clock':
        return this.#clock();
      case 'backup':
        return this.#do(this.#backup(), ...this.#besideBackup());
      case 'restore':
        return this.#restore();
    }
  }

  #backup(): Command {
    return { kind: 'backup', keptSeconds: this.#random.pick([60, 3_600, 30 * 86_400, 4_000 * 86_400]) };
  }

  /** Commands that run concurrently with a backup. */
  #besideBackup(): Command[] {
    const what = this.#random.weighted({ nothing: 5, item: 4, two: 2, purge: 3, retention: 3, others: 2 });
    if (what === 'nothing') return [];
    if (what === 'purge') return [{ kind: 'purge' }];
    if (what === 'item') return [this.#itemCommand()];
    if (what === 'two') return [this.#itemCommand(), this.#itemCommand()];
    // The number of lives that a hold came too late for is checked only if nothing runs concurrently.
    const command = what === 'retention' ? this.#retention() : this.#besideItem();
    return command.kind === 'place-hold' ? [] : [command];
  }

  async #restore(): Promise<void> {
    const random = this.#random;
    const count = this.#world.restorable;
    if (count === 0) return;
    const index = random.chance(0.6) ? count - 1 : random.int(0, count - 1);
    const options = {
      withLaterKeys: random.chance(0.2),
      ...(random.chance(0.3) ? { crashAtStep: random.int(1, random.pick([30, 90])) } : {}),
    };
    this.#note(`restore backup ${index} ${JSON.stringify(options)}`);
    this.restores += 1;
    await this.#world.restore(index, options);
    this.#note('restored');
    await this.#world.check();
    await this.#world.checkPurged();
  }

  #note(what: string): void {
    this.#trail.push(`${this.#world.now()} ${what}`);
  }

  async #do(...commands: Command[]): Promise<void> {
    this.#note(commands.map((command) => JSON.stringify(command)).join(' beside '));
    await this.#world.run(...commands);
  }

  /** Some commands that change the store. */
  async #anyCommands(): Promise<Command[]> {
    const what = this.#random.weighted({
      item: 5,
      race: 2,
      purge: 5,
      policy: 2,
      rebuild: 1,
      batch: 3,
      script: 3,
      partition: 1,
      retention: 4,
      keeping: 2,
      backup: 1,
    });
    if (what === 'retention') return [this.#retention()];
    if (what === 'keeping') return [this.#retention(), { kind: 'purge' }];
    if (what === 'backup') return [this.#backup(), ...this.#besideBackup()];
    if (what === 'batch') return [this.#batch()];
    if (what === 'script') return [this.#script()];
    if (what === 'partition') return [this.#deletePartition()];
    if (what === 'purge' || what === 'rebuild') return [{ kind: what }];
    if (what === 'policy') {
      const command = await this.#policyCommand();
      return command === undefined ? [] : [command];
    }
    if (what === 'race') return [this.#itemCommand(), this.#itemCommand()];
    return [this.#itemCommand()];
  }

  async #crash(): Promise<void> {
    const commands = await this.#anyCommands();
    if (commands.length === 0 || this.#world.held) return;
    const atStep = this.#random.int(1, commands[0]!.kind === 'purge' ? 40 : 12);
    this.#note(`crash at step ${atStep} of ${commands.map((command) => JSON.stringify(command)).join(' beside ')}`);
    const { crashed } = await this.#world.runAndCrash(atStep, ...commands);
    if (!crashed) return;
    this.crashes += 1;
    await this.#world.check();
  }

  async #fault(): Promise<void> {
    const commands = (await this.#anyCommands()).filter((command) => command.kind !== 'rebuild');
    if (commands.length === 0 || this.#world.held) return;
    const write = this.#random.int(0, commands[0]!.kind === 'purge' ? 12 : 2);
    const when = this.#random.pick(['before', 'after'] as const);
    this.#note(
      `the log fails ${when} write ${write} of ${commands.map((command) => JSON.stringify(command)).join(' beside ')}`,
    );
    this.faults += 1;
    await this.#world.runWithFault(write, when, ...commands);
    await this.#world.check();
  }

  /** Changes a policy, and sometimes recovers what the change made expire. */
  async #changePolicy(command: Command): Promise<void> {
    await this.#do(command);
    if ((command.kind !== 'policy' && command.kind !== 'policy-from') || !this.#random.chance(0.4)) return;
    if (command.kind === 'policy-from' && !this.#world.held) {
      await this.#world.advance(Math.max(0, command.fromMs - this.#world.now()));
    }
    if (this.#random.chance(0.3)) await this.#do({ kind: 'purge' });
    const version = liveContainer(this.#world.model, command.container)?.policyVersions ?? 1;
    await this.#do({ kind: 'recover-policy', container: command.container, version });
  }

  async #restart(): Promise<void> {
    const setBy = this.#random.chance(0.4) ? this.#random.pick([-HOUR, -7_500, -3_000, 2_000, MINUTE]) : 0;
    this.#note(`restart, the wall clock set by ${setBy} ms`);
    await this.#world.restart(setBy);
    await this.#world.check();
    if (this.#world.held && this.#random.chance(0.5)) {
      this.#note('confirm the clock');
      await this.#world.confirmClock();
    }
  }

  async #clock(): Promise<void> {
    const random = this.#random;
    const leap = random.pick([-HOUR, -6_000, -4_000, 4_000, 6_000, HOUR, 30 * DAY, 73 * 365 * DAY]);
    this.#note(`the wall clock leaps by ${leap} ms`);
    this.#world.jump(leap);
    await this.#world.check();
    for (let index = random.int(0, 3); index > 0; index--)
      await this.#do(
        random.chance(0.3) ? { kind: 'purge' } : random.chance(0.3) ? this.#retention() : this.#itemCommand(),
      );
    await this.#world.check();
    if (random.chance(0.6)) {
      this.#note('and back');
      this.#world.jump(-leap);
      await this.#world.check();
    } else if (this.#world.held) {
      this.#note('and is confirmed');
      await this.#world.confirmClock();
      await this.#world.check();
    }
  }

  async #advance(): Promise<void> {
    const random = this.#random;
    const nowMs = this.#world.now();
    const deadlines = this.#world.model.containers.flatMap((container) =>
      [...container.items.keys()].flatMap((item) => {
        const life = visibleLife(container, item, nowMs);
        const at = life === undefined ? undefined : deadline(container, life, nowMs);
        return at === undefined || at - nowMs > 100 * 365 * DAY ? [] : [at];
      }),
    );
    for (const { policies } of this.#world.model.containers) {
      for (const { atMs } of policies) if (atMs > nowMs) deadlines.push(atMs);
    }
    let by: number;
    // Goes to the edge of a deadline, where off-by-one errors show.
    if (deadlines.length > 0 && random.chance(0.45)) {
      by = Math.max(
        0,
        Math.min(...deadlines.slice(0, random.int(1, deadlines.length))) - nowMs + random.pick([-1, 0, 0, 1]),
      );
    } else {
      by = random.pick([
        random.int(0, 1_500),
        random.int(1, 12) * SECOND,
        random.int(1, 12) * MINUTE,
        random.int(1, 30) * HOUR,
        ...(random.chance(0.1) ? [random.int(1, 400) * DAY] : []),
      ]);
    }
    this.#note(`${by} ms pass`);
    await this.#world.advance(by);
    if (random.chance(0.5)) await this.#world.check();
  }

  #createContainer(container: string): Command {
    return { kind: 'create-container', container, policy: this.#policy(), clear: this.#random.chance(0.5) };
  }

  #policy(): number | null {
    return this.#random.pick([null, null, -1, 1, 2, 5, 10, 60, 600, 86_400, 2_147_483_647]);
  }

  async #policyCommand(): Promise<Command | undefined> {
    const random = this.#random;
    const container = random.pick(CONTAINERS);
    const live = liveContainer(this.#world.model, container);
    if (live === undefined) return this.#createContainer(container);
    if (random.chance(0.07)) return { kind: 'delete-container', container };
    if (random.chance(0.25)) return { kind: 'grace', container, seconds: random.pick([0, 1, 60, 3_600, 86_400]) };
    if (random.chance(0.12)) {
      const brake = random.pick([
        null,
        { maxItems: 0 },
        { maxItems: 2 },
        { maxShare: 0.3 },
        { maxItems: 3, maxShare: 0.5 },
      ]);
      return { kind: 'brake', container, brake };
    }
    const isScheduled = live.policies.at(-1)!.scheduled;
    if (random.chance(isScheduled ? 0.4 : 0.03)) return { kind: 'withdraw', container };
    if (!this.#world.held && random.chance(0.7)) await this.#world.advance(random.int(1, 3));
    if (random.chance(0.7)) return { kind: 'policy', container, policy: this.#policy() };
    const laterMs = random.pick([0, SECOND, 10 * SECOND, HOUR, 30 * HOUR]);
    const fromMs = this.#world.now() + (laterMs === 0 ? 2 : laterMs);
    return { kind: 'policy-from', container, policy: this.#policy(), fromMs, confirmed: random.chance(0.6) };
  }

  #retention(): RetentionCommand {
    const random = this.#random;
    const container = random.pick(CONTAINERS);
    const within = this.#world.model.containers.findLast(({ name }) => name === container);
    const holds = within?.holds ?? [];
    const standing = holds.filter(({ released }) => !released);
    const what = random.weighted({
      place: standing.length > 0 ? 5 : 9,
      release: standing.length > 0 ? 4 : 0,
      floor: 2,
      window: 2,
      erase: 5,
      'read-ended': 2,
      recover: 6,
      policy: 3,
    });
    switch (what) {
      case 'place': {
        const hold = holds.length > 0 && random.chance(0.15) ? random.pick(holds).id : `h${++this.#value}`;
        return { kind: 'place-hold', container, hold, scope: this.#scope() };
      }
      case 'release':
        return { kind: 'release-hold', container, hold: random.pick(standing).id };
      case 'floor':
        return { kind: 'floor', container, seconds: random.pick([0, 0, 0, 1, 60, 3_600, 86_400]) };
      case 'window':
        return { kind: 'window', container, seconds: random.pick([0, 5, 600, 86_400]) };
      case 'erase': {
        const item = this.#itemWhere(within, () => true);
        return { kind: 'erase', container, item };
      }
      case 'read-ended':
      case 'recover': {
        const nowMs = this.#world.now();
        const ended = (life: ModelLife) => life.erased === 'no' && endingAt(within!, life, nowMs) !== undefined;
        const some = [...(within?.items.values() ?? [])].some((lives) => ended(lives.at(-1)!));
        const item = this.#itemWhere(within, some ? ended : (life) => life.erased === 'no');
        return { kind: what, container, item, ...(random.chance(0.2) ? { life: random.int(0, 2) } : {}) };
      }
      case 'policy': {
        const versions = within?.policyVersions ?? 1;
        return { kind: 'recover-policy', container, version: random.int(Math.max(1, versions - 1), versions) };
      }
    }
  }

  /** Any item, but most often one whose last life satisfies the condition. */
  #itemWhere(within: ModelContainer | undefined, isSuch: (life: ModelLife) => boolean): string {
    const found = [...(within?.items ?? [])].filter(([, lives]) => isSuch(lives.at(-1)!)).map(([item]) => item);
    return found.length > 0 && this.#random.chance(0.85) ? this.#random.pick(found) : this.#random.pick(ITEMS);
  }

  #scope(): WantedScope {
    const random = this.#random;
    const kind = random.weighted({ items: 4, query: 3, 'partition-key': 2, container: 1 });
    switch (kind) {
      case 'container':
        return { kind };
      case 'partition-key':
        return { kind, partition: random.pick(PARTITIONS) };
      case 'items':
        return { kind, items: Array.from({ length: random.int(1, 3) }, () => random.pick(ITEMS)) };
      case 'query':
        return { kind, least: random.int(0, this.#value) };
    }
  }

  #batch(): Command {
    const random = this.#random;
    const container = random.pick(CONTAINERS);
    const partition = random.pick(PARTITIONS);
    const items = ITEMS.filter((item) => nameOf(item).partition === partition);
    const steps = Array.from({ length: random.int(1, 4) }, () => this.#itemCommand(container, random.pick(items)));
    return { kind: 'batch', container, steps };
  }

  /** @param about the item that most of the steps are about */
  #script(
    container = this.#random.pick(CONTAINERS),
    partition = this.#random.pick(PARTITIONS),
    about?: string,
  ): ScriptCommand {
    const random = this.#random;
    const own = ITEMS.filter((item) => nameOf(item).partition === partition);
    const oneOf = () => (about !== undefined && random.chance(0.7) ? about : random.pick(own));
    const steps = Array.from({ length: random.int(1, 6) }, () => this.#scriptStep(container, oneOf));
    return { kind: 'script', container, partition, steps, fails: random.chance(0.1) };
  }

  #scriptStep(container: string, oneOf: () => string): ScriptStep {
    const random = this.#random;
    const what = random.weighted({ create: 3, upsert: 4, replace: 4, delete: 3, read: 3, list: 1, query: 1 });
    const pageSize = random.pick([1, 2, 100]);
    if (what === 'list') return { kind: what, pageSize };
    if (what === 'query') return { kind: what, pageSize, least: random.int(0, this.#value) };
    const item = oneOf();
    const ofItem = { item, bySelf: random.chance(0.3) };
    if (what === 'read') return { kind: what, ...ofItem };
    const guard = random.pick([undefined, undefined, 'shown', 'shown', 'unknown'] as const);
    const guarded = guard === undefined ? {} : { guard };
    if (what === 'delete') return { kind: what, ...ofItem, ...guarded };
    // Sometimes the document is another item's, which may be in another partition.
    const written = random.chance(0.2) ? (random.chance(0.1) ? random.pick(ITEMS) : oneOf()) : item;
    const document = {
      ...documentOf(written, random.chance(0.4) ? this.#ttl() : undefined),
      ...fieldsOf(random, ++this.#value),
      ...this.#unique(container, 0.95),
    };
    return what === 'replace' ? { kind: what, ...ofItem, document, ...guarded } : { kind: what, document };
  }

  #deletePartition(): Command {
    return {
      kind: 'delete-partition',
      container: this.#random.pick(CONTAINERS),
      partition: this.#random.pick(PARTITIONS),
    };
  }

  #besideItem(): Command {
    const what = this.#random.weighted({ batch: 1, script: 1, partition: 1, retention: 2 });
    if (what === 'retention') return this.#retention();
    if (what === 'script') return this.#script();
    return what === 'batch' ? this.#batch() : this.#deletePartition();
  }

  #itemCommand(container = this.#random.pick(CONTAINERS), given?: string): ItemCommand {
    const random = this.#random;
    const what = random.weighted({ create: 3, upsert: 4, replace: 2, patch: 3, delete: 2 });
    const within = liveContainer(this.#world.model, container);
    const nowMs = this.#world.now();
    const item =
      given ??
      (what === 'create' || what === 'upsert' || random.chance(0.5)
        ? random.pick(ITEMS)
        : this.#itemWhere(within, (life) => endingAt(within!, life, nowMs) === undefined));
    if (what === 'delete') {
      return {
        kind: 'delete',
        container,
        item,
        ...(random.chance(0.2) ? { ifMatch: this.#etag(container, item) } : {}),
      };
    }
    if (what === 'patch') {
      const remove = random.chance(0.35) ? { remove: random.pick(['ttl', 's', 'o']) } : {};
      const set = {
        ...markOf(++this.#value),
        ...(random.chance(0.4) ? { ttl: this.#ttl() } : {}),
        ...(random.chance(0.4) ? { s: anyValue(random) } : {}),
        ...(random.chance(0.2) ? { o: { n: anyValue(random) } } : {}),
        ...this.#unique(container, 0.4),
      };
      const changed = Object.fromEntries(Object.entries(set).filter(([name]) => name !== remove.remove));
      return { kind: 'patch', container, item, set: changed, ...remove };
    }
    const document = {
      ...documentOf(item, random.chance(0.5) ? this.#ttl() : undefined),
      ...fieldsOf(random, ++this.#value),
      ...this.#unique(container, 0.9),
    };
    return {
      kind: 'write',
      operation: what,
      container,
      item,
      document,
      ...(what !== 'create' && random.chance(0.15) ? { ifMatch: this.#etag(container, item) } : {}),
      ...(what === 'upsert' && random.chance(0.1) ? { ifNoneMatch: '*' as const } : {}),
    };
  }

  /** A value of the unique key, if the container has one. There are few values, so that they often conflict. */
  #unique(container: string, chance: number): { readonly u?: unknown } {
    if (container !== WITH_UNIQUE_KEY || !this.#random.chance(chance)) return {};
    return { u: this.#random.pick([1, 2, 3, '1', null]) };
  }

  #ttl(): unknown {
    return this.#random.pick([1, 2, 3, 5, 10, 60, 3_600, 2_147_483_647, -1, -1, 0, -2, null, 1.5, '5', 2_147_483_648]);
  }

  #etag(container: string, item: string): string {
    const live: ModelContainer | undefined = liveContainer(this.#world.model, container);
    const life = live === undefined ? undefined : visibleLife(live, item, this.#world.now());
    return life !== undefined && this.#random.chance(0.7)
      ? life.writes.at(-1)!.etag
      : '"00000000-0000-4000-8000-000000000000"';
  }
}

function documentOf(item: string, ttl: unknown): Readonly<Record<string, unknown>> {
  const [pk, id] = item.split('/');
  return { id, pk, ...(ttl === undefined ? {} : { ttl }) };
}

/** A write's document contains the item's name. So if a write is moved to another item, its document must change. */
function sameDocument(item: string, command: Command): { document?: Readonly<Record<string, unknown>> } {
  if (command.kind !== 'write') return {};
  const [pk, id] = item.split('/');
  return { document: { ...command.document, id, pk } };
}
