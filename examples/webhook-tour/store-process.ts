import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

export interface StoreProcess {
  readonly endpoint: string;
  /** Ends the store and removes its folder. */
  stop(): Promise<void>;
}

const START = resolve(import.meta.dirname, '../../scripts/start.sh');

/** Starts a store in a temporary folder, on a free port, with a manual clock. */
export async function startStore(now: string): Promise<StoreProcess> {
  const folder = await mkdtemp(join(tmpdir(), 'epitaph-tour-'));
  const options = ['--port', '0', '--data', join(folder, 'data'), '--clock', 'manual', '--now', now];
  const child = spawn('sh', [START, ...options], { stdio: ['ignore', 'pipe', 'pipe'] });
  const exited = once(child, 'exit');
  let output = '';
  const endpoint = new Promise<string>((ready, failed) => {
    const look = (chunk: Buffer) => {
      output += chunk.toString();
      const found = /https?:\/\/127\.0\.0\.1:\d+/.exec(output);
      if (found !== null) ready(found[0]);
    };
    child.stdout.on('data', look);
    child.stderr.on('data', look);
    exited.then(() => failed(new Error(`the store did not start:\n${output}`)), failed);
  });
  const stop = async () => {
    child.kill('SIGTERM');
    await exited;
    await rm(folder, { recursive: true, force: true });
  };
  try {
    return { endpoint: await endpoint, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}
