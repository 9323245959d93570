import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { optionNames, variableOf } from '@epitaph/api/config/options.ts';
import { freePort } from '../support/free-port.ts';
import { selfSigned } from '../support/self-signed.ts';
import { copyOf, environmentOf, every, readDockerfile, ROOT, type Stage } from './dockerfile.ts';

/** With Docker, compose.test.ts builds the image. Here its steps are carried out one by one in a folder. */
const run = promisify(execFile);
const stages = readDockerfile();
const [build, image] = stages as [Stage, Stage];
const PATH = `${path.dirname(process.execPath)}${path.delimiter}${process.env['PATH']}`;
const scratch = mkdtempSync(path.join(tmpdir(), 'epitaph-image-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

const read = (file: string) => readFileSync(path.join(ROOT, file), 'utf8');
const contextCopies = stages.flatMap((stage) => every(stage, 'COPY').map(copyOf)).filter(({ from }) => !from);

/** Carries out a stage's COPY instructions in a folder of its own. The caller does `npm install` and the like. */
function copyInto(folder: string, stage: Stage, earlier: Readonly<Record<string, string>> = {}): void {
  for (const { from, sources, target } of every(stage, 'COPY').map(copyOf)) {
    for (const source of sources) {
      const origin =
        from === undefined ? path.join(ROOT, source) : path.join(earlier[from]!, path.relative('/epitaph', source));
      // A file keeps its name. Of a folder, the content is copied.
      const to = path.join(folder, target, statSync(origin).isFile() ? path.basename(source) : '');
      mkdirSync(path.dirname(to), { recursive: true });
      cpSync(origin, to, { recursive: true, verbatimSymlinks: true });
    }
  }
}

async function pnpm(cwd: string, args: readonly string[]): Promise<void> {
  const known = path.join(ROOT, '.toolchain/pnpm');
  const [program, ...first]: [string, ...string[]] = existsSync(known)
    ? [readFileSync(known, 'utf8').trim()]
    : ['npx', '--yes', `pnpm@${/pnpm@([\d.]+)/.exec(every(build, 'RUN')[0]!)![1]}`];
  await run(program, [...first, ...args], { cwd, env: { ...process.env, ...environmentOf(build), PATH } });
}

describe('the Dockerfile', () => {
  it('installs with the same versions as the workspace', () => {
    const toolchain = read('scripts/toolchain.sh');
    const [, node] = /NODE_VERSION=(\d+)/.exec(toolchain)!;
    const [, version] = /PNPM_VERSION=(\S+)/.exec(toolchain)!;
    expect(stages.map(({ base }) => base)).toEqual([`node:${node}-bookworm-slim`, `node:${node}-bookworm-slim`]);
    expect(every(build, 'RUN')[0]).toBe(`npm install --global pnpm@${version}`);
  });

  it('copies every package that the server needs, nothing that .dockerignore excludes, and no test', () => {
    const ignored = read('.dockerignore').split('\n');
    for (const { sources } of contextCopies) {
      for (const source of sources) {
        expect(existsSync(path.join(ROOT, source)), source).toBe(true);
        expect(ignored).toContain(`!${source.split('/')[0]}`);
        expect(source).not.toMatch(/test/);
      }
    }
    const copied = new Set(contextCopies.flatMap(({ sources }) => sources));
    for (const name of readdirSync(path.join(ROOT, 'packages'))) {
      expect(copied, name).toContain(`packages/${name}/package.json`);
      expect(copied, name).toContain(`packages/${name}/src`);
    }
  });

  it('does not run as root, and uses only existing options', () => {
    expect(every(image, 'USER')).toEqual(['node']);
    const known = new Set(optionNames.map(variableOf));
    for (const name of Object.keys(environmentOf(image)).filter((key) => key.startsWith('EPITAPH_')))
      expect(known).toContain(name);
    expect(every(image, 'VOLUME')).toEqual([environmentOf(image)['EPITAPH_DATA']]);
    expect(every(image, 'EXPOSE')).toEqual([environmentOf(image)['EPITAPH_PORT']]);
  });

  it('makes a store that starts, is found healthy, and stops when told to', { timeout: 120_000 }, async () => {
    const first = path.join(scratch, 'build');
    copyInto(first, build);
    const [, install, putTogether] = every(build, 'RUN');
    const args = install!
      .split(' ')
      .slice(1)
      .map((word) => word.replaceAll("'", ''));
    await pnpm(first, [...args, '--prefer-offline']);
    await run('sh', ['-c', putTogether!], { cwd: first, env: { PATH } });
    const final = path.join(scratch, 'image');
    copyInto(final, image, { build: first });
    expect(readdirSync(final)).not.toContain('node_modules');
    expect(readFileSync(path.join(final, 'LICENSES.txt'), 'utf8')).toMatch(/^fastify 5.*\n\nMIT License\n/m);

    const common = {
      PATH,
      ...environmentOf(image),
      EPITAPH_DATA: path.join(scratch, 'data'),
    };
    const certificate = selfSigned();
    onTestFinished(certificate.remove);
    const [program, ...entry] = JSON.parse(every(image, 'ENTRYPOINT')[0]!) as [string, ...string[]];
    const command = JSON.parse(every(image, 'CMD')[0]!) as string[];
    const [, check] = /^.*? CMD (\[.*)$/.exec(every(image, 'HEALTHCHECK')[0]!)!;
    const [checker, ...checkArgs] = JSON.parse(check!) as [string, ...string[]];
    for (const tls of [{}, { EPITAPH_TLS_CERT: certificate.file, EPITAPH_TLS_KEY: certificate.keyFile }]) {
      const environment = { ...common, ...tls, EPITAPH_PORT: String(await freePort()) };
      const healthy = () =>
        run(checker, checkArgs, { cwd: final, env: environment }).then(
          () => true,
          (error: { code: number }) => (error.code === 1 ? false : Promise.reject(new Error(String(error.code)))),
        );
      expect(await healthy()).toBe(false);
      const child = spawn(program, [...entry, ...command], { cwd: final, env: environment, stdio: 'pipe' });
      const exited = once(child, 'exit');
      let output = '';
      for (const stream of [child.stdout, child.stderr]) {
        stream.on('data', (chunk: Buffer) => {
          output += chunk.toString();
        });
      }
      try {
        const scheme = 'EPITAPH_TLS_CERT' in tls ? 'https' : 'http';
        const listening = new RegExp(`listening on ${scheme}:.*every other address`);
        await expect.poll(() => output).toMatch(listening);
        expect([scheme, await healthy()]).toEqual([scheme, true]);
        child.kill('SIGTERM');
        expect(await exited, output).toEqual([0, null]);
      } finally {
        child.kill('SIGKILL');
      }
    }
    expect(readdirSync(common.EPITAPH_DATA)).toContain('log.db');
  });
});
