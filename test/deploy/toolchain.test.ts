import { execFile, spawnSync } from 'node:child_process';
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../..');
const hasNpm = spawnSync('npm', ['--version']).error === undefined;

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

  test('is put together once for all starts, and anew for other sources', async () => {
    const [first, second] = await Promise.all([epitaph('--version'), epitaph('--version')]);
    expect(first).toEqual({ code: 0, stdout: expect.stringMatching(/^epitaph \d/), stderr: '' });
    expect(second).toEqual(first);
    const before = await built();
    expect(before).toHaveLength(1);
    // The store's own user runs what the sources' owner has put together.
    const { mode } = await stat(join(folder, '.toolchain/program', before[0]!));
    expect(mode & 0o777).toBe(0o777 & ~process.umask());
    const help = join(folder, 'packages/api/src/cli/main.ts');
    await writeFile(help, (await readFile(help, 'utf8')).replace('Runs the store.', 'Runs another store.'));
    expect((await epitaph('--help')).stdout).toContain('Runs another store.');
    // The former one stays, for whoever runs it still.
    expect(await built()).toEqual(expect.arrayContaining(before));
    expect(await built()).toHaveLength(2);
    const { stderr } = await epitaph('keys', 'verify-master', help);
    expect(stderr).toContain(join(folder, 'data'));
  });

  test('is the sources, where nothing can be put together', async () => {
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

describe('A path that is not absolute', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'epitaph-stands-'));
    // What each command says of it tells whether it was found.
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
    'starts where the user of npm run $script stands',
    async ({ script, args, found }) => {
      for (const npm of [
        ['--prefix', ROOT],
        ['--prefix', relative(folder, ROOT)],
      ]) {
        expect((await run('npm', [...npm, 'run', '-s', script, '--', ...args], folder)).stderr).toMatch(found);
      }
      // In a folder of the sources, from which npm goes up to them.
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
    'starts where the user of the script of $script stands, under another npm too',
    async (command) => {
      const { script, args, found } = command;
      const variables = { INIT_CWD: '/', npm_package_json: join(folder, 'package.json') };
      const ended = await run('sh', [join(ROOT, `scripts/${script}.sh`), ...args], folder, variables);
      expect(ended.stderr).toMatch(found);
    },
  );

  test('starts at the sources where the user stands in a folder that he may not enter, which is said', async () => {
    const variables = { INIT_CWD: join(folder, 'gone'), npm_package_json: join(ROOT, 'package.json') };
    const ended = await run('sh', ['scripts/epitaph.sh', '--version'], ROOT, variables);
    expect(ended).toEqual({
      code: 0,
      stdout: expect.stringMatching(/^epitaph /),
      stderr: `epitaph: ${variables.INIT_CWD} can't be entered; paths that are not absolute start from ${ROOT}.\n`,
    });
  });

  test('of the data folder, where none is given, is the one of the sources all the same', async () => {
    // Whether there is one, as after `npm start`, or not: it is said where it was looked for.
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
