import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type ClockSources, GuardedClock } from '@epitaph/core/clock.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { RecordedHold } from '@epitaph/core/retention/hold-register.ts';
import { turn } from '@epitaph/core/turn.ts';
import { restoreStore } from '@epitaph/api/cli/restore-store.ts';
import type { FeedStart } from '@epitaph/api/store/api/change-feed-api.ts';
import type { Disappearance, HistoryEntry } from '@epitaph/api/store/api/history-api.ts';
import type { BatchOperation, ShownItem } from '@epitaph/api/store/api/items-api.ts';
import type { TakenBackup, DifferingPart } from '@epitaph/api/store/api/operations-api.ts';
import type { HoldRequest } from '@epitaph/api/store/api/retention-api.ts';
import { UnusableFile } from '@epitaph/storage/sqlite/database.ts';
import { DEFINITION } from '../support/definition.ts';
import {
  type Command,
  isRetentionCommand,
  isStoreCommand,
  type ItemCommand,
  nameOf,
  type Outcome,
  type RetentionCommand,
  type ScriptCommand,
  type WantedScope,
} from './commands.ts';
import { anyCondition, CLEAR_PATHS, clearValues, type Document, marksIn, matches, toSql } from './documents.ts';
import { copyAsKilled, type Embedded, InjectedFault, newFolder, openEmbedded, removeFolder } from './embedded.ts';
import {
  alternatives,
  expectOutcome,
  expectRefusal,
  liveContainer,
  tooLateFor,
  withFound,
  WITH_UNIQUE_KEY,
  writesNothing,
} from './expected.ts';
import {
  applyPurge,
  applyRestore,
  endingAt,
  isInGrace,
  lifeAt,
  lifeName,
  livesOf,
  type Model,
  type ModelContainer,
  type ModelLife,
  secondsToLive,
  uniqueValue,
  visibleLife,
} from './model.ts';
import type { Random } from './random.ts';
import { runScript } from './scripts.ts';

export const DATABASE = 'db';
const REASON = 'simulated';
const definitionOf = (container: string, isClear: boolean) => ({
  ...DEFINITION,
  ...(container === WITH_UNIQUE_KEY ? { uniqueKeyPolicy: { uniqueKeys: [{ paths: ['/u'] }] } } : {}),
  epitaph: {
    // Only the container with a unique key has pseudonymous ids.
    ...(container === WITH_UNIQUE_KEY ? { pseudonymousIds: true as const } : {}),
    ...(isClear ? { clearPaths: CLEAR_PATHS } : {}),
  },
});

/** The store did something that the model does not allow. */
export class Divergence extends Error {
  override readonly name = 'Divergence';
}

/** The machine's clocks, as far as the store can see them. */
export interface FakeMachine extends ClockSources {
  wall: number;
  monotonic: number;
}

export function fakeMachine(startMs: number): FakeMachine {
  const machine: FakeMachine = {
    wall: startMs,
    monotonic: 0,
    wallMs: () => machine.wall,
    monotonicMs: () => machine.monotonic,
  };
  return machine;
}

/** A backup, with the model of the store when the backup began. */
interface ShelvedBackup {
  readonly taken: TakenBackup;
  readonly before: Model;
  /** The commands that ran concurrently. The backup may contain any part of their effects. */
  readonly underWay: readonly Command[];
  readonly nowMs: number;
  readonly tooLate: ReadonlyMap<string, number>;
  /** The number of restores before the backup. */
  readonly course: number;
}

/** The read-model lag of a store's openings, in turn. There is no time limit, so changes are applied only when someone reads. */
const READ_MODEL_LAGS = [{ changes: 256, forMs: undefined }, undefined, { changes: 3, forMs: undefined }];

/** A store, and the model of its expected state. Every command is executed on both, and both must agree. */
export class World {
  model: Model = { containers: [] };
  readonly #random: Random;
  readonly #time: number | FakeMachine;
  #folder = newFolder('world');
  #embedded!: Embedded;
  #openings = 0;
  #onStep: ((step: string) => void) | undefined;
  #lastNowMs = 0;
  /** True after a purge was interrupted: a life may be erased although its erasure is not recorded. */
  #unfinished = false;
  #tooLate = new Map<string, number>();
  /** The folder of the backups. It is separate from the data folder, which a crash or a restore replaces by another. */
  readonly #shelf = newFolder('shelf');
  #begun = 0;
  readonly #backups: ShelvedBackup[] = [];
  #course = 0;
  /** Lives that were erased in a history that a restore has discarded. */
  readonly #erasedElsewhere = new Set<string>();
  /** The same for lives whose keys were destroyed by an interrupted purge. The ledger may contain them or not. */
  readonly #begunElsewhere = new Set<string>();
  /** The latest end of a life that was erased before a restore. No restored store's time is before that. */
  #lastErasureMs = 0;
  /** Lives that a reader has seen as gone. No policy, restart or crash may bring one back. */
  readonly #seenGone = new Set<string>();

  constructor(random: Random, time: number | FakeMachine) {
    this.#random = random;
    this.#time = time;
  }

  static async open(random: Random, time: number | FakeMachine): Promise<World> {
    const world = new World(random, time);
    await world.#open();
    await world.#embedded.store.createDatabase(world.#caller(), DATABASE);
    return world;
  }

  get embedded(): Embedded {
    return this.#embedded;
  }

  get folder(): string {
    return this.#folder;
  }

  /** True while the clock is held: nothing may be stamped or erased. */
  get held(): boolean {
    const { clock } = this.#embedded;
    return clock instanceof GuardedClock && clock.jump() !== undefined;
  }

  /** The store's time. Asserts that it never goes back, even after restarts and crashes. */
  now(): number {
    const nowMs = this.#embedded.store.nowMs();
    if (nowMs < this.#lastNowMs) throw new Divergence(`time went back from ${this.#lastNowMs} to ${nowMs}`);
    this.#lastNowMs = nowMs;
    return nowMs;
  }

  /** Advances the time, on either kind of clock. */
  async advance(milliseconds: number): Promise<void> {
    if (typeof this.#time === 'number') await this.#embedded.store.advanceClock(milliseconds);
    else {
      this.#time.wall += milliseconds;
      this.#time.monotonic += milliseconds;
    }
    this.now();
  }

  /** Makes the wall clock jump, but not the monotonic one. Beyond the tolerance, the store's clock must be held and not follow. */
  jump(milliseconds: number): void {
    if (typeof this.#time === 'number') return;
    const wasHeld = this.held;
    const before = this.now();
    this.#time.wall += milliseconds;
    if (wasHeld || Math.abs(milliseconds) <= 5_000) return;
    if (!this.held) throw new Divergence(`the wall clock leapt by ${milliseconds} ms and time is not held`);
    if (this.now() !== before) throw new Divergence(`time followed a leap from ${before} to ${this.now()}`);
  }

  async confirmClock(): Promise<void> {
    await this.#embedded.store.confirmClock();
    if (this.held) throw new Divergence('time is held although it was confirmed');
    this.now();
  }

  /** Closes the store regularly and opens it again. The wall clock may be changed meanwhile. */
  async restart(setWallByMs = 0): Promise<void> {
    await this.#embedded.store.close();
    if (typeof this.#time !== 'number') {
      this.#time.wall += setWallByMs;
      this.#time.monotonic = this.#random.int(0, 1_000_000);
    }
    await this.#open();
    // The recorded time mark may be a lease ahead, and drift within the tolerance is ignored.
    if (typeof this.#time !== 'number' && this.#time.wall + 6_000 < this.#lastNowMs && !this.held) {
      throw new Divergence('the clock was set back while the store was down, and time is not held');
    }
    this.now();
  }

  async close(): Promise<void> {
    try {
      await this.#embedded.store.close();
    } finally {
      removeFolder(this.#folder);
      removeFolder(this.#shelf);
    }
  }

  /** The number of backups that can be restored. It is 0 with a machine's clock, since the restore command reads the real one. */
  get restorable(): number {
    return typeof this.#time === 'number' ? this.#backups.length : 0;
  }

  /** Runs commands concurrently. Their outcomes must be those of some sequential order of them. */
  async run(...commands: Command[]): Promise<Outcome[]> {
    const nowMs = this.now();
    const before = this.model;
    const tooLate = new Map(this.#tooLate);
    const outcomes = await Promise.all(commands.map((command) => this.#performAmong(commands, command)));
    await this.#account(commands, outcomes, nowMs);
    const isErased = commands.length === 1 && commands[0]!.kind === 'erase' && outcomes[0]!.code === 'ok';
    if (isErased && !this.#unfinished) this.#checkFiles();
    for (const { backup: taken } of outcomes) {
      if (taken !== undefined)
        this.#backups.push({ taken, before, underWay: commands, nowMs, tooLate, course: this.#course });
    }
    return outcomes;
  }

  /** Runs commands during which the log fails once. Unknown outcomes are found out afterwards by reading the store. */
  async runWithFault(write: number, when: 'before' | 'after', ...commands: Command[]): Promise<void> {
    const nowMs = this.now();
    const before = structuredClone(this.model);
    this.#embedded.log.failAt(write, when);
    const settled = await Promise.allSettled(commands.map((command) => this.#perform(command)));
    this.#embedded.log.disarm();
    if (settled.every((result) => result.status === 'fulfilled')) {
      return await this.#account(
        commands,
        settled.map((result) => result.value),
        nowMs,
      );
    }
    for (const result of settled) {
      if (result.status === 'rejected' && !(result.reason instanceof InjectedFault)) throw result.reason;
    }
    await this.#projected();
    this.#unfinished = true;
    const acknowledged = commands.filter((_, index) => wasDone(settled[index]!));
    const refused = commands.filter((_, index) => wasRefused(settled[index]!));
    // Until a failed retention command is repeated, vault and log may disagree on what is kept.
    const again = commands.filter(
      (command, index) => settled[index]!.status === 'rejected' && isRetentionCommand(command),
    );
    for (const [index, command] of again.entries()) {
      // The repetition is another object, since both may have taken effect.
      again[index] = { ...command };
      const { code } = await this.#perform(command);
      (code === 'ok' ? acknowledged : refused).push(again[index]);
    }
    await this.#resolve(before, [...commands, ...again], acknowledged, refused, nowMs);
  }

  /** Runs commands, simulates a kill of the process at their n-th step, if there are so many, and opens the folder that is left. */
  async runAndCrash(atStep: number, ...commands: Command[]): Promise<{ readonly crashed: boolean }> {
    const nowMs = this.now();
    const before = structuredClone(this.model);
    const next = newFolder('world');
    const done = new Set<number>();
    let acknowledged: readonly number[] | undefined;
    let steps = 0;
    this.#onStep = () => {
      steps += 1;
      if (steps !== atStep) return;
      copyAsKilled(this.#folder, next);
      acknowledged = [...done];
    };
    const outcomes = await Promise.all(
      commands.map(async (command, index) => {
        const outcome = await this.#perform(command);
        if (outcome.code === 'ok') done.add(index);
        return outcome;
      }),
    );
    this.#onStep = undefined;
    if (acknowledged === undefined) {
      removeFolder(next);
      await this.#account(commands, outcomes, nowMs);
      return { crashed: false };
    }
    // The store's writes after that instant are in the old folder, which is removed.
    await this.#embedded.store.close();
    removeFolder(this.#folder);
    this.#folder = next;
    // After a crash, the machine's clock may be set back.
    if (typeof this.#time !== 'number' && this.#random.chance(0.3)) {
      this.#time.wall -= 3_600_000;
      this.#time.monotonic = 0;
    }
    await this.#open();
    if (this.held) await this.confirmClock();
    this.#unfinished = true;
    const known = acknowledged.map((index) => commands[index]!);
    await this.#resolve(before, commands, known, [], nowMs);
    return { crashed: true };
  }

  /** Opens a folder that a crash has left, with the model from before the commands that were running. */
  static async adopt(
    random: Random,
    time: number,
    folder: string,
    before: Model,
    underWay: readonly Command[],
    nowMs: number,
    onStep?: (step: string) => void,
  ): Promise<World> {
    const world = new World(random, time);
    removeFolder(world.#folder);
    world.#folder = folder;
    world.#onStep = onStep;
    await world.#open();
    world.#onStep = undefined;
    world.#unfinished = true;
    await world.#resolve(before, underWay, [], [], nowMs);
    return world;
  }

  watchSteps(onStep: ((step: string) => void) | undefined): void {
    this.#onStep = onStep;
  }

  async #open(): Promise<void> {
    this.#embedded = await openEmbedded({
      folder: this.#folder,
      time: this.#time,
      newId: () => this.#random.uuid(),
      onStep: (step) => this.#onStep?.(step),
      readModelLag: READ_MODEL_LAGS[this.#openings++ % READ_MODEL_LAGS.length],
    });
  }

  #caller() {
    return { actor: 'key:primary', correlationId: this.#random.uuid() };
  }

  async #account(commands: readonly Command[], outcomes: readonly Outcome[], nowMs: number): Promise<void> {
    if (this.held) return this.#accountHeld(commands, outcomes, nowMs);
    const reasons: string[] = [];
    const fitting: Model[] = [];
    const besidePurge = commands.length > 1 && commands.some(({ kind }) => kind === 'purge');
    // A hold by a query, or a script, may have read its items before a concurrent command and take effect after it.
    const readings = commands
      .map((command) => [command, ...(commands.length === 1 ? [] : withFound(this.model, command, nowMs))])
      .reduce<Command[][]>((all, some) => all.flatMap((one) => some.map((command) => [...one, command])), [[]]);
    const orders = permutations(commands.map((_, index) => index));
    for (const [asked, order] of readings.flatMap((reading) => orders.map((order) => [reading, order] as const))) {
      const changed = structuredClone(this.model);
      const wrong = order.flatMap((index) => {
        const expected = expectOutcome(changed, asked[index]!, nowMs, outcomes[index]!);
        return expected === undefined
          ? []
          : [`${told(commands[index]!)} came to ${outcomes[index]!.code}${heard(outcomes[index]!)}, not ${expected}`];
      });
      // The outcome "ok" of these commands does not tell their order, so the store's state is compared, too.
      if (wrong.length === 0 && commands.length > 1 && commands.some(({ kind }) => AMBIGUOUS.has(kind))) {
        const difference = await this.#differsFrom(changed, commands, besidePurge || this.#unfinished);
        if (difference !== undefined) wrong.push(difference);
      }
      if (wrong.length === 0) fitting.push(changed);
      reasons.push(...wrong);
      if (fitting.length > 0 && !besidePurge) break;
    }
    const [first] = fitting;
    if (first === undefined) throw new Divergence(`at ${nowMs}: ${reasons.join('; or ')}`);
    // Whether a concurrent purge saw what the other commands ended, kept or recorded depends on the order.
    if (besidePurge) {
      for (const [{ rid }, item, number, life] of livesOf(first)) {
        const [before, ...others] = [this.model, ...fitting].map(
          (model) => model.containers.find((one) => one.rid === rid)?.items.get(item)?.[number]?.erased ?? 'no',
        );
        if (before !== 'yes' && others.includes('yes')) life.erased = 'maybe';
      }
    }
    this.model = first;
    await this.#settleUnknown();
    const [command] = commands;
    if (commands.length === 1 && command?.kind === 'place-hold' && outcomes[0]!.code === 'ok' && !this.#unfinished) {
      const container = this.model.containers.findLast(({ name }) => name === command.container)!;
      // The number is determined when the hold is first placed. Placing the same hold again returns the same number.
      const expected = this.#tooLate.get(`${container.rid} ${command.hold}`) ?? tooLateFor(container, command.hold);
      this.#tooLate.set(`${container.rid} ${command.hold}`, expected);
      expectSame(`what ${told(command)} came too late for`, outcomes[0]!.tooLateFor, expected);
    }
  }

  /** While the clock is held, nothing may be recorded or erased. Commands that are refused anyway may be refused as usual. */
  #accountHeld(commands: readonly Command[], outcomes: readonly Outcome[], nowMs: number): void {
    for (const [index, command] of commands.entries()) {
      const { code } = outcomes[index]!;
      const isOfStore = isStoreCommand(command);
      const missing =
        !isOfStore && command.kind !== 'create-container' && liveContainer(this.model, command.container) === undefined;
      const allowed = isOfStore
        ? [command.kind === 'backup' ? 'clock-held' : 'ok']
        : isRetentionCommand(command)
          ? ['clock-held', ...expectRefusal(this.model, command, nowMs)]
          : [missing ? 'container-not-found' : 'clock-held'];
      // A script that records nothing completes.
      if (command.kind === 'script' && !missing && writesNothing(this.model, command, nowMs)) {
        allowed.push(command.fails ? 'script-failed' : 'ok');
      }
      if (!allowed.includes(code)) {
        throw new Divergence(`while time is held ${told(command)} came to ${code}, not ${allowed.join(' or ')}`);
      }
    }
  }

  /** Finds out which of the lives marked `maybe` are erased. */
  async #settleUnknown(): Promise<void> {
    for (const [container, item, number, life] of livesOf(this.model)) {
      if (life.erased === 'maybe') life.erased = (await this.#isErased(container, item, number)) ? 'yes' : 'no';
    }
  }

  async #isErased({ rid }: ModelContainer, item: string, number: number): Promise<boolean> {
    const { log, naming, vault } = this.#embedded.storage;
    const { id, partitionKey } = nameOf(item);
    const stream = `${await naming.itemStreamPrefix(rid, partitionKey, id)}.${number}`;
    const [first] = await log.readStream(stream);
    return first?.body === undefined || vault.findKey(Number(first.data['key']), stream).status !== 'there';
  }

  /** Whether the erasure of a life is recorded. */
  async #isOnRecord({ rid }: ModelContainer, item: string, number: number): Promise<boolean> {
    const { store } = this.#embedded;
    const { id, partitionKey } = nameOf(item);
    const recorded = await store.history(store.containerByRid(rid)!, id, partitionKey);
    return recorded.some(({ life, type }) => life === number && type === 'ItemPurged');
  }

  /** Executes one of several concurrent commands. Beside a script, it starts later, so that it may run between the script's steps. */
  async #performAmong(commands: readonly Command[], command: Command): Promise<Outcome> {
    const isLater = command.kind !== 'script' && commands.some(({ kind }) => kind === 'script');
    for (let turns = isLater ? this.#random.int(0, 12) : 0; turns > 0; turns--) await turn();
    return this.#perform(command);
  }

  /** Executes one command and returns its outcome. A fault of the log is thrown. */
  async #perform(command: Command): Promise<Outcome> {
    const { store } = this.#embedded;
    const caller = this.#caller();
    try {
      switch (command.kind) {
        case 'purge':
          await store.runPurge();
          return { code: 'ok' };
        case 'rebuild':
          return await this.#rebuild();
        case 'backup': {
          const folder = join(this.#shelf, String(++this.#begun));
          const backup = await store.backup(caller, { folder, vaultKeptSeconds: command.keptSeconds });
          return { code: 'ok', backup };
        }
        case 'create-container': {
          const { resource } = await store.createContainer(
            caller,
            DATABASE,
            command.container,
            definitionOf(command.container, command.clear === true),
            command.policy,
          );
          return { code: 'ok', rid: resource.rid };
        }
        case 'policy': {
          const { container, policy } = command;
          const definition = definitionOf(container, liveContainer(this.model, container)?.hasClearPaths === true);
          return ofPolicy((await store.replaceContainer(caller, DATABASE, container, definition, policy)).resource);
        }
        case 'policy-from': {
          const { policy: defaultTtl, fromMs: effectiveFromMs, confirmed } = command;
          const change = { defaultTtl, effectiveFromMs, confirmed, reason: REASON };
          return ofPolicy(await store.changeTtl(caller, DATABASE, command.container, change));
        }
        case 'withdraw':
          await store.withdrawTtl(caller, DATABASE, command.container);
          return { code: 'ok' };
        case 'brake':
          await store.setTtlBrake(caller, DATABASE, command.container, command.brake);
          return { code: 'ok' };
        case 'grace':
          await store.setPolicyGrace(caller, DATABASE, command.container, command.seconds);
          return { code: 'ok' };
        case 'delete-container': {
          const { rid } = store.container(DATABASE, command.container);
          await store.deleteContainer(caller, DATABASE, command.container);
          const atMs = store.containerByRid(rid)?.deletedAtMs ?? undefined;
          return { code: 'ok', ...(atMs === undefined ? {} : { atMs }) };
        }
        case 'delete-partition': {
          const container = store.container(DATABASE, command.container);
          await store.deletePartitionKey(caller, container, JSON.stringify([command.partition]));
          return { code: 'ok' };
        }
        case 'batch': {
          const container = store.container(DATABASE, command.container);
          const outcome = await store.batchItems(caller, container, command.steps.map(operationOf));
          if (outcome.kind === 'refused') return { code: outcome.refusal.code };
          return {
            code: 'ok',
            etags: outcome.results.map((result) => (result.kind === 'written' ? result.item.etag : undefined)),
          };
        }
        case 'script':
          return await runScript(store, caller, DATABASE, command);
        case 'write':
        case 'patch':
        case 'delete': {
          const container = store.container(DATABASE, command.container);
          const operation = operationOf(command);
          const { precondition } = operation;
          if (operation.kind === 'delete') {
            await store.deleteItem(caller, container, operation.id, operation.partitionKey, precondition);
            return { code: 'ok' };
          }
          const { resource, created } =
            operation.kind === 'write'
              ? await store.writeItem(caller, container, operation.operation, operation.item, precondition)
              : await store.patchItem(caller, container, operation.id, operation.partitionKey, operation.patch);
          return { code: 'ok', etag: resource.etag, created };
        }
        default:
          return await this.#performRetention(command);
      }
    } catch (error) {
      if (error instanceof Refusal) return { code: error.code };
      throw error;
    }
  }

  async #performRetention(command: RetentionCommand): Promise<Outcome> {
    const { store } = this.#embedded;
    const caller = this.#caller();
    const container = this.#containerFor(command);
    const { id, partitionKey } = 'item' in command ? nameOf(command.item) : { id: '', partitionKey: '' };
    switch (command.kind) {
      case 'place-hold': {
        const request = { scope: requestedScope(command.scope), reason: REASON };
        const { hold } = await store.placeHold(caller, container, command.hold, request);
        return { code: 'ok', tooLateFor: hold.tooLateFor };
      }
      case 'release-hold':
        await store.releaseHold(caller, container, command.hold, REASON);
        return { code: 'ok' };
      case 'floor':
        await store.setRetentionFloor(caller, container, command.seconds, REASON);
        return { code: 'ok' };
      case 'window':
        await store.setRecoveryWindow(caller, container, command.seconds, REASON);
        return { code: 'ok' };
      case 'erase':
        await store.eraseItem(caller, container, id, partitionKey, { reason: REASON, requestedBy: 'nobody' });
        return { code: 'ok' };
      case 'read-ended': {
        const read = await store.heldContent(caller, container, id, partitionKey, {
          reason: REASON,
          life: command.life,
        });
        const written = this.model.containers.find(({ rid }) => rid === container.rid)?.items.get(command.item);
        expectSame(told(command), JSON.parse(read.json), written?.[read.life]?.writes.at(-1)?.document);
        return { code: 'ok' };
      }
      case 'recover': {
        const recovery = { reason: REASON, life: command.life };
        const { life } = await store.recoverItem(caller, container, id, partitionKey, recovery);
        return { code: 'ok', etag: await this.#etagOf(container, command.item, life) };
      }
      case 'recover-policy': {
        const before = await this.#recoveredLives(container);
        const { recovered } = await store.recoverPolicy(caller, container, command.version, { reason: REASON });
        const since = [...(await this.#recoveredLives(container))].filter(([name]) => !before.has(name));
        if (since.length !== recovered)
          throw new Divergence(`${recovered} were recovered, and ${since.length} are there`);
        return { code: 'ok', recovered: Object.fromEntries(since.map(([name, etag]) => [name.split(' ')[0]!, etag])) };
      }
    }
  }

  /** The container with the command's name; except for recoveries, a deleted one if there is no other. */
  #containerFor({ kind, container: name }: RetentionCommand): ContainerState {
    const { store } = this.#embedded;
    const [gone] = store.deletedContainers(DATABASE, name);
    const isLive = store.listContainers(DATABASE).some((container) => container.name === name);
    return isLive || gone === undefined || kind === 'recover' || kind === 'recover-policy'
      ? store.container(DATABASE, name)
      : gone;
  }

  async #etagOf(container: ContainerState, item: string, life: number): Promise<string> {
    const { id, partitionKey } = nameOf(item);
    const entries = await this.#embedded.store.history(container, id, partitionKey);
    const first = entries.find((entry) => entry.life === life && entry.type === 'ItemRecovered');
    return `"${first?.eventId ?? ''}"`;
  }

  /** The etags of those lives of a container that began with a recovery, by item and life. */
  async #recoveredLives(container: ContainerState): Promise<Map<string, string>> {
    const found = new Map<string, string>();
    for (const item of this.model.containers.find(({ rid }) => rid === container.rid)?.items.keys() ?? []) {
      const { id, partitionKey } = nameOf(item);
      for (const { life, type, eventId } of await this.#embedded.store.history(container, id, partitionKey)) {
        if (type === 'ItemRecovered') found.set(`${item} ${life}`, `"${eventId ?? ''}"`);
      }
    }
    return found;
  }

  /**
   * True if a difference may be due to clear values after an interrupted purge. The read model has them until the erasure is
   * recorded, but a rebuilt one has them only as long as the key exists.
   */
  #mayHaveRemnants(part: DifferingPart): boolean {
    if (!this.#unfinished || part.part !== 'container') return false;
    return this.model.containers.some(({ rid, hasClearPaths }) => rid === part.rid && hasClearPaths);
  }

  async #rebuild(): Promise<Outcome> {
    const { store } = this.#embedded;
    store.startRebuild('items');
    for (;;) {
      const status = store.rebuildStatus('items')!;
      if (status.state === 'done') {
        const unexpected = status.differing?.filter((part) => !this.#mayHaveRemnants(part)) ?? [];
        if (unexpected.length > 0) throw new Divergence(`a rebuild found ${JSON.stringify(unexpected)} to differ`);
        return { code: 'ok' };
      }
      if (status.state === 'failed' || status.state === 'cancelled') {
        throw new Divergence(`a rebuild came to ${status.state}: ${status.error ?? ''}`);
      }
      await turn();
    }
  }

  /** Waits until the read models have applied the whole log. */
  async #projected(): Promise<void> {
    for (;;) {
      const [projection] = await this.#embedded.store.projections();
      if (projection!.lagEvents === 0) return;
      if (projection!.error !== undefined) throw new Divergence(`the projection failed: ${projection!.error}`);
      await turn();
    }
  }

  /** Finds out, from the store's history, which of the commands with an unknown outcome have taken effect. */
  async #resolve(
    before: Model,
    commands: readonly Command[],
    acknowledged: readonly Command[],
    refused: readonly Command[],
    nowMs: number,
  ): Promise<void> {
    const possible = alternatives(
      before,
      commands.filter((command) => !refused.includes(command)),
      acknowledged,
      nowMs,
      this.now(),
    );
    await this.#choose(possible, commands);
  }

  /** Continues with the first of the possible models that agrees with the store's records. */
  async #choose(possible: readonly Model[], commands: readonly Command[]): Promise<void> {
    const reasons: string[] = [];
    for (const model of possible) {
      const reason = await this.#differsFrom(model, commands);
      if (reason === undefined) {
        this.model = model;
        await this.#settleUnknown();
        return;
      }
      reasons.push(reason);
    }
    throw new Divergence(`after ${commands.map(told).join(' and ')} nothing fits: ${[...new Set(reasons)].join('; ')}`);
  }

  /** The first difference between the store's records and a model, in what the commands concern. Sets etags in the model. */
  async #differsFrom(
    model: Model,
    commands: readonly Command[],
    mayBeUnrecorded = this.#unfinished,
  ): Promise<string | undefined> {
    const { store } = this.#embedded;
    for (const command of commands) {
      if (isStoreCommand(command)) continue;
      const expected = liveContainer(model, command.container);
      const actual = store.listContainers(DATABASE).find((container) => container.name === command.container);
      if ((expected === undefined) !== (actual === undefined)) return `container ${command.container} is there or not`;
      for (const container of model.containers) {
        if (container.name !== command.container || container.rid === '') continue;
        const deletedAtMs = store.containerByRid(container.rid)?.deletedAtMs;
        if (deletedAtMs !== container.deletedAtMs) return `container ${container.name} was deleted at ${deletedAtMs}`;
      }
      if (isRetentionCommand(command)) {
        for (const container of model.containers) {
          const state = store.containerByRid(container.rid);
          if (container.name !== command.container || state === undefined) continue;
          const differs = retentionDiffers(container, state, await store.holds(state, { after: 0 }));
          if (differs !== undefined) return differs;
          for (const item of itemsOf(command, container)) {
            const wrong = await this.#itemDiffers(container, state, item, mayBeUnrecorded);
            if (wrong !== undefined) return wrong;
          }
        }
      }
      if (expected === undefined || actual === undefined) continue;
      if (expected.rid === '') Object.assign(expected, { rid: actual.rid });
      const difference = policiesDiffer(expected, actual);
      if (difference !== undefined) return difference;
      for (const item of itemsOf(command, expected)) {
        const differs = await this.#itemDiffers(expected, actual, item, mayBeUnrecorded);
        if (differs !== undefined) return differs;
      }
    }
    return undefined;
  }

  async #itemDiffers(
    expected: ModelContainer,
    actual: ContainerState,
    item: string,
    mayBeUnrecorded: boolean,
  ): Promise<string | undefined> {
    const { store } = this.#embedded;
    const { id, partitionKey } = nameOf(item);
    const recorded = await store.history(actual, id, partitionKey);
    const lives = expected.items.get(item) ?? [];
    const wrong = historyDiffers(recorded, lives, mayBeUnrecorded);
    if (wrong !== undefined) return `${item}: ${wrong}`;
    const standing = visibleLife(expected, item, this.now())?.writes.at(-1);
    if (standing !== undefined && actual.deletedAtMs === null) {
      const shown = await store.readItem(actual, id, partitionKey).catch(() => undefined);
      if (!sameJson(JSON.parse(shown?.json ?? 'null'), standing.document)) return `${item} reads ${shown?.json}`;
    }
    for (const [life, { writes }] of lives.entries()) {
      for (const [revision, write] of writes.entries()) {
        if (write.etag !== '') continue;
        const entry = recorded.find((one) => one.life === life && one.revision === revision)!;
        const cause = write.cause === '' && entry.causationId !== undefined ? { cause: entry.causationId } : {};
        writes[revision] = { ...write, etag: recordedEtag(entry), ...cause };
      }
    }
    return undefined;
  }

  /** Compares everything that the store shows with the model. */
  async check(): Promise<void> {
    const nowMs = this.now();
    for (const container of this.model.containers) {
      const { deletedAtMs, rid } = container;
      const state = this.#embedded.store.containerByRid(rid);
      if (state === undefined) throw new Divergence(`container ${container.name} is forgotten`);
      const shown = await this.#embedded.store.holds(state, { after: 0 });
      const kept = retentionDiffers(container, state, shown) ?? this.#vaultDiffers(container);
      if (kept !== undefined) throw new Divergence(kept);
      if (deletedAtMs === null) {
        const difference = policiesDiffer(container, state);
        if (difference !== undefined) throw new Divergence(difference);
        await this.#checkReads(container, state, nowMs);
        await this.#checkQueries(container, state, nowMs);
        await this.#checkFeed(container, state, nowMs);
        await this.#checkPreviews(container, state, nowMs);
      }
      await this.#checkHistories(container, state, nowMs);
      await this.#checkCounts(container, state, nowMs);
      if (deletedAtMs !== null) await this.#checkTaken(container, state, nowMs);
    }
  }

  /** Compares the previews of some policies with the effect on each item of the model. */
  async #checkPreviews(container: ModelContainer, state: ContainerState, nowMs: number): Promise<void> {
    for (const defaultTtl of [null, -1, 1, 60, 86_400]) {
      const preview = await this.#embedded.store.previewTtl(state, { defaultTtl });
      const expected = { atOnce: 0, later: 0, never: 0, byFloor: 0 };
      for (const item of container.items.keys()) {
        const write = visibleLife(container, item, nowMs)?.writes.at(-1);
        if (write === undefined) continue;
        const seconds = Math.floor(write.atMs / 1000);
        const left = secondsToLive(write.document['ttl'], defaultTtl);
        if (left === undefined) expected.never += 1;
        else if ((seconds + left) * 1000 > preview.effectiveFromMs) expected.later += 1;
        else {
          expected.atOnce += 1;
          if ((seconds + container.floorSeconds) * 1000 > preview.erasedFromMs) expected.byFloor += 1;
        }
      }
      const { atOnce, never, kept } = preview;
      const later = preview.later.reduce((sum, { items }) => sum + items, 0);
      const told = { atOnce: atOnce.items, later, never, byFloor: kept.byFloor };
      expectSame(`at ${nowMs} the preview of ${defaultTtl} in ${container.name}`, told, expected);
    }
  }

  /**
   * Checks the number of items around the last instant at which it changed, and that every expiry is either recorded or
   * counted as unrecorded.
   */
  async #checkCounts(container: ModelContainer, state: ContainerState, nowMs: number): Promise<void> {
    const { store } = this.#embedded;
    const spans = [...container.items.values()].flat().map((life) => {
      const ending = endingAt(container, life, nowMs);
      return { fromMs: life.writes[0]!.atMs, toMs: ending?.atMs ?? Number.POSITIVE_INFINITY, kind: ending?.kind };
    });
    const edges = spans.flatMap(({ fromMs, toMs }) => [fromMs, toMs]).filter((atMs) => atMs <= nowMs);
    const last = Math.max(...edges);
    for (const atMs of edges.length === 0 ? [nowMs] : [last - 1, last]) {
      const expected = spans.filter(({ fromMs, toMs }) => fromMs <= atMs && atMs < toMs).length;
      expectSame(`how many ${container.name} had at ${atMs}`, await store.asOf(state, atMs), expected);
    }
    const recorded = await this.#toldToLeave(container, state, 'expired');
    const expiries = recorded.length + (await store.unrecordedExpiries(state, {}));
    const expected = spans.filter(({ kind }) => kind === 'expired').length;
    expectSame(`at ${nowMs} the expiries of ${container.name}`, expiries, expected);
  }

  /** Checks that the items that left with their container are listed from then on, no matter how far the purge has got. */
  async #checkTaken(container: ModelContainer, state: ContainerState, nowMs: number): Promise<void> {
    const expected: string[] = [];
    for (const [item, lives] of container.items) {
      for (const [number, life] of lives.entries()) {
        const ending = endingAt(container, life, nowMs);
        if (ending?.kind === 'container-deleted') expected.push(`${item} ${number} ${ending.kind} ${ending.atMs}`);
      }
    }
    const told = await this.#toldToLeave(container, state, 'container-deleted');
    expectSame(`what left with ${container.name}`, told.map(({ left }) => left).toSorted(), expected.toSorted());
  }

  /** The disappearances of a container, read in pages. */
  async #toldToLeave(
    container: ModelContainer,
    state: ContainerState,
    cause?: Disappearance['cause'],
  ): Promise<{ readonly left: string; readonly purged: boolean }[]> {
    const { store, storage } = this.#embedded;
    /** The items, by the names that lists show. */
    const items = new Map<string, string>();
    if (container.name === WITH_UNIQUE_KEY) {
      for (const item of container.items.keys()) {
        const pseudonym = await storage.naming.pseudonym(container.rid, nameOf(item));
        items.set(`${pseudonym.partitionKey} ${pseudonym.id}`, item);
      }
    }
    const told: { left: string; purged: boolean }[] = [];
    const limit = this.#random.int(1, 7);
    for (let after: string | undefined; ;) {
      const page = await store.disappearances(state, {
        limit,
        ...(cause === undefined ? {} : { cause }),
        ...(after === undefined ? {} : { after }),
      });
      for (const row of page.rows) {
        const item =
          items.get(`${row.partitionKey} ${row.id}`) ?? `${(JSON.parse(row.partitionKey) as string[])[0]}/${row.id}`;
        told.push({ left: `${item} ${row.life} ${row.cause} ${row.atMs}`, purged: row.purgedAtMs !== null });
      }
      after = page.continuation;
      if (after === undefined) return told;
    }
  }

  /** The first difference between the vault and the model: the vault must have exactly the recorded holds and floor. */
  #vaultDiffers({ name, rid, holds, floorSeconds }: ModelContainer): string | undefined {
    const { vault } = this.#embedded.storage;
    const standing = holds.filter(({ released }) => !released).map(({ id }) => `${rid} ${id}`);
    const inVault = vault.holds().filter(({ containerRid }) => containerRid === rid);
    if (!sameJson(inVault.map(({ holdId }) => holdId).toSorted(), standing.toSorted())) {
      return `the vault holds ${inVault.map(({ holdId }) => holdId).join()} in ${name}, not ${standing.join()}`;
    }
    const floor = vault.floors().get(rid)?.retention ?? 0;
    return floor === floorSeconds ? undefined : `the vault has a floor of ${floor} s in ${name}, not ${floorSeconds}`;
  }

  async #checkReads(container: ModelContainer, state: ContainerState, nowMs: number): Promise<void> {
    for (const item of container.items.keys()) {
      const { id, partitionKey } = nameOf(item);
      const write = visibleLife(container, item, nowMs)?.writes.at(-1);
      let shown: ShownItem | undefined;
      try {
        shown = await this.#embedded.store.readItem(state, id, partitionKey);
      } catch (error) {
        if (!(error instanceof Refusal && error.code === 'item-not-found')) throw error;
      }
      const where = `${item} of ${container.name} at ${nowMs}`;
      const life = `${container.rid} ${item} ${container.items.get(item)!.length}`;
      if (shown === undefined) this.#seenGone.add(life);
      else if (this.#seenGone.has(life)) throw new Divergence(`${where} was seen gone and came back`);
      if (write === undefined && shown !== undefined) throw new Divergence(`${where} is shown and must not be`);
      if (write === undefined) continue;
      if (shown === undefined) throw new Divergence(`${where} is gone and must not be`);
      if (shown.etag !== write.etag) throw new Divergence(`${where} has etag ${shown.etag}, not ${write.etag}`);
      if (shown.ts !== Math.floor(write.atMs / 1000)) throw new Divergence(`${where} has _ts ${shown.ts}`);
      if (!sameJson(JSON.parse(shown.json), write.document)) throw new Divergence(`${where} reads ${shown.json}`);
    }
  }

  async #checkQueries(container: ModelContainer, state: ContainerState, nowMs: number): Promise<void> {
    const { store } = this.#embedded;
    const visible = [...container.items.keys()].filter((item) => visibleLife(container, item, nowMs) !== undefined);
    const partition = this.#random.pick([undefined, 'x', 'y']);
    const partitionKey = partition === undefined ? undefined : JSON.stringify([partition]);
    const expected = visible.filter((item) => partition === undefined || nameOf(item).partition === partition);
    const where = `${container.name} at ${nowMs}, partition ${partition ?? 'any'}`;

    const listed: ShownItem[] = [];
    const maxItemCount = this.#random.int(1, 5);
    for (let continuation: Awaited<ReturnType<typeof store.listItems>>['continuation']; ;) {
      const page = await store.listItems(state, { partitionKey, maxItemCount, continuation });
      listed.push(...page.items);
      continuation = page.continuation;
      if (continuation === undefined) break;
    }
    const births = listed.map((item) => item.birth);
    if (
      !sameJson(
        births,
        births.toSorted((left, right) => left - right),
      )
    )
      throw new Divergence(`the list of ${where} is out of order`);
    const names = (items: readonly ShownItem[]) =>
      items.map((item) => `${(JSON.parse(item.partitionKey) as string[])[0]}/${item.id}`);
    expectSame(`the list of ${where}`, names(listed).toSorted(), expected.toSorted());

    const rowsOf = async (sql: string, parameters: { name: string; value: unknown }[] = []) => {
      const rows: unknown[] = [];
      for (let continuation: Awaited<ReturnType<typeof store.queryItems>>['continuation']; ;) {
        const page = await store.queryItems(state, { sql, parameters, partitionKey, maxItemCount, continuation });
        rows.push(...page.rows);
        continuation = page.continuation;
        if (continuation === undefined) return rows;
      }
    };
    expectSame(`the count of ${where}`, await rowsOf('SELECT VALUE COUNT(1) FROM c'), [expected.length]);
    const values = expected.map((item) => visibleLife(container, item, nowMs)!.writes.at(-1)!.document['v'] as number);
    const least = values.length === 0 ? 0 : this.#random.pick(values);
    expectSame(
      `a filtered query of ${where}`,
      (await rowsOf('SELECT VALUE c.v FROM c WHERE c.v >= @least', [{ name: '@least', value: least }])).toSorted(
        byNumber,
      ),
      values.filter((value) => value >= least).toSorted(byNumber),
    );
    expectSame(
      `a sorted query of ${where}`,
      await rowsOf('SELECT VALUE c.v FROM c ORDER BY c.v DESC'),
      values.toSorted(byNumber).reverse(),
    );
    const documents = expected.map((item) => visibleLife(container, item, nowMs)!.writes.at(-1)!.document);
    for (let asked = container.hasClearPaths ? 3 : 1; asked > 0; asked--) {
      const condition = anyCondition(this.#random, documents);
      const parameters: { name: string; value: unknown }[] = [];
      const sql = `SELECT VALUE c.v FROM c WHERE ${toSql(condition, parameters)}`;
      expectSame(
        `what ${sql} with ${JSON.stringify(parameters.map(({ value }) => value))} finds in ${where}`,
        (await rowsOf(sql, parameters)).toSorted(byNumber),
        documents.flatMap((document) => (matches(condition, document) ? [document['v']] : [])).toSorted(byNumber),
      );
    }
  }

  /** Checks the feed of latest versions, in pages from the beginning: each visible item once, in the order of latest writes. */
  async #checkFeed(container: ModelContainer, state: ContainerState, nowMs: number): Promise<void> {
    const where = `${container.name} at ${nowMs}`;
    const maxItemCount = this.#random.int(1, 4);
    const found: string[] = [];
    let last = 0;
    for (let start: FeedStart = { kind: 'beginning' }; ;) {
      const request = { mode: 'latest', start, scope: {}, maxItemCount } as const;
      const { changes, position, reachedEnd } = await this.#embedded.store.readChangeFeed(state, request);
      for (const change of changes) {
        if (change.kind !== 'written' || change.position <= last) throw new Divergence(`the feed of ${where} is wrong`);
        last = change.position;
        found.push(change.item.etag);
      }
      start = { kind: 'after', position };
      if (changes.length === 0 && reachedEnd) break;
    }
    const visible = [...container.items.keys()].flatMap((item) => visibleLife(container, item, nowMs) ?? []);
    const expected = visible.map(({ writes }) => writes.at(-1)!.etag);
    expectSame(`the feed of ${where}`, found.toSorted(), expected.toSorted());
  }

  async #checkHistories(container: ModelContainer, state: ContainerState, nowMs: number): Promise<void> {
    for (const [item, lives] of container.items) {
      const { id, partitionKey } = nameOf(item);
      const recorded = await this.#embedded.store.history(state, id, partitionKey);
      const wrong = historyDiffers(recorded, lives, this.#unfinished);
      if (wrong !== undefined) throw new Divergence(`the history of ${item} in ${container.name}: ${wrong}`);
      // Some instant, and the instants around a change.
      const instants = [nowMs, this.#random.int(container.createdAtMs - 1, nowMs)];
      const life = this.#random.pick(lives);
      const ending = endingAt(container, life, nowMs);
      if (ending !== undefined) instants.push(ending.atMs, ending.atMs - 1);
      for (const atMs of instants) await this.#checkExplanation(container, state, item, atMs);
    }
  }

  async #checkExplanation(container: ModelContainer, state: ContainerState, item: string, atMs: number): Promise<void> {
    const { id, partitionKey } = nameOf(item);
    const explained = await this.#embedded.store.explain(state, id, partitionKey, atMs);
    const life = lifeAt(container, item, atMs);
    const ending = life === undefined ? undefined : endingAt(container, life, atMs);
    const allowed =
      life === undefined
        ? ['never-existed']
        : ending === undefined
          ? ['live']
          : ending.kind === 'expired'
            ? ['expired', 'purged']
            : ending.kind === 'erasure'
              ? ['purged']
              : ['deleted', 'purged'];
    const where = `${item} of ${container.name} at ${atMs}`;
    if (!allowed.includes(explained.state)) {
      throw new Divergence(
        `${where} is explained as ${explained.state}, not ${allowed.join(' or ')}: ${explained.sentence}`,
      );
    }
    if (ending?.kind === 'expired' && explained.expiredAtMs !== ending.atMs) {
      throw new Divergence(`${where} is explained as expired at ${explained.expiredAtMs}, not ${ending.atMs}`);
    }
  }

  /** Checks that a purged life is no longer recorded as the holder of a unique-key value. */
  async #checkReleased(
    container: ModelContainer,
    life: ModelLife,
    stream: string,
    partitionKey: string,
  ): Promise<void> {
    if (!container.hasUniqueKey) return;
    const { log, naming } = this.#embedded.storage;
    for (const value of new Set(life.writes.map(({ document }) => uniqueValue(document)))) {
      const pseudonym = await naming.partitionPseudonym(container.rid, partitionKey);
      const name = await naming.uniqueKeyStream(container.rid, pseudonym, `[["/u"],[${value}]]`);
      const events = await log.readStream(name);
      if (events.length === 0) throw new Divergence(`nobody ever took the value ${value} in ${container.name}`);
      if (events.some(({ data }) => data['holder'] === stream)) {
        throw new Divergence(`${stream} was purged and is still the holder of ${value}`);
      }
    }
  }

  /** Checks, after a completed purge, that only existing items have values in clear. */
  async #checkClear(nowMs: number): Promise<void> {
    const { store, storage } = this.#embedded;
    const visible = new Map<number, number>();
    // An item that left with its container keeps its row until it is erased. Its birth is not shown anywhere, so rows are counted.
    const taken: number[] = [];
    for (const container of this.model.containers.filter(({ hasClearPaths }) => hasClearPaths)) {
      if (container.deletedAtMs === null) {
        const { items } = await store.listItems(store.containerByRid(container.rid)!, { maxItemCount: 1_000 });
        for (const { birth, json } of items) visible.set(birth, clearValues(JSON.parse(json) as Document));
      }
      for (const life of [...container.items.values()].flat()) {
        if (life.erased === 'yes') continue;
        const isTaken = endingAt(container, life, nowMs)?.kind === 'container-deleted';
        if (isTaken) taken.push(clearValues(life.writes.at(-1)!.document));
      }
    }
    const database = new DatabaseSync(join(this.#folder, `items.v${storage.readModels.current.version}.db`));
    const sql = 'SELECT birth, count(*) AS count FROM item_clear GROUP BY birth';
    const rows = database.prepare(sql).all() as { birth: number; count: number }[];
    database.close();
    const found = new Map(rows.map(({ birth, count }) => [birth, count]));
    for (const [birth, count] of visible) {
      expectSame(`how many values the item of birth ${birth} has in clear`, found.get(birth) ?? 0, count);
      found.delete(birth);
    }
    expectSame('what is in clear of others', [...found.values()].toSorted(byNumber), taken.toSorted(byNumber));
  }

  /** Checks that no file contains values of erased lives in clear, and that only the items read model contains those of other lives. */
  #checkFiles(): void {
    const mayBeThere = new Set<unknown>();
    for (const [{ hasClearPaths }, , , { erased, writes }] of livesOf(this.model)) {
      if (hasClearPaths && erased !== 'yes') for (const { document } of writes) mayBeThere.add(document['v']);
    }
    for (const name of readdirSync(this.#folder)) {
      for (const mark of marksIn(readFileSync(join(this.#folder, name)))) {
        if (name.startsWith('items.') && mayBeThere.has(mark)) continue;
        throw new Divergence(`at ${this.now()} ${name} has what write ${mark} has written, in clear`);
      }
    }
  }

  /**
   * Restores a backup into a new folder, and continues with it.
   *
   * @param options.crashAtStep the step at which the restoring process is killed. Then another process restores again
   * @param options.withLaterKeys takes the copy of the keys from the last backup before the next restore
   */
  async restore(
    index: number,
    { crashAtStep, withLaterKeys = false }: { readonly crashAtStep?: number; readonly withLaterKeys?: boolean } = {},
  ): Promise<void> {
    const backup = this.#backups[index]!;
    const { taken, before, underWay, course } = backup;
    const copied = withLaterKeys ? this.#backups.findLast((other) => other.course === course)! : backup;
    const keys = copied.taken;
    const endedAtMs = this.now();
    for (const [container, item, number, life] of livesOf(this.model)) {
      if (life.erased !== 'yes') continue;
      const isOnRecord = !this.#unfinished || (await this.#isOnRecord(container, item, number));
      (isOnRecord ? this.#erasedElsewhere : this.#begunElsewhere).add(lifeName(container, item, number, life));
      if (isOnRecord) this.#lastErasureMs = Math.max(this.#lastErasureMs, endingAt(container, life, endedAtMs)!.atMs);
    }
    const ledgerHead = await this.#embedded.store.purgeLedgerHead();
    await this.#embedded.store.close();
    const restored = (to: string, more: { allowLapsed: boolean; onStep?: (step: string) => void }) =>
      restoreStore({
        log: join(taken.folder, 'log'),
        vault: join(keys.folder, 'vault'),
        ledger: join(this.#folder, 'purge-ledger.ndjson'),
        ledgerHead,
        to,
        masterKey: readFileSync(join(this.#folder, 'master.key'), 'utf8').trim(),
        keepMasterKey: true,
        nowMs: endedAtMs,
        writers: 'inline',
        ...more,
      });
    const target = newFolder('world');
    // With a manual clock, a restore knows the time only from the ledger.
    const isReal = this.#embedded.clock instanceof GuardedClock;
    const knownMs = isReal
      ? endedAtMs
      : Math.max(keys.takenAtMs, lastTimeIn(join(this.#folder, 'purge-ledger.ndjson')));
    if (keys.vaultLapsesAtMs <= knownMs) {
      const refusal: unknown = await restored(target, { allowLapsed: false }).catch((error: unknown) => error);
      if (!(refusal instanceof UnusableFile))
        throw new Divergence(`keys that have lapsed are restored: ${String(refusal)}`);
    }
    const wreck = newFolder('world');
    let steps = 0;
    let isWrecked = false;
    const onStep = () => {
      steps += 1;
      if (steps !== crashAtStep) return;
      isWrecked = true;
      for (const suffix of ['', '.restoring']) {
        if (existsSync(target + suffix)) copyAsKilled(target + suffix, wreck + suffix);
      }
    };
    const { report } = await restored(target, { allowLapsed: true, onStep });
    if (!report.ok) throw new Divergence(`fsck of what was restored: ${JSON.stringify(report.problems)}`);
    let folder = target;
    if (isWrecked) {
      folder = wreck;
      removeFolder(target);
      const again: unknown = await restored(wreck, { allowLapsed: true }).catch((error: unknown) => error);
      // If it was killed after its last step, the restore was complete.
      const wasDone = again instanceof UnusableFile && again.message.includes('is not empty');
      if (again instanceof Error && !wasDone) throw again;
    } else removeFolder(wreck);
    removeFolder(this.#folder);
    this.#folder = folder;
    await this.#open();
    const atMs = this.#embedded.store.nowMs();
    if (atMs < Math.max(backup.nowMs, this.#lastErasureMs) || atMs > endedAtMs) {
      throw new Divergence(`a restore at ${endedAtMs} of a backup of ${backup.nowMs} went to ${atMs}`);
    }
    this.#lastNowMs = atMs;
    const known = new Set(this.#embedded.store.backups().map(({ id }) => id));
    const forgotten = this.#backups.filter(({ taken: { id } }) => !known.has(id));
    if (forgotten.length > 0) throw new Divergence(`${forgotten.length} copies of the keys are forgotten`);
    this.#course += 1;
    this.#seenGone.clear();
    this.#tooLate = new Map(backup.tooLate);
    for (const container of before.containers) {
      for (const { id } of container.holds) {
        const name = `${container.rid} ${id}`;
        if (!this.#tooLate.has(name)) this.#tooLate.set(name, tooLateFor(container, id));
      }
    }
    this.#unfinished = false;
    const erased = new Set(this.#erasedElsewhere);
    const seeToBegun = async (model: Model) => {
      for (const [container, item, number, life] of livesOf(model)) {
        const name = lifeName(container, item, number, life);
        if (this.#begunElsewhere.has(name) && (await this.#isErased(container, item, number))) erased.add(name);
      }
    };
    await seeToBegun(before);
    const kept = keptBy(copied);
    const possible = [before, this.#standingAgain(structuredClone(before), kept)].flatMap((model) =>
      alternatives(model, underWay, [], backup.nowMs, atMs, erased),
    );
    for (const model of possible) {
      await seeToBegun(model);
      this.#standingAgain(model, kept);
      applyRestore(model, erased, atMs);
    }
    await this.#choose(possible, underWay);
  }

  /** Adds holds and floors that are in the copy of the keys, but not in the older copy of the log. A restore records them again. */
  #standingAgain(model: Model, { holds, floors }: ReturnType<typeof keptBy>): Model {
    for (const container of model.containers) {
      if (this.#embedded.store.containerByRid(container.rid) === undefined) continue;
      for (const { id, rid, scope } of holds) {
        if (rid !== container.rid || container.holds.some((known) => known.id === id)) continue;
        container.holds.push({ id, scope, released: false, restored: true });
      }
      container.floorSeconds = Math.max(container.floorSeconds, floors.get(container.rid) ?? 0);
    }
    return model;
  }

  /** Checks what must be true after a completed purge, at the same instant. */
  async checkPurged(): Promise<void> {
    const { store, storage } = this.#embedded;
    const nowMs = this.now();
    const again = await store.runPurge();
    if (again.expired + again.purged > 0) throw new Divergence(`a purge left something: ${JSON.stringify(again)}`);
    applyPurge(this.model, nowMs);
    this.#unfinished = false;
    let inGrace = 0;
    let heldBack = 0;
    for (const container of this.model.containers) {
      const state = store.containerByRid(container.rid)!;
      const expected: string[] = [];
      for (const [item, lives] of container.items) {
        const { id, partitionKey } = nameOf(item);
        const prefix = await storage.naming.itemStreamPrefix(container.rid, partitionKey, id);
        for (const [number, life] of lives.entries()) {
          const ending = endingAt(container, life, nowMs);
          const [first] = await storage.log.readStream(`${prefix}.${number}`);
          const where = `life ${number} of ${item} in ${container.name}`;
          if (ending === undefined) {
            if (first?.body === undefined) throw new Divergence(`${where} is visible, but its writes are gone`);
            continue;
          }
          if (life.erased === 'no') {
            if (isInGrace(container, ending, nowMs)) inGrace += 1;
            else heldBack += 1;
          }
          expected.push(`${item} ${number} ${ending.kind} ${ending.atMs} ${life.erased === 'yes' ? 'purged' : 'kept'}`);
          const kept = first?.body !== undefined;
          if (life.erased === 'yes') await this.#checkReleased(container, life, `${prefix}.${number}`, partitionKey);
          if (life.erased === 'yes' && kept) throw new Divergence(`${where} was purged, but its writes are there`);
          if (life.erased === 'no') {
            const key = kept ? storage.vault.findKey(Number(first.data['key']), first.stream).status : 'gone';
            if (key !== 'there') throw new Divergence(`${where} is kept, but its key is ${key}`);
          } else if (life.erased === 'maybe') throw new Divergence(`${where}: a purge leaves no maybe`);
        }
      }
      const told = (await this.#toldToLeave(container, state)).map(
        ({ left, purged }) => `${left} ${purged ? 'purged' : 'kept'}`,
      );
      expectSame(`the disappearances of ${container.name}`, told.toSorted(), expected.toSorted());
    }
    const status = await store.purgeStatus();
    if (
      status.overdueItems !== 0 ||
      status.awaitingErasure !== 0 ||
      status.inGrace !== inGrace ||
      status.heldBack !== heldBack
    ) {
      throw new Divergence(
        `after a purge, with ${inGrace} in grace and ${heldBack} held, the status is ${JSON.stringify(status)}`,
      );
    }
    await this.#checkClear(nowMs);
    this.#checkFiles();
    const report = await store.fsck();
    if (!report.ok)
      throw new Divergence(`fsck: ${report.problems.map((one) => `${one.code} ${one.message}`).join('; ')}`);
  }
}

function requestedScope(scope: WantedScope): HoldRequest['scope'] {
  switch (scope.kind) {
    case 'container':
      return scope;
    case 'partition-key':
      return { kind: 'partition-key', partitionKey: JSON.stringify([scope.partition]) };
    case 'items':
      return { kind: 'items', items: scope.items.map((item) => nameOf(item)) };
    case 'query': {
      const parameters = [{ name: '@least', value: scope.least }];
      return { kind: 'query', sql: 'SELECT * FROM c WHERE c.v >= @least', parameters };
    }
  }
}

/** Translates a command on an item to an operation of a batch. */
function operationOf(command: ItemCommand): Exclude<BatchOperation, { readonly kind: 'read' }> {
  const { id, partitionKey } = nameOf(command.item);
  switch (command.kind) {
    case 'write': {
      const { operation, document, ifMatch, ifNoneMatch } = command;
      const item = { id, partitionKey, document, json: JSON.stringify(document) };
      return { kind: 'write', operation, item, precondition: { ifMatch, ifNoneMatch } };
    }
    case 'patch': {
      const operations = [
        ...(command.remove === undefined ? [] : [{ op: 'remove' as const, path: `/${command.remove}` }]),
        ...Object.entries(command.set ?? {}).map(([name, value]) => ({ op: 'set' as const, path: `/${name}`, value })),
      ];
      return { kind: 'patch', id, partitionKey, patch: { operations } };
    }
    case 'delete':
      return { kind: 'delete', id, partitionKey, precondition: { ifMatch: command.ifMatch } };
  }
}

/** Commands whose outcome does not tell which of two concurrent ones was first. */
const AMBIGUOUS: ReadonlySet<string> = new Set<Command['kind']>([
  'delete',
  'script',
  'delete-partition',
  'place-hold',
  'erase',
  'recover',
  'recover-policy',
]);

/** The items that a command may have changed. */
function itemsOf(command: Command, container: ModelContainer): readonly string[] {
  if ('item' in command) return [command.item];
  if (command.kind === 'batch') return [...new Set(command.steps.map(({ item }) => item))];
  if (command.kind === 'recover-policy') return [...container.items.keys()];
  if (command.kind === 'script') return itemsOfScript(command);
  if (command.kind !== 'delete-partition') return [];
  return [...container.items.keys()].filter((item) => nameOf(item).partition === command.partition);
}

function itemsOfScript({ partition, steps }: ScriptCommand): readonly string[] {
  const named = steps.flatMap((step) => [
    ...('item' in step ? [step.item] : []),
    ...('document' in step ? [`${String(step.document['pk'])}/${String(step.document['id'])}`] : []),
  ]);
  return [...new Set(named)].filter((item) => nameOf(item).partition === partition);
}

const byNumber = (left: unknown, right: unknown): number => Number(left) - Number(right);

function told(command: Command): string {
  return JSON.stringify(command);
}

const heard = ({ told: steps }: Outcome): string => (steps === undefined ? '' : ` and heard ${JSON.stringify(steps)}`);

function wasDone(result: PromiseSettledResult<Outcome>): boolean {
  return result.status === 'fulfilled' && result.value.code === 'ok';
}

function wasRefused(result: PromiseSettledResult<Outcome>): boolean {
  return result.status === 'fulfilled' && result.value.code !== 'ok';
}

export function sameJson(left: unknown, right: unknown): boolean {
  return JSON.stringify(sorted(left)) === JSON.stringify(sorted(right));
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value) || typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([left], [right]) => (left < right ? -1 : 1)));
}

function expectSame(what: string, actual: unknown, expected: unknown): void {
  if (sameJson(actual, expected)) return;
  throw new Divergence(`${what} is ${JSON.stringify(actual)}, not ${JSON.stringify(expected)}`);
}

function ofPolicy({ timeline }: ContainerState): Outcome {
  const { fromMs, version } = timeline.at(-1)!;
  return { code: 'ok', atMs: fromMs, policyVersion: version };
}

function policiesDiffer(expected: ModelContainer, actual: ContainerState): string | undefined {
  const recorded = actual.timeline.map(({ fromMs, defaultTtl, version }) => [fromMs, defaultTtl, version]);
  // A policy that was replaced within the same millisecond was never in force.
  const wanted = expected.policies
    .filter((fact, index) => expected.policies[index + 1]?.atMs !== fact.atMs)
    .map(({ atMs, policy, version }) => [atMs, policy, version]);
  if (!sameJson(recorded, wanted)) {
    return `the policies of ${expected.name} are ${JSON.stringify(recorded)}, not ${JSON.stringify(wanted)}`;
  }
  if (!sameJson(actual.brake ?? null, expected.brake)) return `the brake of ${expected.name} differs`;
  return actual.policyGraceSeconds === expected.graceSeconds ? undefined : `the grace of ${expected.name} differs`;
}

/** The holds and floors in a copy of the keys. The scopes of the holds are those of the models at the time of the copy. */
function keptBy({ taken, before, underWay, nowMs }: ShelvedBackup) {
  const models = alternatives(before, underWay, [], nowMs);
  const copy = new DatabaseSync(join(taken.folder, 'vault', 'vault.db'), { readOnly: true });
  const held = copy.prepare('SELECT hold_id AS name, container AS rid FROM holds ORDER BY placed_at, hold_id').all();
  const floors = copy.prepare('SELECT container AS rid, seconds FROM floors').all();
  copy.close();
  const holds = (held as { name: string; rid: string }[]).flatMap(({ name, rid }) => {
    const id = name.slice(rid.length + 1);
    const known = models.flatMap(
      ({ containers }) => containers.find((container) => container.rid === rid)?.holds ?? [],
    );
    const hold = known.find((one) => one.id === id);
    return hold === undefined ? [] : [{ id, rid, scope: hold.scope }];
  });
  return {
    holds,
    floors: new Map((floors as { rid: string; seconds: number }[]).map(({ rid, seconds }) => [rid, seconds])),
  };
}

function retentionDiffers(
  expected: ModelContainer,
  { retention }: ContainerState,
  shown: readonly RecordedHold[],
): string | undefined {
  const { name, holds, floorSeconds, windowSeconds } = expected;
  const lives = (scope: { readonly kind: string; readonly lives?: readonly string[]; readonly count?: number }) =>
    scope.kind === 'query' ? (scope.count ?? scope.lives?.length) : undefined;
  const recorded = shown.map(({ holdId, scope, released }) => [
    holdId,
    scope.kind,
    lives(scope),
    released !== undefined,
  ]);
  const wanted = holds.map(({ id, scope, released }) => [id, scope.kind, lives(scope), released]);
  if (!sameJson(recorded, wanted)) {
    return `the holds of ${name} are ${JSON.stringify(recorded)}, not ${JSON.stringify(wanted)}`;
  }
  if (retention.floorSeconds !== floorSeconds) return `the floor of ${name} is ${retention.floorSeconds} s`;
  if (retention.recoveryWindowSeconds !== windowSeconds) return `the recovery window of ${name} differs`;
  const { erasures } = retention;
  return erasures.length === 0 ? undefined : `what became of ${erasures.length} erasures in ${name} is not on record`;
}

/**
 * The first difference between a history and the model: every write of every life occurs once, in order, with its etag if
 * that is known. A life ends at most once, and nothing follows its purge.
 */
function historyDiffers(
  recorded: readonly HistoryEntry[],
  lives: readonly ModelLife[],
  mayBeUnrecorded: boolean,
): string | undefined {
  const numbers = new Set(recorded.map((entry) => entry.life));
  if (numbers.size !== lives.length) return `${numbers.size} lives on record, not ${lives.length}`;
  for (const [number, life] of lives.entries()) {
    const entries = recorded.filter((entry) => entry.life === number);
    const writes = entries.filter(({ type }) => type === 'ItemUpserted' || type === 'ItemRecovered');
    if (writes.length !== life.writes.length)
      return `${writes.length} writes in life ${number}, not ${life.writes.length}`;
    for (const [index, write] of life.writes.entries()) {
      const entry = writes[index]!;
      if (entry.occurredAtMs !== write.atMs) return `write ${index} of life ${number} was at ${entry.occurredAtMs}`;
      const etag = recordedEtag(entry);
      // The ledger does not contain the causes of writes.
      if (entry.fromLedger !== true && !isCausedBy(entry, write.cause)) {
        return `write ${index} of life ${number} is on record as coming of ${entry.causationId ?? 'a request'}`;
      }
      if (write.etag !== '' && etag !== write.etag) return `write ${index} of life ${number} has etag ${etag}`;
    }
    const types = entries.map((entry) => entry.type);
    if (types.lastIndexOf('ItemRecovered') !== (life.recoveredFrom === null ? -1 : 0)) {
      return `life ${number} was brought back or not`;
    }
    const purge = entries.find((entry) => entry.type === 'ItemPurged');
    if (purge !== undefined && life.erased === 'no') return `life ${number} was purged`;
    if (purge === undefined && life.erased === 'yes' && !mayBeUnrecorded) return `life ${number} was not purged`;
    if (life.erasedAtMs !== null && purge?.occurredAtMs !== life.erasedAtMs) {
      return `life ${number} was purged at ${purge?.occurredAtMs}, not ${life.erasedAtMs}`;
    }
    const count = (type: string) => types.filter((one) => one === type).length;
    // For a delete by partition key, the container's event is shown until the life has its own.
    const deletes = count('ItemDeleted') + count('PartitionKeyDeleted');
    if (deletes !== (life.deletedAtMs === null ? 0 : 1)) return `${deletes} deletes in life ${number}`;
    const left = entries.find(({ type }) => type === 'ItemDeleted' || type === 'PartitionKeyDeleted');
    if (left !== undefined && leftAtMs(left) !== life.deletedAtMs) {
      return `life ${number} was deleted at ${leftAtMs(left)}, not ${life.deletedAtMs}`;
    }
    if (left?.type === 'ItemDeleted' && !isCausedBy(left, life.deleteCause)) {
      return `the delete of life ${number} is on record as coming of ${left.causationId ?? 'a request'}`;
    }
    if (count('ItemExpired') + count('ItemDeleted') > 1) return `life ${number} ended twice`;
    if (count('ItemPurged') > 1) return `life ${number} was purged twice`;
    if (count('ItemPurged') === 1 && types.at(-1) !== 'ItemPurged')
      return `${types.at(-1)} follows the purge of life ${number}`;
  }
  return undefined;
}

/** Whether an entry has the expected cause: the given event, any event if `cause` is empty, or none but the request if it is undefined. */
const isCausedBy = ({ causationId }: HistoryEntry, cause: string | undefined): boolean =>
  cause === '' ? causationId !== undefined : causationId === cause;

/** When a life was deleted, by a delete of its own or of its partition key. */
function leftAtMs({ occurredAtMs, data }: HistoryEntry): number {
  return (data['withPartitionKey'] as { readonly atMs: number } | undefined)?.atMs ?? occurredAtMs;
}

/** The etag of a write. If the write itself is gone, it is taken from the data of the purge's record. */
function recordedEtag({ eventId, data }: HistoryEntry): string {
  return eventId === undefined ? String(data['etag']) : `"${eventId}"`;
}

function permutations<Value>(values: readonly Value[]): Value[][] {
  if (values.length <= 1) return [[...values]];
  return values.flatMap((value, index) =>
    permutations(values.filter((_, other) => other !== index)).map((rest) => [value, ...rest]),
  );
}

function lastTimeIn(ledger: string): number {
  const lines = readFileSync(ledger, 'utf8').trimEnd().split('\n');
  return Math.max(...lines.map((line) => (JSON.parse(line) as { readonly atMs?: number }).atMs ?? 0));
}
