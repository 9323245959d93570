import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, test } from 'vitest';
import { expectAllWell, groupsIn, PROGRAM_TIMEOUT_MS, runProgram } from './support/client-program.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';

const PROGRAM = join(import.meta.dirname, '../clients/python/checks.py');
const PYTHON = process.env['EPITAPH_TEST_PYTHON'] ?? 'python3';

/** The reason why the program can't run here, or undefined if it can. */
async function reasonAgainst(): Promise<string | undefined> {
  const imports = 'import azure.cosmos.aio, aiohttp; print(azure.cosmos.__version__)';
  try {
    const { stdout } = await runProgram(PYTHON, ['-c', imports]);
    return Number.parseInt(stdout) >= 4 ? undefined : `azure-cosmos is ${stdout.trim()} here, and the checks are for 4`;
  } catch {
    return `${PYTHON} has no azure-cosmos 4 here: pip install azure-cosmos aiohttp, or name another in EPITAPH_TEST_PYTHON`;
  }
}

const reason = await reasonAgainst();
const groups = groupsIn(readFileSync(PROGRAM, 'utf8'), /^@check\("([\w-]+)"/gm);

describe.skipIf(reason !== undefined)(`the Python client${reason === undefined ? '' : ` (skipped: ${reason})`}`, () => {
  let folder: string;
  let server: ServerProcess;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'epitaph-python-client-'));
    // The server runs as users start it, with the automatic purge: it puts expired items into the change feed.
    server = await startServer(['--data', join(folder, 'data')]);
  });
  afterAll(async () => {
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  });

  test(
    'gets everything that it expects',
    () => expectAllWell(PYTHON, [PROGRAM], server.endpoint, groups),
    PROGRAM_TIMEOUT_MS,
  );
});
