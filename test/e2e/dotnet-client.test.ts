import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, test } from 'vitest';
import { Identities } from '@epitaph/api/http/identities.ts';
import { cleanUp } from '../../packages/api/test/cli/process.ts';
import { AUDIENCE, TestIssuer } from '../../packages/api/test/cosmos/support/issuer.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { whyWithout } from '../support/programs.ts';
import { selfSigned } from '../support/self-signed.ts';
import { expectAllWell, groupsIn, PROGRAM_TIMEOUT_MS, runProgram } from './support/client-program.ts';
import { startServer } from './support/server-process.ts';
import { World } from './support/world.ts';

const SOURCES = join(import.meta.dirname, '../clients/dotnet');
/** A folder in this checkout. A shared one could belong to another user, who could have put anything into it. */
const BUILDS = join(import.meta.dirname, '../node_modules/.cache/dotnet-client');
const BUILD_TIMEOUT_MS = 240_000;

const sourceFiles = () =>
  readdirSync(SOURCES)
    .filter((name) => /\.cs(?:proj)?$/.test(name))
    .toSorted();

function groups(): string[] {
  const sources = sourceFiles().map((name) => readFileSync(join(SOURCES, name), 'utf8'));
  return groupsIn(sources.join(''), /CheckAsync\(\s*"([\w-]+)"/g);
}

/**
 * Builds the program once for each state of its sources.
 *
 * @returns its assembly, or the reason why there is none
 */
async function build(): Promise<{ readonly assembly: string } | { readonly reason: string }> {
  try {
    await runProgram('dotnet', ['--version']);
  } catch {
    return { reason: 'there is no dotnet here' };
  }
  const digest = createHash('sha256');
  for (const name of sourceFiles()) digest.update(readFileSync(join(SOURCES, name)));
  const folder = join(BUILDS, digest.digest('hex').slice(0, 16));
  const assembly = join(folder, 'bin/Clients/release/clients.dll');
  if (existsSync(assembly)) return { assembly };
  await mkdir(BUILDS, { recursive: true });
  const fresh = await mkdtemp(`${folder}-`);
  try {
    const artifacts = ['--artifacts-path', fresh, '--nologo', '-v', 'quiet'];
    await runProgram('dotnet', ['build', SOURCES, '-c', 'Release', ...artifacts], { timeout: BUILD_TIMEOUT_MS });
    // The folder is renamed when it is complete, because another run of the tests may build the same.
    if (!existsSync(folder)) await rename(fresh, folder);
    return { assembly };
  } catch (error) {
    const { stdout = '', message } = error as Error & { readonly stdout?: string };
    if (/NU1301|NU1101|NU1801/.test(stdout)) return { reason: 'its packages can’t be had here' };
    throw new Error(`dotnet build: ${stdout || message}`, { cause: error });
  } finally {
    await rm(fresh, { recursive: true, force: true });
  }
}

const built = await build();
const reason = 'reason' in built ? ` (skipped: ${built.reason})` : '';

describe.skipIf('reason' in built)(`the .NET clients, new and old${reason}`, () => {
  let world: World;
  let issuer: TestIssuer;
  beforeAll(async () => {
    issuer = await TestIssuer.start();
    const assignments = [{ principal: 'service', role: 'contributor', scope: {} }] as const;
    world = await World.open({ clock: 'system', identities: await Identities.of([issuer.as(assignments)]) });
  });
  afterAll(async () => {
    await world.end();
    await issuer.stop();
  });

  test(
    'get everything that they expect in gateway mode',
    async () => {
      const EPITAPH_TEST_IDENTITY_TOKEN = await issuer.token('service', {}, { atMs: Date.now() });
      const environment = { EPITAPH_TEST_IDENTITY_TOKEN };
      if ('assembly' in built) await expectAllWell('dotnet', [built.assembly], world.endpoint, groups(), environment);
    },
    PROGRAM_TIMEOUT_MS,
  );

  const withoutTls = whyWithout('openssl');
  describe.skipIf(withoutTls)(`with a certificate${withoutTls}`, () => {
    test(
      'get everything that they expect in direct mode',
      async () => {
        const folder = newFolder('dotnet-direct');
        const tls = selfSigned();
        const identities = join(folder, 'identities.json');
        const assignments = [{ principal: 'service', role: 'contributor' }];
        const known = { name: 'entra', issuer: issuer.url, audiences: [AUDIENCE], keys: issuer.url, assignments };
        writeFileSync(identities, JSON.stringify({ issuers: [known] }));
        const files = ['--tls-cert', tls.file, '--tls-key', tls.keyFile, '--identities', identities];
        const server = await startServer(['--data', join(folder, 'data'), ...files]);
        try {
          const environment = {
            EPITAPH_TEST_IDENTITY_TOKEN: await issuer.token('service', {}, { atMs: Date.now() }),
            EPITAPH_TEST_DIRECT_MODE: '1',
            // .NET reads the authorities that it trusts from this file.
            SSL_CERT_FILE: tls.file,
          };
          const endpoint = server.endpoint.replace('127.0.0.1', 'localhost');
          if ('assembly' in built) await expectAllWell('dotnet', [built.assembly], endpoint, groups(), environment);
        } finally {
          await server.stop();
          cleanUp();
          tls.remove();
          removeFolder(folder);
        }
      },
      PROGRAM_TIMEOUT_MS,
    );
  });
});
