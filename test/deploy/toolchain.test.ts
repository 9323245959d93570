import { execFile } from 'node:child_process';
import { chmod, cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

describe('The scripts, where npm can fetch nothing', () => {
  let folder: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'epitaph-toolchain-'));
    await cp('scripts', join(folder, 'scripts'), { recursive: true });
    await mkdir(join(folder, 'bin'));
    await program('npm', 'echo "npm error EACCES" >&2; exit 243');
  });

  afterEach(() => rm(folder, { recursive: true, force: true }));

  test('say that Node.js is to be installed by hand', async () => {
    await program('node', 'exit 1');
    const { code, stderr } = await start();
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /npm error EACCES\nepitaph: could not get Node\.js .*; install Node\.js 24\.15 or newer by hand/,
    );
  });

  test('say that the packages are to be installed by a user who can', async () => {
    await program('node', `exec ${process.execPath} "$@"`);
    const { code, stderr } = await start();
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /npm error EACCES\nepitaph: could not get pnpm .* once as a user who may write to this folder/,
    );
  });

  async function program(name: string, script: string): Promise<void> {
    const file = join(folder, 'bin', name);
    await writeFile(file, `#!/bin/sh\n${script}\n`);
    await chmod(file, 0o755);
  }

  function start(): Promise<{ code: number | null; stderr: string }> {
    return new Promise((resolve) => {
      const child = execFile(
        'sh',
        [join(folder, 'scripts', 'start.sh')],
        { env: { PATH: `${join(folder, 'bin')}:/usr/bin:/bin` } },
        (_, __, stderr) => resolve({ code: child.exitCode, stderr }),
      );
    });
  }
});
