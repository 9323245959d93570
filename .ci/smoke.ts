// Starts the store by `npm start`, works with it through the real client, and stops it by a signal to npm.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import path from 'node:path';

const ROOT = path.resolve(import.meta.dirname, '..');
const { CosmosClient } = createRequire(path.join(ROOT, 'test/package.json'))('@azure/cosmos');

const [folder] = process.argv.slice(2);
assert(folder !== undefined, 'usage: smoke.ts <data folder>');

const npm = spawn('npm', ['start', '--', '--port', '0', '--data', folder, '--clock', 'manual'], {
  cwd: ROOT,
  stdio: ['ignore', 'pipe', 'inherit'],
  // A group of its own: when this fails, the store goes with npm.
  detached: true,
});
const exited = once(npm, 'exit');
process.once('exit', () => {
  try {
    process.kill(-npm.pid!, 'SIGKILL');
  } catch {
    // It has ended, as it should.
  }
});

let output = '';
npm.stdout.on('data', (chunk) => {
  output += chunk;
});
const started = /listening on (\S+)[^]*? key .*: (\S+)\n[^]*client/;
while (!started.test(output)) {
  const event = await Promise.race([once(npm.stdout, 'data'), exited.then(() => 'exited')]);
  assert(event !== 'exited', `npm start ended before the store listened:\n${output}`);
}
const [, endpoint, key] = started.exec(output)!;

const client = new CosmosClient({ endpoint, key });
const { database } = await client.databases.create({ id: 'shop' });
const { container } = await database.containers.create({ id: 'orders', partitionKey: '/customer', defaultTtl: 60 });
await container.items.create({ id: 'o-1', customer: 'ann', total: 12 });
assert.equal((await container.item('o-1', 'ann').read()).resource.total, 12);

const management = async (method: string, target: string, body?: unknown): Promise<Record<string, unknown>> => {
  const response = await fetch(`${endpoint}/_epitaph${target}`, {
    method,
    headers: { authorization: `Bearer ${key}` },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  assert(response.ok, `${method} ${target} answered ${response.status}`);
  return (await response.json()) as Record<string, unknown>;
};
await management('POST', '/clock/advance', { milliseconds: 61_000 });
assert.equal((await container.item('o-1', 'ann').read()).statusCode, 404);
await management('POST', '/purge/run');
const item = new URLSearchParams({ id: 'o-1', partitionKey: '["ann"]' });
const explanation = await management('GET', `/dbs/shop/colls/orders/explain?${item.toString()}`);
assert.equal(explanation.state, 'purged');
console.log(`ci: ${String(explanation.sentence)}`);
assert.equal((await management('POST', '/fsck')).ok, true);
client.dispose();

npm.kill('SIGTERM');
const [code, signal] = await exited;
assert.deepEqual({ code, signal }, { code: 0, signal: null }, `npm start ended so:\n${output}`);
assert.match(output, /stopping \(SIGTERM\)/);
await assert.rejects(fetch(`${endpoint}/_epitaph/health/live`), 'the store still listens after npm start has ended');
console.log('ci: started, used and stopped');
