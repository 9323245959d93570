import { SealBroken, type BodySealer } from '../vault/body-sealer.ts';
import {
  type DestroyRequest,
  floorKinds,
  type HoldScope,
  type KeyVault,
  type LifeKey,
  type VaultHold,
} from '../vault/key-vault.ts';
import { rejectionOf, sameBytes, sampleBytes, type TestFramework } from './test-framework.ts';

export interface VaultAndSealer {
  readonly vault: KeyVault;
  readonly sealer: BodySealer;
}

/** A vault under test, and the sealer that can use its keys. It may be new and empty, or shared and in use. */
export interface KeyVaultUnderTest extends VaultAndSealer {
  /** Opens the same vault again. The suite has closed it before. Absent for a vault that stores nothing. */
  readonly reopen?: () => Promise<VaultAndSealer>;
  /** Closes everything that is still open, reopened vaults too, and removes the data. A vault may have been closed already. */
  readonly dispose: () => Promise<void>;
}

/** For each test. */
const TIMEOUT_MS = 30_000;

const TS = 1_763_722_800;
const NOW_MS = TS * 1000 + 500;

/**
 * The contract of {@link KeyVault} and {@link BodySealer}, as tests that every adapter runs:
 *
 *     describeKeyVault('the SQLite key vault', make, { describe, it, expect });
 */
export function describeKeyVault(name: string, make: () => Promise<KeyVaultUnderTest>, options: TestFramework): void {
  const { describe, expect } = options;

  /** A test with its own vault, which is always disposed of. */
  const test = (sentence: string, body: (under: KeyVaultUnderTest) => Promise<void>) => {
    options.it(
      sentence,
      async () => {
        const under = await make();
        try {
          await body(under);
        } finally {
          await under.dispose();
        }
      },
      TIMEOUT_MS,
    );
  };
  /** For vaults that can be opened again. On other vaults the test passes, and its name says so. */
  const testReopened = (
    sentence: string,
    body: (under: VaultAndSealer, reopen: () => Promise<VaultAndSealer>) => Promise<void>,
  ) => {
    test(`${sentence} (where the vault can be reopened)`, async ({ vault, sealer, reopen }) => {
      if (reopen === undefined) return;
      await body({ vault, sealer }, async () => {
        await vault.close();
        return reopen();
      });
    });
  };

  const statusOf = async (vault: KeyVault, keyId: number, stream: string) =>
    (await vault.findKey(keyId, stream)).status;

  /** The outcomes without the count of destructions, which not every vault has. */
  const outcomesOf = async (vault: KeyVault, requests: readonly DestroyRequest[]) =>
    (await vault.destroyKeys(requests)).map((outcome) => ({ ...outcome, destructions: undefined }));

  /** Expects a refusal because of these holds, and that the key is still there. */
  const expectRefused = async (
    vault: KeyVault,
    request: DestroyRequest,
    holds: readonly string[],
    floorUntilMs: number | null = null,
  ) => {
    const [outcome, ...others] = await vault.destroyKeys([request]);
    expect(others).toEqual([]);
    expect(outcome?.kind === 'refused' ? { ...outcome, holds: outcome.holds.toSorted() } : outcome).toEqual({
      kind: 'refused',
      holds: holds.toSorted(),
      floorUntilMs,
    });
    expect(await statusOf(vault, request.keyId, request.stream)).toBe('there');
  };
  const expectDestroyed = async (vault: KeyVault, request: DestroyRequest) => {
    expect((await vault.destroyKeys([request])).map(({ kind }) => kind)).toEqual(['destroyed']);
    expect(await statusOf(vault, request.keyId, request.stream)).toBe('destroyed');
  };

  describe(`${name} keeps the key vault's contract:`, () => {
    describe('sealing', () => {
      test('what was sealed opens with the same key, stream and revision: text, bytes, nothing, 1 MiB', async ({
        vault,
        sealer,
      }) => {
        const stream = lifeStream();
        const key = await newKey(vault, stream);
        const bodies = ['{"text":"Ünïcödé 🪦"}', '', sampleBytes(300), new Uint8Array(0), sampleBytes(1_048_576)];
        for (const [revision, plain] of bodies.entries()) {
          const opened = sealer.open(key, stream, revision, sealer.seal(key, stream, revision, plain));
          expect(sameBytes(opened, typeof plain === 'string' ? new TextEncoder().encode(plain) : plain)).toBe(true);
        }
      });

      test('it opens with the key as it is found again', async ({ vault, sealer }) => {
        const stream = lifeStream();
        const key = await newKey(vault, stream);
        const sealed = sealer.seal(key, stream, 0, 'body');
        const found = await vault.findKey(key.keyId, stream);
        if (found.status !== 'there') throw new Error(`the key is ${found.status}`);
        expect(found.key.keyId).toBe(key.keyId);
        expect(new TextDecoder().decode(sealer.open(found.key, stream, 0, sealed))).toBe('body');
      });

      testReopened('it opens with a key that is wanted this once, until it is destroyed', async (before, reopen) => {
        const stream = lifeStream();
        const key = await newKey(before.vault, stream);
        const { vault, sealer } = await reopen();
        for (const time of ['the first time', 'the next']) {
          const found = await vault.findKey(key.keyId, stream, { once: true });
          if (found.status !== 'there') throw new Error(`${time} the key is ${found.status}`);
          const sealed = sealer.seal(key, stream, 0, 'body');
          expect(new TextDecoder().decode(sealer.open(found.key, stream, 0, sealed))).toBe('body');
        }
        await expectDestroyed(vault, destroyRequest(key, stream));
        expect((await vault.findKey(key.keyId, stream, { once: true })).status).toBe('destroyed');
      });

      testReopened('each opens with its own key, of many that are looked for at once', async (before, reopen) => {
        const streams = Array.from({ length: 80 }, () => lifeStream());
        const keys = await Promise.all(streams.map((stream) => newKey(before.vault, stream)));
        const sealed = keys.map((key, index) => before.sealer.seal(key, streams[index]!, 0, `body ${index}`));
        const { vault, sealer } = await reopen();
        await vault.destroyKeys([destroyRequest(keys[3]!, streams[3]!)]);
        const found = await Promise.all([
          ...keys.map(async ({ keyId }, index) => vault.findKey(keyId, streams[index]!)),
          vault.findKey(keys[5]!.keyId, streams[6]!),
          vault.findKey(keys[79]!.keyId + 1_000_000, streams[79]!),
        ]);
        const told = found.map((look, index) =>
          look.status === 'there'
            ? new TextDecoder().decode(sealer.open(look.key, streams[index]!, 0, sealed[index]!))
            : look.status,
        );
        const bodies = streams.map((_, index) => (index === 3 ? 'destroyed' : `body ${index}`));
        expect(told).toEqual([...bodies, 'unknown', 'unknown']);
      });

      test('shows nothing of the plain body, and never the same bytes twice', async ({ vault, sealer }) => {
        const stream = lifeStream();
        const key = await newKey(vault, stream);
        const plain = 'a body that can be recognised '.repeat(4);
        const seals = Array.from({ length: 100 }, () => text(sealer.seal(key, stream, 0, plain)));
        expect(new Set(seals).size).toBe(100);
        for (const sealed of seals) expect(sealed.includes('recognised')).toBe(false);
      });

      test('leaves the plain bytes that it was given as they were', async ({ vault, sealer }) => {
        const stream = lifeStream();
        const key = await newKey(vault, stream);
        const plain = sampleBytes(100);
        const sealed = sealer.seal(key, stream, 0, plain);
        expect(sameBytes(plain, sampleBytes(100))).toBe(true);
        sealer.open(key, stream, 0, sealed);
        expect(sameBytes(sealer.open(key, stream, 0, sealed), plain)).toBe(true);
      });

      test('a body does not open elsewhere: other stream, other life, other revision, other key', async ({
        vault,
        sealer,
      }) => {
        const prefix = itemPrefix();
        const stream = `${prefix}.1`;
        const key = await newKey(vault, stream);
        const sealed = sealer.seal(key, stream, 2, 'body');
        const otherKey = await newKey(vault, stream);
        const attempts: [LifeKey, string, number][] = [
          [key, lifeStream(), 2],
          [key, `${prefix}.2`, 2],
          // Stream and revision are bound separately, not as one concatenated text.
          [key, `${prefix}.12`, 2],
          [key, `${prefix}.`, 12],
          [key, stream, 1],
          [key, stream, 22],
          [key, stream, 0],
          [otherKey, stream, 2],
        ];
        for (const [withKey, at, revision] of attempts) expectBroken(sealer, withKey, at, revision, sealed);
        expect(text(sealer.open(key, stream, 2, sealed))).toBe('body');
      });

      test('a body does not open with any bit turned, cut short or drawn out', async ({ vault, sealer }) => {
        const stream = lifeStream();
        const key = await newKey(vault, stream);
        const sealed = sealer.seal(key, stream, 0, 'a body');
        for (let index = 0; index < sealed.length; index++) {
          for (const bit of [1, 128]) {
            const flipped = Uint8Array.from(sealed);
            flipped[index]! ^= bit;
            expectBroken(sealer, key, stream, 0, flipped);
          }
        }
        for (let length = 0; length < sealed.length; length++) {
          expectBroken(sealer, key, stream, 0, sealed.slice(0, length));
        }
        expectBroken(sealer, key, stream, 0, Uint8Array.from([...sealed, 0]));
        expectBroken(sealer, key, stream, 0, Uint8Array.from([0, ...sealed]));
      });

      test('the digest is the SHA-256 of the sealed bytes, base64url', async ({ vault, sealer }) => {
        expect(sealer.digest(new TextEncoder().encode('abc'))).toBe('ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0');
        expect(sealer.digest(new Uint8Array(0))).toBe('47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU');
        const stream = lifeStream();
        const key = await newKey(vault, stream);
        for (const length of [1, 54, 55, 56, 63, 64, 65, 1_000]) {
          const sealed = sealer.seal(key, stream, 0, sampleBytes(length));
          const hash = await crypto.subtle.digest('SHA-256', Uint8Array.from(sealed));
          const base64 = btoa(String.fromCharCode(...new Uint8Array(hash)));
          const url = base64.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
          expect(sealer.digest(sealed)).toBe(url);
        }
      });
    });

    describe('keys', () => {
      test('are there, then destroyed; a key that never was is unknown', async ({ vault }) => {
        const stream = lifeStream();
        const key = await newKey(vault, stream);
        expect(await statusOf(vault, key.keyId, stream)).toBe('there');
        await expectDestroyed(vault, destroyRequest(key, stream));
        expect(await statusOf(vault, key.keyId + 1_000_000, stream)).toBe('unknown');
        expect(await statusOf(vault, 0, stream)).toBe('unknown');
      });

      test("are unknown under another life's stream, there and destroyed alike", async ({ vault }) => {
        const prefix = itemPrefix();
        const key = await newKey(vault, `${prefix}.0`);
        for (const other of [`${prefix}.1`, `${prefix}.00`, prefix, `${prefix}.0.0`, lifeStream()]) {
          expect(await statusOf(vault, key.keyId, other)).toBe('unknown');
          expect(await vault.destroyKeys([destroyRequest(key, other)])).toEqual([{ kind: 'unknown' }]);
        }
        expect(await statusOf(vault, key.keyId, `${prefix}.0`)).toBe('there');
        await expectDestroyed(vault, destroyRequest(key, `${prefix}.0`));
        expect(await statusOf(vault, key.keyId, `${prefix}.1`)).toBe('unknown');
        expect(await vault.destroyKeys([destroyRequest(key, `${prefix}.1`)])).toEqual([{ kind: 'unknown' }]);
      });

      test('are destroyed once: a second time says so, a key that never was is unknown', async ({ vault }) => {
        const stream = lifeStream();
        const key = await newKey(vault, stream);
        await expectDestroyed(vault, destroyRequest(key, stream));
        expect(await outcomesOf(vault, [destroyRequest(key, stream)])).toEqual([{ kind: 'already-destroyed' }]);
        expect(await vault.destroyKeys([{ ...destroyRequest(key, stream), keyId: key.keyId + 1_000_000 }])).toEqual([
          { kind: 'unknown' },
        ]);
        expect(await statusOf(vault, key.keyId, stream)).toBe('destroyed');
      });

      test('are destroyed once by many who try at the same time', async ({ vault }) => {
        const stream = lifeStream();
        const key = await newKey(vault, stream);
        const outcomes = await Promise.all(
          Array.from({ length: 16 }, () => vault.destroyKeys([destroyRequest(key, stream)])),
        );
        const kinds = outcomes.map(([outcome]) => outcome?.kind).toSorted();
        expect(kinds).toEqual([...Array.from({ length: 15 }, () => 'already-destroyed'), 'destroyed']);
      });

      test('have an outcome for each request, in the order asked, whatever became of the others', async ({ vault }) => {
        const rid = newRid();
        const streams = Array.from({ length: 5 }, () => lifeStream(rid));
        const keys = await Promise.all(streams.map((stream) => newKey(vault, stream)));
        const requests = keys.map((key, index) => destroyRequest(key, streams[index]!));
        await vault.destroyKeys([requests[1]!]);
        await vault.placeHold(hold(rid, { kind: 'lives', streams: [streams[2]!] }, 'held'));
        const outcomes = await outcomesOf(vault, [
          requests[0]!,
          requests[1]!,
          requests[2]!,
          { ...requests[3]!, stream: lifeStream(rid) },
          requests[4]!,
          requests[4]!,
        ]);
        expect(outcomes).toEqual([
          { kind: 'destroyed' },
          { kind: 'already-destroyed' },
          { kind: 'refused', holds: ['held'], floorUntilMs: null },
          { kind: 'unknown' },
          { kind: 'destroyed' },
          { kind: 'already-destroyed' },
        ]);
        const statuses = await Promise.all(keys.map((key, index) => statusOf(vault, key.keyId, streams[index]!)));
        expect(statuses).toEqual(['destroyed', 'destroyed', 'there', 'there', 'destroyed']);
        expect(await vault.destroyKeys([])).toEqual([]);
      });

      test('have ids that are never given twice, never 0, not even after a destruction', async ({ vault }) => {
        const ids = new Set<number>();
        const take = async (count: number) => {
          const streams = Array.from({ length: count }, () => lifeStream());
          const keys = await Promise.all(streams.map((stream) => newKey(vault, stream)));
          for (const { keyId } of keys) {
            expect(Number.isSafeInteger(keyId) && keyId > 0).toBe(true);
            expect(ids.has(keyId)).toBe(false);
            ids.add(keyId);
          }
          return keys.map((key, index) => destroyRequest(key, streams[index]!));
        };
        await vault.destroyKeys(await take(200));
        await take(50);
        await vault.destroyKeys((await take(1)).slice(-1));
        await take(50);
        expect(ids.size).toBe(301);
      });

      test('of one life that were made twice are two keys, and each opens only its own', async ({ vault, sealer }) => {
        const stream = lifeStream();
        const [one, two] = await Promise.all([newKey(vault, stream), newKey(vault, stream)]);
        expect(one.keyId === two.keyId).toBe(false);
        const sealed = sealer.seal(one, stream, 0, 'body');
        expectBroken(sealer, two, stream, 0, sealed);
        await expectDestroyed(vault, destroyRequest(two, stream));
        expect(await statusOf(vault, one.keyId, stream)).toBe('there');
      });
    });

    describe('a hold', () => {
      test('on a container refuses the destruction of its keys, and of no other', async ({ vault }) => {
        const rid = newRid();
        const neighbours = [newRid(), `${rid}x`, rid.slice(0, -1), rid.toLowerCase()];
        const held = await makeLife(vault, lifeStream(rid));
        await vault.placeHold(hold(rid, { kind: 'container', containerRid: rid }, 'whole'));
        await expectRefused(vault, held, ['whole']);
        for (const neighbour of neighbours) {
          await expectDestroyed(vault, await makeLife(vault, lifeStream(neighbour)));
        }
        const later = await makeLife(vault, lifeStream(rid));
        await expectRefused(vault, later, ['whole']);
      });

      test('on lives refuses those and no other life of the same item', async ({ vault }) => {
        const rid = newRid();
        const prefix = itemPrefix(rid);
        const lives = await Promise.all([0, 1, 10, 11].map((life) => makeLife(vault, `${prefix}.${life}`)));
        const stranger = await makeLife(vault, lifeStream(rid));
        await vault.placeHold(hold(rid, { kind: 'lives', streams: [`${prefix}.1`, `${prefix}.11`] }, 'two'));
        await expectRefused(vault, lives[1]!, ['two']);
        await expectRefused(vault, lives[3]!, ['two']);
        await expectDestroyed(vault, lives[0]!);
        await expectDestroyed(vault, lives[2]!);
        await expectDestroyed(vault, stranger);
      });

      test('on a stream prefix refuses what begins with it, taken as it stands', async ({ vault }) => {
        const rid = newRid();
        const hash = crypto.randomUUID();
        // Characters that are wildcards in pattern languages stand for themselves, and upper and lower case differ.
        for (const [marked, others] of [
          [`${hash}_A`, [`${hash}xA`, `${hash}_a`, `${hash}A`]],
          [`${hash}%A`, [`${hash}xxA`, `${hash}A`]],
          [`${hash}*A`, [`${hash}xxA`]],
          [`${hash}[ab]A`, [`${hash}aA`]],
        ] as const) {
          const holdId = crypto.randomUUID();
          await vault.placeHold(hold(rid, { kind: 'stream-prefix', prefix: `item-${rid}.${marked}.` }, holdId));
          await expectRefused(vault, await makeLife(vault, `item-${rid}.${marked}.0`), [holdId]);
          await expectRefused(vault, await makeLife(vault, `item-${rid}.${marked}.12`), [holdId]);
          await expectDestroyed(vault, await makeLife(vault, `item-${rid}.${marked}B.0`));
          for (const other of others) await expectDestroyed(vault, await makeLife(vault, `item-${rid}.${other}.0`));
        }
      });

      test('on several stream prefixes refuses what begins with any of them, now and later', async ({ vault }) => {
        const rid = newRid();
        const [one, two, three] = [itemPrefix(rid), itemPrefix(rid), itemPrefix(rid)];
        const there = await makeLife(vault, `${one}.0`);
        const holdId = crypto.randomUUID();
        const scope = { kind: 'stream-prefixes', prefixes: [`${one}.`, `${two}.`] } as const;
        await vault.placeHold(hold(rid, scope, holdId));
        await expectRefused(vault, there, [holdId]);
        await expectRefused(vault, await makeLife(vault, `${two}.4`), [holdId]);
        await expectDestroyed(vault, await makeLife(vault, `${three}.0`));
        await expectDestroyed(vault, await makeLife(vault, `${two}x.0`));
        expect((await vault.holds()).find((placed) => placed.holdId === holdId)?.scope).toEqual(scope);
      });

      test('is found by the lives that it covers, once, among those of other containers', async ({ vault }) => {
        const rid = newRid();
        const other = newRid();
        const [one, two] = [itemPrefix(rid), itemPrefix(rid)];
        await vault.placeHold(hold(rid, { kind: 'lives', streams: [`${one}.1`] }, `a ${rid}`));
        await vault.placeHold(
          hold(rid, { kind: 'stream-prefixes', prefixes: [`${one}.`, one, `${two}.`, one] }, `b ${rid}`),
        );
        await vault.placeHold(hold(rid, { kind: 'stream-prefix', prefix: two.slice(0, -2) }, `c ${rid}`));
        await vault.placeHold(hold(other, { kind: 'container', containerRid: other }, `d ${rid}`));
        const streams = [`${one}.1`, `${one}.10`, `${two}.0`, lifeStream(other), lifeStream(rid)];
        const found = await vault.holdsOn(streams);
        expect(found.map((holds) => holds.toSorted())).toEqual([
          [`a ${rid}`, `b ${rid}`],
          [`b ${rid}`],
          [`b ${rid}`, `c ${rid}`],
          [`d ${rid}`],
          [],
        ]);
        expect((await vault.holds(rid)).map(({ holdId }) => holdId).toSorted()).toEqual(
          ['a', 'b', 'c'].map((name) => `${name} ${rid}`),
        );
        // After it is placed again the hold covers what it names now, and nothing else.
        await vault.placeHold(hold(rid, { kind: 'stream-prefixes', prefixes: [`${two}.`] }, `b ${rid}`));
        await vault.releaseHold(`c ${rid}`);
        expect(await vault.holdsOn([`${one}.10`, `${two}.0`])).toEqual([[], [`b ${rid}`]]);
        expect(await vault.holdsOn([])).toEqual([]);
      });

      test('lets go when it is released; another that covers the same key still holds', async ({ vault }) => {
        const rid = newRid();
        const life = await makeLife(vault, lifeStream(rid));
        await vault.placeHold(hold(rid, { kind: 'container', containerRid: rid }, 'one'));
        await vault.placeHold(hold(rid, { kind: 'lives', streams: [life.stream] }, 'two'));
        await expectRefused(vault, life, ['one', 'two']);
        await vault.releaseHold('one');
        await expectRefused(vault, life, ['two']);
        await vault.releaseHold('two');
        await expectDestroyed(vault, life);
      });

      test('is listed as it was placed until it is released; releasing one that is not there is no error', async ({
        vault,
      }) => {
        const rid = newRid();
        const own = async () =>
          (await vault.holds())
            .filter((one) => one.containerRid === rid)
            .toSorted((left, right) => left.holdId.localeCompare(right.holdId));
        expect(await own()).toEqual([]);
        const placed = [
          hold(rid, { kind: 'container', containerRid: rid }, `1 ${rid}`),
          hold(rid, { kind: 'lives', streams: [lifeStream(rid), lifeStream(rid)].toSorted() }, `2 ${rid}`),
          hold(rid, { kind: 'stream-prefix', prefix: `item-${rid}.abc.` }, `3 ${rid}`),
        ];
        for (const one of placed) await vault.placeHold(one);
        expect(await own()).toEqual(placed);
        await vault.releaseHold(`2 ${rid}`);
        await vault.releaseHold(`2 ${rid}`);
        await vault.releaseHold('never placed');
        expect(await own()).toEqual([placed[0], placed[2]]);
      });

      test('placed again under its id replaces itself: there are not two', async ({ vault }) => {
        const rid = newRid();
        const life = await makeLife(vault, lifeStream(rid));
        const placed = hold(rid, { kind: 'lives', streams: [lifeStream(rid), life.stream].toSorted() }, 'again');
        await vault.placeHold(placed);
        await vault.placeHold(placed);
        expect((await vault.holds()).filter((one) => one.containerRid === rid)).toEqual([placed]);
        await expectRefused(vault, life, ['again']);
        const narrower = hold(rid, { kind: 'lives', streams: [lifeStream(rid)] }, 'again');
        await vault.placeHold(narrower);
        expect((await vault.holds()).filter((one) => one.containerRid === rid)).toEqual([narrower]);
        await expectDestroyed(vault, life);
      });

      test('that is to be a new one leaves another of its id alone, also one placed at that time, and is placed again over itself', async ({
        vault,
      }) => {
        const rid = newRid();
        const [one, two, three] = [lifeStream(rid), lifeStream(rid), lifeStream(rid)];
        const scopes = [
          { kind: 'lives', streams: [one, two] },
          { kind: 'lives', streams: [one] },
          { kind: 'lives', streams: [one, three] },
          { kind: 'stream-prefix', prefix: `item-${rid}.a.` },
          { kind: 'container', containerRid: rid },
        ] as const;
        for (const scope of scopes) {
          const holdId = crypto.randomUUID();
          const placed = hold(rid, scope, holdId);
          expect(await vault.placeHold(placed, { isNew: true })).toBe(true);
          expect(await vault.placeHold(placed, { isNew: true })).toBe(false);
          const same = scope.kind === 'lives' ? { ...scope, streams: scope.streams.toReversed() } : scope;
          const later = { ...hold(rid, same, holdId), placedAtMs: placed.placedAtMs + 1 };
          expect(await vault.placeHold(later, { isNew: true })).toBe(true);
          for (const other of scopes.filter((each) => each !== scope)) {
            const another = { ...hold(rid, other, holdId), placedAtMs: placed.placedAtMs + 2 };
            expect(await vault.placeHold(another, { isNew: true })).toBe(false);
          }
          expect((await vault.holds(rid)).find((each) => each.holdId === holdId)?.scope.kind).toBe(scope.kind);
          await vault.releaseHold(holdId);
        }
      });

      test('is released where it was placed at a time, if it was', async ({ vault }) => {
        const rid = newRid();
        const holdId = crypto.randomUUID();
        const placed = { ...hold(rid, { kind: 'lives', streams: [lifeStream(rid)] }, holdId), placedAtMs: 7 };
        await vault.placeHold(placed);
        await vault.releaseHold(holdId, { placedAtMs: 8 });
        expect(await vault.holds(rid)).toEqual([placed]);
        await vault.releaseHold(holdId, { placedAtMs: 7 });
        expect(await vault.holds(rid)).toEqual([]);
      });

      test('that comes after the destruction brings nothing back and does not hide it', async ({ vault }) => {
        const rid = newRid();
        const life = await makeLife(vault, lifeStream(rid));
        await expectDestroyed(vault, life);
        await vault.placeHold(hold(rid, { kind: 'container', containerRid: rid }, 'late'));
        expect(await outcomesOf(vault, [life])).toEqual([{ kind: 'already-destroyed' }]);
        expect(await statusOf(vault, life.keyId, life.stream)).toBe('destroyed');
      });

      test('and a destruction at the same time: whichever was first wins, and what is answered is what is', async ({
        vault,
      }) => {
        const rid = newRid();
        for (let round = 0; round < 32; round++) {
          const life = await makeLife(vault, lifeStream(rid));
          const holdId = `race ${round} ${rid}`;
          const place = () => vault.placeHold(hold(rid, { kind: 'lives', streams: [life.stream] }, holdId));
          const destroy = () => vault.destroyKeys([life]);
          let placed: Promise<unknown>;
          let destroyed: ReturnType<typeof destroy>;
          if (round % 2 === 0) {
            placed = place();
            // In some rounds the hold has been placed by now, in others it is being placed.
            if (round % 4 === 0) await placed;
            destroyed = destroy();
          } else {
            destroyed = destroy();
            placed = place();
          }
          const [outcome] = await destroyed;
          await placed;
          const status = await statusOf(vault, life.keyId, life.stream);
          if (round % 4 === 0) expect(outcome?.kind).toBe('refused');
          if (outcome?.kind === 'refused') {
            expect(outcome.holds).toEqual([holdId]);
            expect(status).toBe('there');
            await expectRefused(vault, life, [holdId]);
          } else {
            expect(outcome).toMatchObject({ kind: 'destroyed' });
            expect(status).toBe('destroyed');
          }
        }
      });
    });

    for (const kind of floorKinds) {
      describe(`a ${kind} floor`, () => {
        /** A life whose time for this kind of floor is `TS`, and for the other kind long before that. */
        const counted = async (vault: KeyVault, stream: string, ts = TS): Promise<DestroyRequest> => ({
          ...(await makeLife(vault, stream)),
          ...(kind === 'retention'
            ? { lastWriteTs: ts, lastEventAtMs: 0 }
            : { lastWriteTs: 0, lastEventAtMs: ts * 1000 }),
        });

        test('refuses until so many seconds have passed, and says until when', async ({ vault }) => {
          const rid = newRid();
          await vault.setFloor(rid, kind, 60);
          const life = await counted(vault, lifeStream(rid));
          const untilMs = (TS + 60) * 1000;
          await expectRefused(vault, life, [], untilMs);
          await expectRefused(vault, { ...life, nowMs: untilMs - 1 }, [], untilMs);
          const later = await counted(vault, lifeStream(rid), TS + 1);
          await expectRefused(vault, { ...later, nowMs: untilMs }, [], untilMs + 1000);
          await expectDestroyed(vault, { ...life, nowMs: untilMs });
        });

        test('holds for its own container alone', async ({ vault }) => {
          const rid = newRid();
          await vault.setFloor(rid, kind, 1_000_000);
          await expectRefused(vault, await counted(vault, lifeStream(rid)), [], (TS + 1_000_000) * 1000);
          await expectDestroyed(vault, await counted(vault, lifeStream()));
          await expectDestroyed(vault, await counted(vault, lifeStream(`${rid}x`)));
          await expectDestroyed(vault, await counted(vault, lifeStream(rid.slice(0, -1))));
        });

        test('can be changed, and 0 lifts it', async ({ vault }) => {
          const rid = newRid();
          const life = await counted(vault, lifeStream(rid));
          expect((await vault.floors()).get(rid)).toBe(undefined);
          await vault.setFloor(rid, kind, 60);
          expect((await vault.floors()).get(rid)).toEqual({ [kind]: 60 });
          await vault.setFloor(rid, kind, 10);
          expect((await vault.floors()).get(rid)).toEqual({ [kind]: 10 });
          await expectRefused(vault, life, [], (TS + 10) * 1000);
          await vault.setFloor(rid, kind, 0);
          expect((await vault.floors()).get(rid)).toBe(undefined);
          await expectDestroyed(vault, life);
        });

        test('is left alone by one that may not lower it, and raised', async ({ vault }) => {
          const rid = newRid();
          const inForce = async () => (await vault.floors()).get(rid)?.[kind];
          await vault.setFloor(rid, kind, 60, { mayLower: false });
          await vault.setFloor(rid, kind, 10, { mayLower: false });
          expect(await inForce()).toBe(60);
          await vault.setFloor(rid, kind, 0, { mayLower: false });
          expect(await inForce()).toBe(60);
          await vault.setFloor(rid, kind, 61, { mayLower: false });
          expect(await inForce()).toBe(61);
        });

        test('is left alone by one that would change another', async ({ vault }) => {
          const rid = newRid();
          const inForce = async () => (await vault.floors()).get(rid)?.[kind];
          await vault.setFloor(rid, kind, 60, { from: 1 });
          expect(await inForce()).toBe(undefined);
          await vault.setFloor(rid, kind, 60, { from: 0 });
          await vault.setFloor(rid, kind, 0, { from: 61 });
          expect(await inForce()).toBe(60);
          await vault.setFloor(rid, kind, 0, { from: 60 });
          expect(await inForce()).toBe(undefined);
        });

        test('is told together with the holds that refuse as well', async ({ vault }) => {
          const rid = newRid();
          const life = await counted(vault, lifeStream(rid));
          await vault.setFloor(rid, kind, 60);
          await vault.placeHold(hold(rid, { kind: 'container', containerRid: rid }, 'held'));
          await expectRefused(vault, life, ['held'], (TS + 60) * 1000);
          await expectRefused(vault, { ...life, nowMs: (TS + 60) * 1000 }, ['held']);
          await vault.releaseHold('held');
          await expectRefused(vault, life, [], (TS + 60) * 1000);
        });
      });
    }

    describe('two floors of a container', () => {
      test('are told apart when a key goes: it is said under which retention floor', async ({ vault }) => {
        const rid = newRid();
        const made = await Promise.all([0, 1, 2].map(() => makeLife(vault, lifeStream(rid))));
        const lives = made.map((life) => ({ ...life, nowMs: NOW_MS + 60_000 }));
        await vault.setFloor(rid, 'change-feed', 5);
        expect(await outcomesOf(vault, [lives[0]!])).toEqual([{ kind: 'destroyed' }]);
        await vault.setFloor(rid, 'retention', 7);
        expect(await outcomesOf(vault, [lives[1]!, lives[0]!])).toEqual([
          { kind: 'destroyed', floorSeconds: 7 },
          { kind: 'already-destroyed' },
        ]);
        await vault.setFloor(rid, 'retention', 0);
        expect(await outcomesOf(vault, [lives[2]!])).toEqual([{ kind: 'destroyed' }]);
      });

      test('for an erasure that somebody demands are one: a change feed does not stand against that', async ({
        vault,
      }) => {
        const rid = newRid();
        const life = {
          ...(await makeLife(vault, lifeStream(rid))),
          lastWriteTs: TS,
          lastEventAtMs: TS * 1000,
          nowMs: TS * 1000,
        };
        await vault.setFloor(rid, 'change-feed', 3_600);
        await vault.setFloor(rid, 'retention', 60);
        await expectRefused(vault, life, [], (TS + 3_600) * 1000);
        await expectRefused(vault, { ...life, onDemand: true }, [], (TS + 60) * 1000);
        await expectDestroyed(vault, { ...life, onDemand: true, nowMs: (TS + 60) * 1000 });
      });

      test('refuse until the later one has passed, whichever that is', async ({ vault }) => {
        const rid = newRid();
        const life = { ...(await makeLife(vault, lifeStream(rid))), lastEventAtMs: (TS + 100) * 1000 + 5 };
        await vault.setFloor(rid, 'retention', 60);
        await vault.setFloor(rid, 'change-feed', 10);
        await expectRefused(vault, life, [], (TS + 110) * 1000 + 5);
        await vault.setFloor(rid, 'retention', 600);
        await expectRefused(vault, life, [], (TS + 600) * 1000);
        await expectDestroyed(vault, { ...life, nowMs: (TS + 600) * 1000 });
      });

      test('are apart: lifting or changing one leaves the other as it is', async ({ vault }) => {
        const rid = newRid();
        await vault.setFloor(rid, 'retention', 60);
        await vault.setFloor(rid, 'change-feed', 10);
        expect((await vault.floors()).get(rid)).toEqual({ retention: 60, 'change-feed': 10 });
        await vault.setFloor(rid, 'change-feed', 0);
        expect((await vault.floors()).get(rid)).toEqual({ retention: 60 });
        await vault.setFloor(rid, 'change-feed', 20);
        await vault.setFloor(rid, 'retention', 0);
        expect((await vault.floors()).get(rid)).toEqual({ 'change-feed': 20 });
        await expectRefused(vault, await makeLife(vault, lifeStream(rid)), [], (TS + 20) * 1000);
      });
    });

    describe("a container's secret", () => {
      test('is 32 bytes, the same each time, also for those who ask first together', async ({ vault }) => {
        const rid = newRid();
        const secrets = await Promise.all(Array.from({ length: 8 }, () => vault.containerSecret(rid)));
        secrets.push(await vault.containerSecret(rid));
        expect(secrets[0]!.length).toBe(32);
        for (const secret of secrets) expect(sameBytes(secret, secrets[0])).toBe(true);
        expect(sameBytes(secrets[0], new Uint8Array(32))).toBe(false);
      });

      test("differs from every other container's", async ({ vault }) => {
        const secrets: string[] = [];
        for (let index = 0; index < 20; index++) secrets.push((await vault.containerSecret(newRid())).join());
        expect(new Set(secrets).size).toBe(20);
      });

      test('that another makes, and names items by, between the look for it and the look for such items, is the one (where these are looked for)', async ({
        vault,
      }) => {
        if (vault.onNewSecret === undefined) return;
        const rid = newRid();
        let made: Uint8Array | undefined;
        vault.onNewSecret(async () => {
          vault.onNewSecret!(() => Promise.resolve());
          made = Uint8Array.from(await vault.containerSecret(rid));
          throw new Error('an item is named already');
        });
        expect(sameBytes(await vault.containerSecret(rid), made)).toBe(true);
        vault.onNewSecret(() => Promise.reject(new Error('an item is named already')));
        expect(await rejectionOf(vault.containerSecret(newRid()))).toBeInstanceOf(Error);
      });
    });

    describe('reopened', () => {
      testReopened('the vault has its keys, and they open what they sealed', async ({ vault, sealer }, reopen) => {
        const lives = await Promise.all(
          Array.from({ length: 20 }, async () => {
            const stream = lifeStream();
            return { stream, key: await newKey(vault, stream) };
          }),
        );
        const seals = lives.map(({ key, stream }) => sealer.seal(key, stream, 0, stream));
        await vault.destroyKeys(lives.slice(0, 5).map(({ key, stream }) => destroyRequest(key, stream)));
        const again = await reopen();
        for (const [index, { key, stream }] of lives.entries()) {
          const found = await again.vault.findKey(key.keyId, stream);
          expect(found.status).toBe(index < 5 ? 'destroyed' : 'there');
          if (found.status !== 'there') continue;
          expect(text(again.sealer.open(found.key, stream, 0, seals[index]!))).toBe(stream);
          expect(await statusOf(again.vault, key.keyId, lifeStream())).toBe('unknown');
        }
        expect(await outcomesOf(again.vault, [destroyRequest(lives[0]!.key, lives[0]!.stream)])).toEqual([
          { kind: 'already-destroyed' },
        ]);
      });

      testReopened('the vault gives no id that it gave before, destroyed ones neither', async ({ vault }, reopen) => {
        const lives = await Promise.all(Array.from({ length: 20 }, () => makeLife(vault, lifeStream())));
        // Destroys the highest ids: a vault that continued from the highest one left would give them out again.
        await vault.destroyKeys(lives.toSorted((left, right) => right.keyId - left.keyId).slice(0, 10));
        const again = await reopen();
        const ids = new Set(lives.map((life) => life.keyId));
        for (let count = 0; count < 20; count++) {
          const life = await makeLife(again.vault, lifeStream());
          expect(ids.has(life.keyId)).toBe(false);
          ids.add(life.keyId);
        }
      });

      testReopened('the vault still refuses what holds and floors cover', async ({ vault }, reopen) => {
        const [rid, floored] = [newRid(), newRid()];
        const life = await makeLife(vault, lifeStream(rid));
        const young = await makeLife(vault, lifeStream(floored));
        const holds = [
          hold(rid, { kind: 'container', containerRid: rid }, `1 ${rid}`),
          hold(rid, { kind: 'lives', streams: [life.stream] }, `2 ${rid}`),
          hold(rid, { kind: 'stream-prefix', prefix: life.stream.slice(0, -1) }, `3 ${rid}`),
        ];
        for (const one of holds) await vault.placeHold(one);
        await vault.placeHold(hold(rid, { kind: 'container', containerRid: rid }, `released ${rid}`));
        await vault.releaseHold(`released ${rid}`);
        await vault.setFloor(floored, 'retention', 60);
        await vault.setFloor(floored, 'change-feed', 30);
        const again = await reopen();
        await expectRefused(
          again.vault,
          life,
          holds.map((one) => one.holdId),
        );
        await expectRefused(again.vault, young, [], (TS + 60) * 1000);
        const listed = (await again.vault.holds()).filter((one) => one.containerRid === rid);
        expect(listed.toSorted((left, right) => left.holdId.localeCompare(right.holdId))).toEqual(holds);
        expect((await again.vault.floors()).get(floored)).toEqual({ retention: 60, 'change-feed': 30 });
      });

      testReopened("the vault has its containers' secrets", async ({ vault }, reopen) => {
        const rids = [newRid(), newRid()];
        const before = await Promise.all(rids.map((rid) => vault.containerSecret(rid)));
        const copies = before.map((secret) => Uint8Array.from(secret));
        const again = await reopen();
        for (const [index, rid] of rids.entries()) {
          expect(sameBytes(await again.vault.containerSecret(rid), copies[index])).toBe(true);
        }
      });

      testReopened('a vault that is closed gives no more keys', async ({ vault }, reopen) => {
        const again = await reopen();
        await rejectionOf((async () => newKey(vault, lifeStream()))());
        await newKey(again.vault, lifeStream());
      });
    });
  });

  function expectBroken(sealer: BodySealer, key: LifeKey, stream: string, revision: number, sealed: Uint8Array) {
    let opened: Uint8Array;
    try {
      opened = sealer.open(key, stream, revision, sealed);
    } catch (error) {
      expect(error).toBeInstanceOf(SealBroken);
      return;
    }
    throw new Error(`opened where it must not: ${JSON.stringify(text(opened))}`);
  }
}

function newRid(): string {
  return `Rid${crypto.randomUUID().replaceAll('-', '').slice(0, 12)}Z=`;
}

/** An item's stream name without the number of the life. */
function itemPrefix(rid = newRid()): string {
  return `item-${rid}.${crypto.randomUUID().replaceAll('-', '_')}`;
}

function lifeStream(rid?: string): string {
  return `${itemPrefix(rid)}.0`;
}

/** A new key, once it is durable. */
async function newKey(vault: KeyVault, stream: string): Promise<LifeKey> {
  const { key, stored } = await vault.createKey(stream);
  await stored;
  return key;
}

/** A life with a new key, as a request to destroy the key. */
async function makeLife(vault: KeyVault, stream: string): Promise<DestroyRequest> {
  return destroyRequest(await newKey(vault, stream), stream);
}

function destroyRequest(key: LifeKey, stream: string): DestroyRequest {
  return { keyId: key.keyId, stream, lastWriteTs: TS, lastEventAtMs: TS * 1000, nowMs: NOW_MS };
}

function hold(containerRid: string, scope: HoldScope, holdId: string): VaultHold {
  return { holdId, containerRid, scope, placedAtMs: NOW_MS };
}

function text(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}
