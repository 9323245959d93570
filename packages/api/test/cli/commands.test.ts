import { createServer } from 'node:http';
import { createServer as createNetServer, type AddressInfo } from 'node:net';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { ManagementClient } from '@epitaph/api/cli/management-client.ts';
import { Progress } from '@epitaph/api/cli/progress.ts';
import { openWorld, WRITER, type World } from '../management/world.ts';
import { cleanUp, command, epitaph, type Finished, MAIN } from './process.ts';

let world: World;
let endpoint: string;
beforeAll(async () => {
  world = await openWorld();
  endpoint = await world.app.listen({ port: 0, host: '127.0.0.1' });
  await world.write('a/1');
  await world.write('b');
  await world.store.deleteItem(WRITER, world.store.container('shop', 'orders'), 'b', '["ann"]');
  await world.store.advanceClock(61_000);
});
afterAll(async () => {
  await world.close();
  cleanUp();
});

/** Runs a command line against the server of these tests. */
const ask = (...args: string[]): Promise<Finished> => askWith({}, ...args);

const askWith = (environment: Readonly<Record<string, string>>, ...args: string[]): Promise<Finished> =>
  command(args, { EPITAPH_ENDPOINT: endpoint, ...environment });

describe('the command line', () => {
  test('explains an item in a sentence, or as JSON', async () => {
    const text = await ask('explain', 'shop', 'orders', 'a/1', '--partition-key', 'ann');
    expect(text).toMatchObject({ code: 0, stderr: '' });
    expect(text.stdout).toMatch(/^"a\/1" expired at 2026-11-21T10:01:00\.000Z .*\nstate: expired\nexpiredAt: 2026-/);
    const json = await ask(
      'explain',
      'shop',
      'orders',
      'a/1',
      '--partition-key=["ann"]',
      '--at=2026-11-21T10:00:30Z',
      '--json',
    );
    expect(JSON.parse(json.stdout)).toMatchObject({ state: 'live', expiresAt: '2026-11-21T10:01:00.000Z' });
  });

  test('names the partition key under which nothing was found, and suggests what its value could be', async () => {
    const { stdout, stderr } = await ask('explain', 'shop', 'orders', 'a/1', '--partition-key', '5');
    expect(stdout).toMatch(
      /^Up to .* nothing was ever written as "a\/1" under partition key \["5"\] in container orders\.\n/,
    );
    expect(stderr).toBe("The partition key was taken as a string. If it is not a string: --partition-key '[5]'\n");
    expect((await ask('explain', 'shop', 'orders', 'a/1', '--partition-key', 'x')).stderr).toBe('');
  });

  test('tells that the record of a container leaves out a deleted one of the same name', async () => {
    const { store } = world;
    const { definition } = store.container('shop', 'orders');
    await store.createContainer(WRITER, 'shop', 'again', definition, null);
    const { rid } = store.container('shop', 'again');
    await store.deleteContainer(WRITER, 'shop', 'again');
    await store.createContainer(WRITER, 'shop', 'again', definition, null);
    const hint = `Deleted containers of that name are not included; for their history give --rid ${rid}\n`;
    expect(await ask('disappearances', 'shop', 'again')).toMatchObject({ code: 0, stderr: hint });
    expect(await ask('history', 'shop', 'again')).toMatchObject({ code: 0, stderr: hint });
    expect(await ask('history', 'shop', 'again', '--rid', rid)).toMatchObject({
      code: 0,
      stderr: '',
      stdout: expect.stringContaining('ContainerDeleted') as string,
    });
    for (const command of [['hold', 'list'], ['ttl'], ['replay', '--policy', '2026-11-21T10:00:00Z=off']]) {
      const [name, ...more] = command as [string, ...string[]];
      const operands = name === 'hold' ? [...more, 'shop', 'again'] : ['shop', 'again', ...more];
      const { code, stderr } = await ask(name, ...operands);
      expect([name, code, stderr.includes(hint)]).toEqual([name, 0, true]);
      expect([name, (await ask(name, ...operands, '--rid', rid)).code]).toEqual([name, 0]);
    }
    expect((await ask('ttl', 'shop', 'again', '--rid', rid)).stdout).toMatch(
      /^version 1: off from .*, in force until the container was deleted at 2026-/,
    );
    expect(await ask('ttl', 'shop', 'again', '60', '--rid', rid)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('it can not change them') as string,
    });
  });

  test('previews a TTL policy, replays history under another, and shows past contents', async () => {
    const previewed = await ask('preview', 'shop', 'orders', '3600');
    expect(previewed).toMatchObject({ code: 0, stderr: '' });
    expect(previewed.stdout).toMatch(/^0 of 0 items would expire at once, at 2026-11-21T10:01:01\.000Z\.\n/);
    const replayed = await ask('replay', 'shop', 'orders', '--policy', '2026-11-21T10:00:00Z=off');
    expect(replayed.stdout).toBe('2 lives: 1 same, 0 earlier, 0 later, 1 never, 0 also.\n');
    const differences = await ask('replay', 'shop', 'orders', '--policy=2026-11-21T10:00:00Z=off', '--differences');
    expect(differences.stdout).toMatch(/^{"id":"a\/1",.*"verdict":"never",.*\n{"summary":/);
    expect((await ask('as-of', 'shop', 'orders', '2026-11-21T10:00:59Z')).stdout).toBe(
      '1 item at 2026-11-21T10:00:59.000Z.\n',
    );
    expect((await ask('replay', 'shop', 'orders')).code).toBe(2);
    expect((await ask('preview', 'shop', 'orders', 'soon')).stderr).toContain('is not a default TTL');
  });

  test('tells the history of an item and of a container', async () => {
    const { stdout } = await ask('history', 'shop', 'orders', 'b', '--partition-key', 'ann');
    expect(stdout).toMatch(/^2026-11-21T10:00:00\.000Z {2}life 0 {2}ItemUpserted .*\n.*ItemDeleted +by key:primary/);
    expect((await ask('history', 'shop', 'orders')).stdout).toMatch(/ContainerCreated .* defaultTtl=60/);
    expect((await ask('history', 'shop', 'orders')).stdout).not.toContain('definition');
  });

  test('runs and pauses the purge, and shows its state', async () => {
    expect((await ask('purge')).stdout).toMatch(/^state: idle\noverdue items: 1 \(oldest: 1 s\)\n/);
    expect((await ask('purge', 'pause')).stdout).toMatch(/^state: paused\n/);
    expect(await ask('purge', 'run')).toMatchObject({ code: 1, stdout: expect.stringContaining('is paused') });
    // As if the run had been paused in the middle.
    const cut = vi.spyOn(world.store, 'runPurge').mockResolvedValueOnce({ expired: 3, purged: 2, heldBack: 0 });
    expect(await ask('purge', 'run')).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/erased 2 items.*\nThe purge is paused: the rest was not done\./) as string,
    });
    cut.mockRestore();
    expect((await ask('purge', 'resume')).code).toBe(0);
    expect(await ask('purge', 'run')).toMatchObject({
      code: 0,
      stdout: 'Recorded 1 expiry, erased 2 items, held back 0.\n',
    });
    expect(JSON.parse((await ask('purge', '--json')).stdout)).toMatchObject({ purgedTotal: 2 });
  });

  test('places, lists and releases holds, shows and sets a floor, erases and recovers', async () => {
    const place = (...scope: string[]) => ask('hold', 'place', 'shop', 'orders', ...scope, '--reason', 'case 7');
    expect(await place('h1', '--container')).toMatchObject({
      code: 0,
      stdout:
        'h1  standing  container  placed 2026-11-21T10:01:01.000Z by key:primary: case 7\nThe hold came too late for 2 lives, whose content had been erased before.\n',
    });
    expect((await place('h2', '--item', 'a/1', '--item', 'c', '--partition-key', 'ann')).stdout).toContain('items (2)');
    expect(
      (await place('h3', '--query', 'SELECT * FROM c WHERE c.id = @id', '--parameter', '@id="x"')).stdout,
    ).toContain('query (0)');
    expect(await place('h4', '--partition-key', 'ann')).toMatchObject({ code: 0, stderr: '' });
    // As a number it would be another key, and a hold on a key without items looks like any other.
    const mistaken = "The partition key was taken as a string. If it is not a string: --partition-key '[5]'\n";
    expect(await place('h5', '--partition-key', '5')).toMatchObject({ code: 0, stderr: mistaken });
    expect(await place('h6', '--item', 'a', '--partition-key', '5')).toMatchObject({ code: 0, stderr: mistaken });
    expect(await place('h7', '--partition-key', '[5]')).toMatchObject({ code: 0, stderr: '' });
    expect((await place('h4', '--container')).stderr).toContain('(already-exists)');
    for (const id of ['h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'h7']) {
      expect((await ask('hold', 'release', 'shop', 'orders', id, '--reason', 'closed')).stdout).toContain('released');
    }
    expect((await ask('hold', 'list', 'shop', 'orders')).stdout.trim().split('\n')).toHaveLength(7);
    expect((await ask('floor', 'shop', 'orders', '60', '--reason', 'tax law')).stdout).toMatch(
      /^retention floor: 60 s\n/,
    );
    expect((await ask('recovery-window', 'shop', 'orders')).stdout).toContain('recovery window: 0 s');
    await world.write('c');
    const erase = () => ask('erase', 'shop', 'orders', 'c', '--partition-key=ann', '--reason=r', '--requested-by=me');
    expect(await erase()).toMatchObject({ code: 1, stderr: expect.stringMatching(/until 2026-.*\(held\)/) });
    await world.store.deleteItem(WRITER, world.store.container('shop', 'orders'), 'c', '["ann"]');
    expect((await ask('recover', 'shop', 'orders', 'c', '--partition-key', 'ann', '--reason', 'oops')).stdout).toBe(
      'Life 1 has the content of life 0; it expires 2026-11-21T10:02:01.000Z.\n',
    );
    expect((await ask('recover', 'shop', 'orders', '--policy', '1', '--reason', 'none')).stdout).toBe(
      'Brought back 0 items; written again since: 0, unique key taken: 0, erased: 0.\n',
    );
    const summary = { recovered: 1, writtenSince: 0, uniqueKeyTaken: 0, erased: 0, unreadable: 2 };
    vi.spyOn(world.store, 'recoverPolicy').mockResolvedValueOnce(summary);
    expect((await ask('recover', 'shop', 'orders', '--policy', '1', '--reason', 'none')).stdout).toBe(
      'Brought back 1 item; written again since: 0, unique key taken: 0, erased: 0, damaged: 2 (epitaph fsck names them).\n',
    );
    await ask('floor', 'shop', 'orders', '0', '--reason', 'repealed');
    expect(await erase()).toMatchObject({ code: 0, stdout: 'Erased 2 lives.\n' });
  });

  test('lists what left, and exports it', async () => {
    const { stdout } = await ask('disappearances', 'shop', 'orders');
    expect(stdout).toMatch(
      /^2026-11-21T10:00:00\.000Z {2}deleted by key:primary {2}"b" in \["ann"\], life 0 {2}erased 2026-/,
    );
    expect(stdout).toMatch(/expired by container-default {2}"a\/1"/);
    expect((await ask('disappearances', 'shop', 'orders', '--format', 'csv')).stdout.split('\n')).toHaveLength(6);
    const page = JSON.parse((await ask('disappearances', 'shop', 'orders', '--json', '--limit', '1')).stdout) as object;
    expect(page).toMatchObject({ disappearances: [{ id: 'b' }], continuation: expect.any(String) });
  });

  test('rebuilds and runs fsck, with progress in plain lines if there is no terminal', async () => {
    const rebuilt = await ask('rebuild');
    expect(rebuilt).toMatchObject({ code: 0, stdout: 'Version 2 is in use: equal to the previous one.\n' });
    expect(rebuilt.stderr).toMatch(/^rebuild 100% {2}/m);
    const examined = await ask('fsck');
    expect(examined).toMatchObject({ code: 0, stdout: expect.stringMatching(/^All is as the log says: /) });
    expect(examined.stderr).toMatch(/^(?:fsck +\d+% {2}\d+\/\d+\n)*fsck 100% {2}\d+\/\d+\n$/);
  });

  test('reports a refusal of the server with exit code 1', async () => {
    expect(await ask('history', 'shop', 'nothing')).toEqual({
      code: 1,
      stdout: '',
      stderr: 'epitaph: No container of that name exists in the database. (container-not-found)\n',
    });
    expect(await ask('purge', '--key', Buffer.alloc(64, 7).toString('base64'))).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(
        /does not accept this key\. .*EPITAPH_KEY or --key\. .*keys\.json.*, except for the primary key: .* of the emulator\. \(unauthorized\)$/m,
      ),
    });
  });

  test('saves certificates, also by period, and checks them', async () => {
    const one = await ask('certificate', 'shop', 'orders', 'b', '--partition-key', 'ann');
    expect(JSON.parse(one.stdout)).toMatchObject({ statement: { life: 0, cause: 'deleted' } });
    const all = await ask('certificate', 'shop', 'orders', '--from', '2026-11-21', '--to', '2026-11-22');
    expect(all.stdout).toContain(one.stdout.slice(0, 200));
    expect(await ask('certificate', 'shop', 'orders', '--from', '2027-01-01')).toEqual({
      code: 0,
      stdout: '',
      stderr: '',
    });
    expect(await ask('certificate', 'shop', 'orders', '--from', '2027-01-01', '--to', '2026-01-01')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('later than from'),
    });
  });

  test('shows and sets the policy grace, and shows and advances the clock', async () => {
    expect((await ask('policy-grace', 'shop', 'orders', '60', '--reason', 'quick')).stdout).toContain(
      'policy grace: 60 s',
    );
    await ask('policy-grace', 'shop', 'orders', '86400', '--reason', 'slow');
    expect((await ask('policy-grace', 'shop', 'orders')).stdout).toContain('policy grace: 86400 s');
    const { stdout } = await ask('clock');
    expect(stdout).toMatch(/^2026-11-21T10:01:01\.\d{3}Z \(manual clock\)\n$/);
    expect((await ask('clock', 'advance', '0')).stdout).toBe(stdout);
    const stands = vi.spyOn(world.store, 'clockStandsStillMs').mockReturnValue(7_200_500);
    expect((await ask('clock')).stdout).toMatch(
      /\n.*stands still for another 7201 s, .* Until then nothing expires\.\n$/,
    );
    stands.mockRestore();
    const held = vi.spyOn(world.store, 'clockHeld').mockReturnValue('the system clock says …; confirm it');
    expect(await ask('clock')).toMatchObject({
      code: 0,
      stdout: `${stdout}The clock is held: the system clock says …; confirm it.\n`,
    });
    held.mockRestore();
    expect(await ask('clock', 'confirm')).toMatchObject({ code: 0, stdout });
    expect(await ask('clock', 'confirm', '--pause-purge')).toMatchObject({ code: 0, stdout });
    expect((await ask('purge')).stdout).toContain('state: paused');
    expect(await ask('purge', 'resume')).toMatchObject({ code: 0 });
  });

  test('treats an empty variable as one that is not set', async () => {
    const empty = { EPITAPH_KEY: '', EPITAPH_TLS_CA: '' };
    expect(await askWith(empty, 'purge')).toMatchObject({ code: 0, stderr: '' });
  });

  test.each([
    [[], /^epitaph: No command was given\.[^]*serve/],
    [['fly'], /no command "fly"\. The commands are serve,/],
    [['history', 'shop'], /a database and a container, or nothing/],
    [['ttl', 'shop'], /Usage: epitaph ttl <database> <container> \[<default-ttl>\]/],
    [['explain', 'shop', 'orders', 'a', '--partition-key', 'b', 'c'], /"c" is one argument too many. Usage: epitaph/],
    [['ttl', 'shop', 'orders', 'soon'], /not a default TTL/],
    [['ttl', 'shop', 'orders', '60', '--withdraw'], /not both/],
    [['ttl', 'shop', 'orders', '--confirm'], /--confirm need a <default-ttl>/],
    [['brake', 'shop', 'orders', 'hard'], /a whole number of items, a share/],
    [['explain', 'shop', 'orders', 'a'], /the partition key of the item as well: --partition-key <value>/],
    [['purge', 'faster'], /status, run, pause, resume or scavenge/],
    [['disappearances', 'shop', 'orders', '--format', 'pdf'], /csv or ndjson/],
    [['hold', 'place', 'shop', 'orders'], /place or release with the id of a hold/],
    [
      ['hold', 'place', 'shop', 'orders', 'h', '--reason', 'r'],
      /A hold needs one of --container, --query, --partition-key/,
    ],
    [
      ['hold', 'place', 'shop', 'orders', 'h', '--container', '--item', 'a', '--partition-key', 'b'],
      /A hold needs one of/,
    ],
    [
      ['hold', 'place', 'shop', 'orders', 'h', '--query', 'SELECT * FROM c', '--partition-key', 'b'],
      /A hold needs one of/,
    ],
    [
      ['hold', 'place', 'shop', 'orders', 'h', '--partition-key', 'b', '--parameter', '@a=1'],
      /--parameter needs --query/,
    ],
    [['hold', 'place', 'shop', 'orders', 'h', '--item', 'a', '--reason', 'r'], /--partition-key/],
    [['hold', 'place', 'shop', 'orders', 'h', '--container'], /--reason is needed/],
    [['hold', 'release', 'shop', 'orders', 'h'], /--reason is needed/],
    [['floor', 'shop', 'orders', 'long', '--reason', 'x'], /not a number of seconds/],
    [['recover', 'shop', 'orders', '--reason', 'x'], /the id of an item, or --policy/],
    [['erase', 'shop', 'orders', 'a', '--partition-key', 'b', '--reason', 'x'], /--requested-by/],
    [['clock', 'advance'], /advance with a whole number of milliseconds/],
    [['clock', 'confirm', '5'], /clock takes confirm/],
    [['clock', '--pause-purge'], /--pause-purge can only be used with clock confirm/],
    [['certificate', 'shop', 'orders', 'a'], /--partition-key/],
    [['certificate', 'shop', 'orders', '--life', '1'], /--partition-key and --life need the id of an item/],
    [
      ['certificate', 'shop', 'orders', 'a', '--partition-key', 'b', '--from', '2026-01-01'],
      /--from and --to can't be used with the id of an item/,
    ],
    [['fsck', '--fast'], /fsck has no option --fast; epitaph fsck --help/],
    [['fsck', '--key'], /--key needs a value/],
    [['fsck', '--json=yes'], /--json takes no value/],
    [['restore', '--endpoint', 'http://x'], /restore has no option --endpoint/],
    [['ttl', 'shop', 'orders', '-1'], /Put a lone -- before a negative number, as in: epitaph ttl … -- -1\n/],
    [['ttl', 'shop', 'orders', '2147483648'], /a whole number of seconds from 1 to 2147483647/],
    [['brake', 'shop', 'orders', '1.5'], /a whole number of items/],
    [['brake', 'shop', 'orders', '101%'], /a share of them/],
    [['disappearances', 'shop', 'orders', '--limit', '5'], /need --json/],
    [['explain', 'shop', 'orders', '', '--partition-key', 'a'], /operand of explain is empty/],
    [['restore', '--to', ''], /The value of --to is empty/],
    [['erase', 'shop', 'orders', 'a', '--partition-key', '', '--reason', ''], /The value of --reason is empty/],
    [['bundle', 'shop', 'orders', '--output', import.meta.dirname], /is a folder/],
    [['verify', 'certificate', MAIN], /proof\/key/],
    [['verify', 'certificate', MAIN, '--public-key', 'none'], /neither a verifier key .*, nor a file/],
    [['verify', 'certificate', MAIN, '--public-key', MAIN], /the file contains no verifier key/],
    [['verify', 'log', '--checkpoint', MAIN], /proof\/key/],
    [['ledger', 'none'], /none can't be read/],
    [['fsck', '--endpoint', 'ftp://x'], /must be a URL/],
    [
      ['fsck', '--key', 'c2VjcmV0\n'],
      /^epitaph: The key \(--key or EPITAPH_KEY\) contains a space, a line end [^\n]*\n$/,
    ],
  ])('ends %j with exit code 2', async (args, message) => {
    expect(await ask(...args)).toMatchObject({ code: 2, stdout: '', stderr: expect.stringMatching(message) });
  });

  test.skipIf(process.platform !== 'linux')('refuses arguments in an encoding other than UTF-8', async () => {
    const hold = (key: string) => {
      const line = `exec "$0" "$1" hold place shop orders h --partition-key "$(printf '${key}')" --reason x`;
      return spawnSync('sh', ['-c', line, process.execPath, MAIN], { env: { EPITAPH_ENDPOINT: 'http://127.0.0.1:1' } });
    };
    const { status, stderr } = hold(String.raw`M\374ller`);
    expect([status, String(stderr)]).toEqual([
      2,
      'epitaph: "M\uFFFDller" is not encoded in UTF-8. Set the terminal to UTF-8.\n',
    ]);
    // No server answers.
    expect(hold(String.raw`M\357\277\275ller`).status).toBe(3);
  });

  test('reads a number of seconds from the environment as it does from a flag', async () => {
    const restore = ['restore', '--postgres=postgresql://x', '--ledger-head', `1:${'a'.repeat(43)}`];
    const given = { EPITAPH_MASTER_KEY: 'x', EPITAPH_EVENT_STORE: 'esdb://x', EPITAPH_VAULT_COPIES_KEPT: 'a week' };
    expect(await askWith(given, ...restore)).toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringContaining('EPITAPH_VAULT_COPIES_KEPT must be a whole number of seconds.'),
    });
  });

  test('ends with exit code 3 if no server answers, or one breaks off', async () => {
    expect(await ask('fsck', '--endpoint', 'http://127.0.0.1:1')).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('No server answers at http://127.0.0.1:1'),
    });
    const tls = await ask('fsck', '--endpoint', endpoint.replace('http:', 'https:'));
    expect(tls).toMatchObject({
      code: 3,
      stderr: expect.stringMatching(/does not use TLS\. Should --endpoint begin with http:\/\/\?\n$/),
    });
    const breaking = createServer((_request, response) => {
      response.writeHead(200, { 'content-length': 100 });
      response.write('event: progress\ndata: {"done":1,"total":2}\n\n', () => response.destroy());
    }).listen(0, '127.0.0.1');
    await once(breaking, 'listening');
    const { port } = breaking.address() as { port: number };
    expect(await ask('fsck', '--endpoint', `http://127.0.0.1:${port}`)).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('broke'),
    });
    breaking.close();
  });

  test('explains the absence of an option that npm has taken for its own', async () => {
    const fromNpm = { npm_lifecycle_event: 'epitaph', npm_config_partition_key: 'true', npm_config_port: 'true' };
    const hint =
      /npm has taken --partition-key for itself\. Put a lone -- before the options that are for epitaph\.\n$/;
    const { code, stderr } = await askWith(fromNpm, 'explain', 'shop', 'orders', 'a/1', 'ann');
    expect([code, stderr]).toEqual([2, expect.stringMatching(hint)]);
    expect((await askWith(fromNpm, 'serve', '8082')).stderr).toContain(
      'serve has no argument "8082". npm has taken --port',
    );
    expect((await askWith({ npm_lifecycle_event: 'epitaph' }, 'explain', 'shop')).stderr).not.toContain('npm');
    expect((await askWith(fromNpm, 'explain', 'shop')).stderr).toContain('[options]. npm has taken');
  });

  test('reports the answer of another server as such, without printing its text', async () => {
    const page = '\u001b[2J<html>\nepitaph: all is well';
    const other = createServer((_request, response) => void response.end(page)).listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    const { code, stdout, stderr } = await ask('clock', '--endpoint', `http://127.0.0.1:${port}`);
    other.close();
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/^epitaph: The answer \(status 200\) is not from Epitaph, .*\n$/);
  });

  test('accepts the base address of the management calls as endpoint, and asks about a wrong one', async () => {
    expect(await ask('clock', '--endpoint', `${endpoint}/_epitaph/`)).toMatchObject({ code: 0, stderr: '' });
    expect(await ask('clock', '--endpoint', `${endpoint}/store`)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(
        'The answer (status 401) is not from Epitaph, or Epitaph is not at this address. Is --endpoint right?',
      ),
    });
  });

  test('does not report a rebuild as running if the server stopped in the middle of it', async () => {
    const status = { state: 'running', version: 2, position: 10, headPosition: 20, resumedFrom: 0 };
    const stopping = createServer(({ method }, response) => {
      if (method === 'POST') response.end(JSON.stringify(status));
      else
        response
          .setHeader('content-type', 'text/event-stream')
          .end(`event: progress\ndata: ${JSON.stringify(status)}\n\n`);
    }).listen(0, '127.0.0.1');
    await once(stopping, 'listening');
    const { port } = stopping.address() as { port: number };
    const { code, stdout, stderr } = await ask('rebuild', '--endpoint', `http://127.0.0.1:${port}`);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/The server stopped before the rebuild was done\. The next rebuild continues from there\./);
    stopping.close();
  });

  describe('with a server that sends no answer yet', () => {
    const silent = createServer();
    let isAlive = true;
    let asked = '';
    const patience = { silenceMs: 100, livenessMs: 200 };
    beforeAll(async () => {
      silent.listen(0, '127.0.0.1');
      await once(silent, 'listening');
      silent.on('request', ({ url }, response) => {
        if (url!.endsWith('/health/live')) {
          if (isAlive) response.end('{}');
          return;
        }
        asked = url!;
        if (url!.endsWith('/late')) setTimeout(() => response.end('{"done":true}'), 500);
        if (url!.endsWith('/lines')) response.write('"the first"\n');
      });
    });
    afterAll(() => {
      silent.closeAllConnections();
      silent.close();
    });
    const client = () =>
      new ManagementClient(
        `http://127.0.0.1:${(silent.address() as { port: number }).port}`,
        EMULATOR_KEY,
        undefined,
        patience,
      );

    test('waits for long work while the server sends signs of life', async () => {
      isAlive = true;
      expect(await client().call('POST', '/late')).toEqual({ done: true });
    });

    test('gives up if these are missing too, before its answer or in the middle of it', async () => {
      isAlive = false;
      const given = {
        name: 'ServerUnreachable',
        message: expect.stringContaining('did not answer in time') as unknown,
      };
      await expect(client().call('POST', '/never')).rejects.toMatchObject(given);
      expect(asked).toBe('/_epitaph/never');
      const lines: string[] = [];
      const reading = (async () => {
        for await (const line of client().lines('GET', '/lines', { accept: 'application/x-ndjson' })) lines.push(line);
      })();
      await expect(reading).rejects.toMatchObject(given);
      expect(lines).toEqual(['"the first"']);
    });

    test('gives up on one that accepts the connection and does not speak TLS', async () => {
      isAlive = false;
      const mute = createNetServer(() => {}).listen(0, '127.0.0.1');
      await once(mute, 'listening');
      const { port } = mute.address() as { port: number };
      for (const scheme of ['http', 'https']) {
        const asking = new ManagementClient(`${scheme}://127.0.0.1:${port}`, EMULATOR_KEY, undefined, patience);
        await expect(asking.call('GET', '/purge')).rejects.toMatchObject({ name: 'ServerUnreachable' });
      }
      mute.close();
    });
  });

  test('has the results, messages and exit codes that scripts expect of a program', async () => {
    const environment = { EPITAPH_ENDPOINT: endpoint };
    const [right, wrong] = await Promise.all([
      epitaph(['purge', '--json'], environment),
      epitaph(['history', 'shop', 'nothing'], environment),
    ]);
    expect(right).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(right.stdout)).toHaveProperty('overdueItems');
    expect(wrong).toMatchObject({ code: 1, stdout: '', stderr: expect.stringMatching(/^epitaph: /) });
  });

  test('fails if its output could not be written, and ends silently if its reader leaves', async () => {
    const shell = async (line: string) => {
      // Many SSH sessions set a locale that the machine lacks. Then bash itself would print a warning.
      const env = { ...process.env, LC_ALL: 'C', EPITAPH_ENDPOINT: endpoint };
      const child = spawn('bash', ['-c', line.replace('epitaph', '"$0" "$1"'), process.execPath, MAIN], { env });
      const texts = { stdout: '', stderr: '' };
      child.stdout.on('data', (chunk) => (texts.stdout += String(chunk)));
      child.stderr.on('data', (chunk) => (texts.stderr += String(chunk)));
      const [code] = (await once(child, 'close')) as [number];
      return { code, ...texts };
    };
    expect(await shell('epitaph purge > /dev/full')).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^epitaph: The output can't be written: ENOSPC.*\n$/),
    });
    expect(await shell('epitaph purge | true; exit ${PIPESTATUS[0]}')).toEqual({ code: 1, stdout: '', stderr: '' });
    expect(await shell('epitaph fsck --json 2> /dev/full > /dev/null')).toMatchObject({ code: 0 });
  });

  test('changes a TTL policy, now or later, within its brake, and shows which is in force', async () => {
    await world.write('a');
    await world.store.advanceClock(30_000);
    expect(await ask('brake', 'shop', 'orders', '10%', '--reason', 'section 4')).toMatchObject({ code: 0, stderr: '' });
    const braked = await ask('ttl', 'shop', 'orders', '5');
    expect(braked).toMatchObject({ code: 1, stderr: expect.stringContaining('(ttl-change-braked)') });
    const confirmed = await ask('ttl', 'shop', 'orders', '5', '--confirm', '--reason', 'the board');
    expect(confirmed).toMatchObject({ code: 0, stderr: '' });
    const later = await ask('ttl', 'shop', 'orders', 'off', '--from', '2026-12-24T00:00:00Z', '--reason', 'a rest');
    expect(later.stdout).toMatch(
      /version 3: off from 2026-12-24T00:00:00\.000Z, set by key:primary: a rest, scheduled$/m,
    );
    expect((await ask('ttl', 'shop', 'orders', '--withdraw', '--reason', 'no rest')).stdout).not.toContain('scheduled');
    expect((await ask('brake', 'shop', 'orders', 'off')).code).toBe(0);
    const { stdout } = await ask('history', 'shop', 'orders');
    expect(stdout).toMatch(/TtlBrakeChanged +by key:primary {2}from=off to\.maxShare=0\.1 reason=section 4$/m);
    expect(stdout).toMatch(
      /ContainerTtlChanged .* to=5 .* expiringAtOnce\.items=1 expiringAtOnce\.of=1 confirmed=true$/m,
    );
    expect(stdout).toMatch(/HoldPlaced +by key:primary {2}holdId=h3 scope\.kind=query reason=case 7 tooLateFor=0$/m);
    expect(stdout).toMatch(/ContainerTtlChanged .* to=off .*effectiveFrom=2026-12-24T00:00:00\.000Z/);
    const shown = await ask('ttl', 'shop', 'orders');
    expect(shown.stdout).toMatch(
      /^version 1: 60 s from .*\nversion 2: 5 s from .*, set by key:primary: the board, in force\nbrake: none\npolicy grace: 86400 s\n$/,
    );
    const { current } = JSON.parse((await ask('ttl', 'shop', 'orders', '--json')).stdout) as { current: object };
    expect(current).toMatchObject({ version: 2, defaultTtl: 5 });
  });

  test('places a hold by query that compares all digits of a parameter', async () => {
    const long = '12345678901234567';
    await world.writeText('long', `{"id":"long","customer":"ann","n":${long}}`);
    const scope = ['--query', 'SELECT * FROM c WHERE c.n = @n', '--parameter', `@n=${long}`];
    const { stdout } = await ask('hold', 'place', 'shop', 'orders', 'by-number', ...scope, '--reason', 'case 8');
    expect(stdout).toContain('query (1)');
  });

  test('prints its version', async () => {
    expect(await ask('--version')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^epitaph \d+\.\d+\.\d+\n$/),
    });
  });

  test('prints help in lines that fit a terminal, for all commands and for each', async () => {
    const general = await ask('-h');
    expect(general).toMatchObject({ code: 0, stderr: '' });
    const names = Array.from(general.stdout.matchAll(/^ {2}([a-z-]+)/gm), ([, name]) => name!);
    expect(names).toContain('recovery-window');
    for (const name of names) {
      const { stdout } = await ask(name, '-h');
      expect(stdout).toMatch(new RegExp(`^epitaph ${name} `));
      expect(stdout.split('\n').filter((line) => line.length > 100)).toEqual([]);
    }
    expect((await ask('explain', '--help')).stdout).toContain('<time> is like 2026-');
    expect((await ask('keys', '--help')).stdout).not.toContain('--endpoint');
  });

  test.each(['serve', 'history', 'explain', 'disappearances', 'rebuild', 'purge', 'fsck'])(
    'prints help for %s',
    async (name) => {
      const { code, stdout } = await ask(name, '--help');
      expect(code).toBe(0);
      expect(stdout).toMatch(new RegExp(`^epitaph ${name} `));
      expect(stdout).toContain('Exit codes: 0, all is well');
      expect(stdout).not.toContain(EMULATOR_KEY);
    },
  );
});

describe('progress', () => {
  const shown = (isTTY: boolean, steps: readonly number[]): string => {
    let text = '';
    const progress = new Progress({ isTTY, write: (more) => (text += more) }, 'work');
    for (const done of steps) progress.update(done, 100);
    progress.end();
    return text;
  };

  test('is a bar that redraws itself on a terminal', () => {
    const text = shown(true, [50, 100]);
    expect(text).toContain('[###############...............] work  50%  50/100');
    expect(text.endsWith(`\r\u001B[K[${'#'.repeat(30)}] work 100%  100/100\n`)).toBe(true);
  });

  test('is a line at every tenth elsewhere', () => {
    expect(
      shown(
        false,
        Array.from({ length: 101 }, (_, n) => n),
      )
        .trimEnd()
        .split('\n'),
    ).toHaveLength(11);
  });

  test('starts again without a terminal for each part of the work, as in a restore, and not if a little work is added', () => {
    const lines = (steps: readonly number[]) =>
      shown(false, steps)
        .trimEnd()
        .split('\n')
        .map((line) => Number(/(\d+)%/.exec(line)![1]));
    expect(lines([100, 5, 50, 100, 2, 40])).toEqual([100, 5, 50, 100, 2, 40]);
    expect(lines([49, 50, 49, 50, 61, 59])).toEqual([49, 50, 61]);
  });
});

describe('what clients have named', () => {
  test('are printed with escapes if they move a terminal’s cursor or look like another line', async () => {
    const id = 'x\u001b[2J\u009b31m\r\n2026-11-21T10:00:00.000Z  forged\u202e\u2028';
    const reason = 'ok\n2026-11-21T10:00:00.000Z  forged\u001b]0;x\u0007';
    const own = await openWorld();
    const there = { EPITAPH_ENDPOINT: await own.app.listen({ port: 0, host: '127.0.0.1' }) };
    const say = (...args: string[]) => askWith(there, ...args);
    await own.write(id);
    const named = ['shop', 'orders', id, '--partition-key', 'ann'];
    await say('hold', 'place', 'shop', 'orders', 'unseen', '--item', id, '--partition-key', 'ann', '--reason', reason);
    const lines = [
      await say('explain', ...named),
      await say('history', ...named),
      await say('hold', 'list', 'shop', 'orders'),
      await say('history', 'shop', 'orders'),
      await say('explain', ...named, '--json'),
      await say('erase', ...named, '--reason', 'x', '--requested-by', 'y'),
    ];
    for (const { stdout, stderr } of lines) {
      // The printed lines contain no control characters except their ends.
      expect((stdout + stderr).replaceAll('\n', '')).not.toMatch(/[\p{Cc}\u202e\u2028]/u);
      expect(stdout).not.toMatch(/^2026-11-21T10:00:00\.000Z {2}forged/m);
    }
    expect(lines[0]!.stdout).toContain('\\u009b31m');
    expect(lines[2]!.stdout).toContain('ok\\u000a2026');
    expect(JSON.parse(lines[4]!.stdout)).toMatchObject({ id });
    await say('hold', 'release', 'shop', 'orders', 'unseen', '--reason', 'over');
    await own.store.deleteItem(WRITER, own.store.container('shop', 'orders'), id, '["ann"]');
    // Files get the original text.
    expect((await say('disappearances', 'shop', 'orders', '--format', 'csv')).stdout).toContain(id);
    const kept = (await say('disappearances', 'shop', 'orders', '--format', 'ndjson')).stdout.trimEnd().split('\n');
    expect(kept.map((line) => JSON.parse(line) as unknown)).toMatchObject([{ id }]);
    await own.close();
  });
});
