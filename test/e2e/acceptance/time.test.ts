import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { MAIN } from '../../../packages/api/test/cli/process.ts';
import { START_MS, World } from '../support/world.ts';

/** Runs `epitaph serve` until it exits. When the server listens, it is stopped. */
async function serve(...options: readonly string[]): Promise<{ code: number | null; text: string }> {
  const child = spawn(process.execPath, [MAIN, 'serve', '--port', '0', ...options], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  const collect = (part: Buffer) => {
    text += part.toString();
    if (text.includes('listening')) child.kill('SIGTERM');
  };
  child.stdout.on('data', collect);
  child.stderr.on('data', collect);
  const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
  return { code, text };
}

let world: World;
beforeAll(async () => {
  world = await World.open();
  const container = await world.container({ id: 'c' });
  await container.items.create({ id: 'a', customer: 'ann' });
});
afterAll(() => world.end());

describe('a folder', () => {
  test('in use by a server is refused to a second one, with the reason and without harm', async () => {
    const { code, text } = await serve('--data', world.folder, '--clock', 'manual');
    expect(code).not.toBe(0);
    expect(text).toContain(`The data folder ${world.folder} is in use by another process`);
    expect(text).not.toContain('    at ');
    await expect(openEmbeddedStore({ folder: world.folder, clock: 'manual' })).rejects.toMatchObject({
      name: 'FolderInUse',
    });
    expect((await world.of('c').item('a', 'ann').read()).statusCode).toBe(200);
    expect(await world.fsck()).toEqual([]);
  });

  test('of the manual clock is refused by the system clock, and continues later at the same time', async () => {
    await world.advance(86_400_000);
    const nowMs = await world.now();
    await world.stop();
    const { code, text } = await serve('--data', world.folder);
    expect(code).not.toBe(0);
    expect(text).toContain('was used with the manual clock');
    await expect(openEmbeddedStore({ folder: world.folder, clock: 'system' })).rejects.toThrow('manual clock');
    await world.start();
    expect(await world.now()).toBe(nowMs);
    expect((await world.of('c').item('a', 'ann').read()).statusCode).toBe(200);
  });

  test('of the system clock is refused by the manual clock, even if nothing was written', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'epitaph-acceptance-'));
    try {
      const store = await openEmbeddedStore({ folder, clock: 'system' });
      await store.close();
      const { code, text } = await serve('--data', folder, '--clock', 'manual');
      expect(code).not.toBe(0);
      expect(text).toContain('is used with the system clock');
      await expect(openEmbeddedStore({ folder, clock: 'manual' })).rejects.toThrow('system clock');
      await (await openEmbeddedStore({ folder, clock: 'system' })).close();
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

describe('the manual clock', () => {
  test('continues from the last time in the log if its file is lost', async () => {
    const before = await World.open();
    await before.container({ id: 'c' });
    await before.advance(86_400_000);
    await before.of('c').items.create({ id: 'a', customer: 'ann' });
    await before.stop();
    await rm(join(before.folder, 'clock'));
    await before.start();
    expect(await before.now()).toBe(START_MS + 86_400_000);
    await before.end();
  });

  test('stands still over reads, writes and restarts', async () => {
    const nowMs = await world.now();
    await world.of('c').items.upsert({ id: 'b', customer: 'ann' });
    await world.of('c').items.readAll().fetchAll();
    await world.restart();
    expect(await world.now()).toBe(nowMs);
    expect(nowMs).toBeGreaterThan(START_MS);
  });

  test.each([-1, 1.5, '1000', null, 2 ** 60, Number.MAX_SAFE_INTEGER])(
    'is not advanced by %s milliseconds',
    async (milliseconds) => {
      const nowMs = await world.now();
      expect((await world.manage('POST', '/clock/advance', { milliseconds })).status).toBe(400);
      expect(await world.now()).toBe(nowMs);
    },
  );
});

describe('the system clock', () => {
  test('can’t be advanced', async () => {
    const real = await World.open({ clock: 'system' });
    try {
      expect((await real.manage('GET', '/clock')).body).toMatchObject({ kind: 'system' });
      expect(Math.abs((await real.now()) - Date.now())).toBeLessThan(2_000);
      expect(await real.manage('POST', '/clock/advance', { milliseconds: 1_000 })).toMatchObject({
        status: 400,
        body: { code: 'not-supported' },
      });
      expect(Math.abs((await real.now()) - Date.now())).toBeLessThan(2_000);
    } finally {
      await real.end();
    }
  });
});
