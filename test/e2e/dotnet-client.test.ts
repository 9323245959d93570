import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, test } from 'vitest';
import { Identities } from '@epitaph/api/http/identities.ts';
import { TestIssuer } from '../../packages/api/test/cosmos/support/issuer.ts';
import { expectAllWell, groupsIn, PROGRAM_TIMEOUT_MS, runProgram } from './support/client-program.ts';
import { World } from './support/world.ts';

const SOURCES = join(import.meta.dirname, '../clients/dotnet');
/** Of this checkout: a folder for all would be another user's, who may have put anything into it. */
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
 * Builds the program, once for each state of its sources.
 *
 * @returns its assembly, or why there is none
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
    // Whole or not at all: another run of the tests may build the same.
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

describe.skipIf('reason' in built)(`the .NET clients, new and old, in gateway mode${reason}`, () => {
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
    'find everything as they expect it',
    async () => {
      const EPITAPH_TEST_IDENTITY_TOKEN = await issuer.token('service', {}, { atMs: Date.now() });
      const environment = { EPITAPH_TEST_IDENTITY_TOKEN };
      if ('assembly' in built) await expectAllWell('dotnet', [built.assembly], world.endpoint, groups(), environment);
    },
    PROGRAM_TIMEOUT_MS,
  );
});
