import { execFile, spawnSync } from 'node:child_process';
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../..');
const hasNpm = spawnSync('npm', ['--version']).error === undefined;

describe('The scripts, if npm can’t download anything,', () => {
  let folder: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'epitaph-toolchain-'));
    await cp('scripts', join(folder, 'scripts'), { recursive: true });
    await mkdir(join(folder, 'bin'));
    await program('npm', 'echo "npm error EACCES" >&2; exit 243');
  });

  afterEach(() => rm(folder, { recursive: true, force: true }));

  test('say that Node.js must be installed by hand', async () => {
    await program('node', 'exit 1');
    const { code, stderr } = await start();
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /npm error EACCES\nepitaph: could not get Node\.js .*; install Node\.js 24\.15 or newer\. \(A version that another user has downloaded/,
    );
  });

  test('say that the packages must be installed by a user who can do so', async () => {
    await program('node', `exec ${process.execPath} "$@"`);
    const { code, stderr } = await start();
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /npm error EACCES\nepitaph: could not get pnpm .* once, with network access, as a user who has a home folder and may write to this folder/,
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

describe('The program that the scripts start', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'epitaph-program-'));
    for (const name of ['scripts', 'packages', 'package.json', 'pnpm-lock.yaml', 'pnpm-workspace.yaml'])
      await cp(name, join(folder, name), {
        recursive: true,
        verbatimSymlinks: true,
        filter: (source) => !/^packages\/\w+\/test(?:\/|$)/.test(source),
      });
    for (const name of ['test', 'bench', 'examples']) {
      await mkdir(join(folder, name));
      await cp(join(name, 'package.json'), join(folder, name, 'package.json'));
    }
    await symlink(resolve('node_modules'), join(folder, 'node_modules'));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  const epitaph = (...args: readonly string[]) => run('sh', [join(folder, 'scripts/epitaph.sh'), ...args], tmpdir());
  const built = () => readdir(join(folder, '.toolchain/program'));

  test('is bundled once for all starts, and again if the sources have changed', async () => {
    const [first, second] = await Promise.all([epitaph('--version'), epitaph('--version')]);
    expect(first).toEqual({ code: 0, stdout: expect.stringMatching(/^epitaph \d/), stderr: '' });
    expect(second).toEqual(first);
    const before = await built();
    expect(before).toHaveLength(1);
    // The user of the store runs what the owner of the sources has bundled.
    const { mode } = await stat(join(folder, '.toolchain/program', before[0]!));
    expect(mode & 0o777).toBe(0o777 & ~process.umask());
    const help = join(folder, 'packages/api/src/cli/main.ts');
    await writeFile(help, (await readFile(help, 'utf8')).replace('Runs the store.', 'Runs another store.'));
    expect((await epitaph('--help')).stdout).toContain('Runs another store.');
    // The former bundle stays, because somebody may still run it.
    expect(await built()).toEqual(expect.arrayContaining(before));
    expect(await built()).toHaveLength(2);
    const { stderr } = await epitaph('keys', 'verify-master', help);
    expect(stderr).toContain(join(folder, 'data'));
  });

  test('is run from the sources if it can’t be bundled', async () => {
    await mkdir(join(folder, '.toolchain'));
    await writeFile(join(folder, '.toolchain/program'), '');
    expect(await epitaph('--version')).toMatchObject({ code: 0, stderr: '' });
    await rm(join(folder, '.toolchain/program'));
    await writeFile(join(folder, 'scripts/build.ts'), 'throw new Error("no bundler for this machine");');
    expect(await epitaph('--version')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^epitaph \d/),
      stderr: expect.stringContaining('no bundler for this machine'),
    });
    expect(await built()).toEqual([]);
  });
});

describe('A relative path', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'epitaph-stands-'));
    // The error of each command tells whether it found the file.
    await writeFile(join(folder, 'settings.json'), '{"port": "from the settings"}');
    await writeFile(join(folder, 'ca.pem'), '');
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  const commands = [
    { script: 'start', args: ['--config', './settings.json'], found: /^epitaph: "port" in \.\/settings\.json/ },
    {
      script: 'epitaph',
      args: ['purge', '--endpoint', 'http://127.0.0.1:1', '--tls-ca', './ca.pem'],
      found: /^epitaph: No server answers at http:/,
    },
  ] as const;

  test.runIf(hasNpm).each(commands)(
    'of npm run $script starts in the folder of its user',
    async ({ script, args, found }) => {
      for (const npm of [
        ['--prefix', ROOT],
        ['--prefix', relative(folder, ROOT)],
      ]) {
        expect((await run('npm', [...npm, 'run', '-s', script, '--', ...args], folder)).stderr).toMatch(found);
      }
      // In a folder within the sources, from which npm goes up to the package.
      await mkdir(join(ROOT, '.toolchain'), { recursive: true });
      const here = await mkdtemp(join(ROOT, '.toolchain/stands-'));
      try {
        await cp(folder, here, { recursive: true });
        expect((await run('npm', ['run', '-s', script, '--', ...args], here)).stderr).toMatch(found);
      } finally {
        await rm(here, { recursive: true });
      }
    },
  );

  test.each(commands)(
    'of the script of $script starts in the folder of its user, also under another npm',
    async (command) => {
      const { script, args, found } = command;
      const variables = { INIT_CWD: '/', npm_package_json: join(folder, 'package.json') };
      const ended = await run('sh', [join(ROOT, `scripts/${script}.sh`), ...args], folder, variables);
      expect(ended.stderr).toMatch(found);
    },
  );

  test('starts in the sources if the user’s folder can’t be entered, and a message says so', async () => {
    const variables = { INIT_CWD: join(folder, 'gone'), npm_package_json: join(ROOT, 'package.json') };
    const ended = await run('sh', ['scripts/epitaph.sh', '--version'], ROOT, variables);
    expect(ended).toEqual({
      code: 0,
      stdout: expect.stringMatching(/^epitaph /),
      stderr: `epitaph: ${variables.INIT_CWD} can't be entered, so relative paths are relative to ${ROOT}.\n`,
    });
  });

  test('of the default data folder starts in the sources all the same', async () => {
    // The folder may or may not exist, depending on an earlier `npm start`. The message says where it was searched for.
    await writeFile(join(folder, 'other.key'), Buffer.alloc(32).toString('base64'));
    const { stderr } = await run(
      'sh',
      [join(ROOT, 'scripts/epitaph.sh'), 'keys', 'verify-master', 'other.key'],
      folder,
    );
    expect(stderr).toContain(join(ROOT, 'data'));
  });
});

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function run(program: string, args: readonly string[], cwd: string, variables: NodeJS.ProcessEnv = {}): Promise<Ended> {
  const inherited = Object.entries(process.env).filter(([name]) => !/^(?:EPITAPH_|npm_|INIT_CWD|PWD$)/.test(name));
  const env = { ...Object.fromEntries(inherited), ...variables };
  return new Promise((resolve) => {
    const child = execFile(program, args, { cwd, env }, (_, stdout, stderr) =>
      resolve({ code: child.exitCode, stdout, stderr }),
    );
  });
}
