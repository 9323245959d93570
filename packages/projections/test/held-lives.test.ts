import { describe, expect, it } from 'vitest';
import { type AskedLife, BEGINNING, HeldLives, isBehind, type Place } from '../src/purge/held-lives.ts';

const CONTAINER = 7;
const KIND = 'ended';

/** A vault, the read model's ended lives in order, and a pass that looks through them as a purge does. */
class World {
  readonly held = new HeldLives();
  readonly lives: (Place & { untilMs: number; by: 'hold' | 'floor' })[] = [];
  asked = 0;
  lookedUp = 0;
  stretches = 0;

  end(life: Place & { untilMs: number; by: 'hold' | 'floor' }): void {
    this.lives.push(life);
    this.lives.sort((left, right) => (isBehind(left, right) ? 1 : -1));
  }

  /** Asks the vault about all lives not known to be kept, in batches. */
  pass(nowMs: number, batch: number, retryMs = 60_000): void {
    for (;;) {
      const { look } = this.held;
      const found: (World['lives'][number] & { after: Place })[] = [];
      let at = BEGINNING;
      while (found.length < batch) {
        const { after, upTo, stretch } = this.held.next(CONTAINER, KIND, at, nowMs);
        const behind = this.lives.filter(
          (life) => isBehind(life, after) && (upTo === undefined || !isBehind(life, upTo)),
        );
        this.lookedUp += behind.length;
        if (stretch !== undefined) {
          this.stretches += 1;
          at = this.held.isAsBefore(CONTAINER, KIND, stretch, behind) ? stretch.upTo : after;
          continue;
        }
        at = after;
        for (const life of behind.slice(0, batch - found.length)) {
          found.push({ ...life, after: at });
          at = life;
        }
        if (found.length === batch) break;
        if (upTo === undefined) break;
        at = upTo;
      }
      if (found.length === 0) return;
      this.asked += found.length;
      const outcomes = found.map(({ endedAtMs, position, after, untilMs, by }): AskedLife => {
        const kept = { by, untilMs: by === 'hold' ? nowMs + retryMs : untilMs };
        return { endedAtMs, position, after, outcome: untilMs > nowMs ? kept : 'erased' };
      });
      for (const { position, outcome } of outcomes) {
        if (outcome === 'erased')
          this.lives.splice(
            this.lives.findIndex((life) => life.position === position),
            1,
          );
      }
      this.held.asked(CONTAINER, KIND, outcomes, look);
    }
  }
}

const heldLives = (count: number): World => {
  const world = new World();
  for (let index = 1; index <= count; index += 1) {
    world.lives.push({ endedAtMs: 1_000 + index, position: index, untilMs: Number.POSITIVE_INFINITY, by: 'hold' });
  }
  return world;
};

describe('lives that the vault keeps under a hold or floor', () => {
  it('are neither asked about nor looked up before their time', () => {
    const world = heldLives(2_500);
    world.pass(10_000, 1_000);
    expect(world).toMatchObject({ asked: 2_500 });
    expect(world.held.countIn(CONTAINER)).toEqual({ hold: 2_500, floor: 0, fault: 0 });
    world.lookedUp = 0;
    world.pass(69_999, 1_000);
    expect(world).toMatchObject({ asked: 2_500, lookedUp: 0 });
    world.pass(70_000, 1_000);
    expect(world).toMatchObject({ asked: 5_000 });
    expect(world.held.count).toBe(2_500);
  });

  it('are remembered in stretches, which are looked up but not asked about after a change at an unknown place', () => {
    const world = heldLives(1_000);
    world.pass(10_000, 1_000);
    world.held.changed(CONTAINER);
    world.lookedUp = 0;
    world.pass(10_000, 1_000);
    expect(world).toMatchObject({ asked: 1_000, lookedUp: 1_000, stretches: 10 });
  });

  it.each([
    ['is known', true],
    ['is not known', false],
  ])('do not hide new lives among them, whose place %s', (_, isKnown) => {
    const world = heldLives(1_000);
    world.pass(10_000, 1_000);
    const late = { endedAtMs: 1_500, position: 5_000, untilMs: 0, by: 'hold' } as const;
    world.end(late);
    if (isKnown) world.held.changed(CONTAINER, KIND, late);
    else world.held.changed(CONTAINER);
    world.pass(10_000, 1_000);
    expect(world.lives).toHaveLength(1_000);
    expect(world.asked).toBeLessThanOrEqual(1_000 + 101);
    expect(world.held.count).toBe(1_000);
  });

  it('are asked about again if the reason to keep one may have gone while the vault was asked', () => {
    const world = heldLives(1);
    const { look } = world.held;
    world.held.forget(CONTAINER);
    const kept = { by: 'hold', untilMs: 70_000 } as const;
    world.held.asked(CONTAINER, KIND, [{ ...world.lives[0]!, after: BEGINNING, outcome: kept }], look);
    expect(world.held.count).toBe(0);
    world.pass(10_000, 1_000);
    expect(world.asked).toBe(1);
  });

  it('do not hide lives that came while the vault was asked', () => {
    const world = heldLives(3);
    const { look } = world.held;
    const late = { endedAtMs: 1_001, position: 9, untilMs: 0, by: 'hold' } as const;
    world.end(late);
    world.held.changed(CONTAINER, KIND, late);
    const kept = { by: 'hold', untilMs: 70_000 } as const;
    let after = BEGINNING;
    const asked = world.lives
      .filter(({ position }) => position !== 9)
      .map((life) => {
        const one = { ...life, after, outcome: kept };
        after = life;
        return one;
      });
    world.held.asked(CONTAINER, KIND, asked, look);
    world.pass(10_000, 1_000);
    expect(world.lives.map(({ position }) => position)).toEqual([1, 2, 3]);
  });

  const CHANGED = [
    ['as many', [1, 3], 9],
    ['others of the same sum', [], 6],
  ] as const;
  it.each(CHANGED)('are recognized by their number and identity, and not confused with %s', (_, left, position) => {
    const world = heldLives(3);
    world.pass(10_000, 1_000);
    // One of them was erased on request, and another life ended at an unknown place.
    world.lives.splice(0, 3, ...world.lives.filter((life) => (left as readonly number[]).includes(life.position)));
    world.end({ endedAtMs: 1_002, position, untilMs: 0, by: 'hold' });
    world.held.changed(CONTAINER);
    world.pass(10_000, 1_000);
    expect(world.lives.map((life) => life.position)).toEqual(left);
  });

  it('are looked up as before, and not asked about, if others among them were erased', () => {
    const world = heldLives(50);
    for (const life of world.lives) if (life.position % 2 === 0) life.untilMs = 0;
    world.pass(10_000, 1_000);
    expect(world.held.count).toBe(25);
    world.held.changed(CONTAINER);
    world.pass(10_000, 1_000);
    expect(world).toMatchObject({ asked: 50, stretches: 1 });
  });

  it('are forgotten in one container, or in all', () => {
    const held = new HeldLives();
    const kept = (untilMs: number) => ({ by: 'floor', untilMs }) as const;
    const containers = [7, 8, 9];
    for (const container of containers) {
      const place = { endedAtMs: 1_000, position: container };
      const lives = [
        { ...place, after: BEGINNING, outcome: kept(5_000) },
        // The lives in between are unknown.
        { ...place, position: 20, after: { ...place, position: 15 }, outcome: kept(4_000) },
      ];
      held.asked(container, KIND, lives, held.look);
    }
    const state = () => containers.map((container) => [held.countIn(container).floor, held.untilMs(container)]);
    const [known, unknown] = [
      [2, 4_000],
      [0, undefined],
    ];
    expect(state()).toEqual([known, known, known]);
    held.forget(8);
    expect(state()).toEqual([known, unknown, known]);
    held.forget();
    expect(state()).toEqual([unknown, unknown, unknown]);
  });

  it('do not hide lives that came while the vault was asked about those next to them', () => {
    const kept = { by: 'hold', untilMs: 70_000 } as const;
    const third = { endedAtMs: 1_003, position: 3, untilMs: Number.POSITIVE_INFINITY, by: 'hold' } as const;
    for (const [endedAtMs, isWhileAsked] of [
      [1_001, false],
      [1_002, true],
    ] as const) {
      const world = heldLives(2);
      world.pass(10_000, 1_000);
      world.end(third);
      const { look } = world.held;
      const late = { endedAtMs, position: 9, untilMs: 0, by: 'hold' } as const;
      const [, before] = world.lives;
      world.end(late);
      world.held.changed(CONTAINER, KIND, late);
      const asked = [{ ...third, after: before!, outcome: kept }];
      world.held.asked(CONTAINER, KIND, asked, isWhileAsked ? look : world.held.look);
      world.pass(10_000, 1_000);
      expect(world.lives.map(({ position }) => position)).toEqual([1, 2, 3]);
    }
  });

  it('are looked up once more if they are forgotten during a look, and asked about the next time', () => {
    const world = heldLives(3);
    world.pass(10_000, 1_000);
    world.held.changed(CONTAINER);
    const { stretch } = world.held.next(CONTAINER, KIND, BEGINNING, 10_000);
    world.held.forget(CONTAINER);
    expect(world.held.isAsBefore(CONTAINER, KIND, stretch!, world.lives)).toBe(true);
    world.pass(10_000, 1_000);
    expect(world).toMatchObject({ asked: 6 });
    expect(world.held.count).toBe(3);
  });

  it('do not hide a life among them that was left because the log disagreed', () => {
    const world = heldLives(3);
    const kept = { by: 'hold', untilMs: 70_000 } as const;
    const [first, second, third] = world.lives;
    world.held.asked(
      CONTAINER,
      KIND,
      [
        { ...first!, after: BEGINNING, outcome: kept },
        { ...second!, after: first!, outcome: 'left' },
        { ...third!, after: second!, outcome: kept },
      ],
      world.held.look,
    );
    expect(world.held.count).toBe(2);
    world.pass(10_000, 1_000);
    expect(world.asked).toBe(1);
    expect(world.held.count).toBe(3);
  });

  it('are forgotten when the floor over each has passed, whatever comes in between, and are counted', () => {
    for (let seed = 1; seed <= 50; seed += 1) {
      let state = seed;
      const random = (below: number): number => {
        state = (state * 48_271) % 2_147_483_647;
        return state % below;
      };
      const world = new World();
      let position = 0;
      for (let nowMs = 1_000; nowMs < 20_000; nowMs += 1_000) {
        for (let count = random(150); count > 0; count -= 1) {
          position += 1;
          const untilMs = random(3) === 0 ? 0 : 1_000 * random(40);
          const place = { endedAtMs: 1 + random(nowMs), position };
          world.end({ ...place, untilMs, by: 'floor' });
          world.held.changed(CONTAINER, random(4) === 0 ? undefined : KIND, place);
        }
        world.pass(nowMs, 1 + random(100));
        expect(world.lives.filter(({ untilMs }) => untilMs <= nowMs)).toEqual([]);
        expect(world.held.countIn(CONTAINER)).toEqual({ hold: 0, floor: world.lives.length, fault: 0 });
      }
    }
  });
});
