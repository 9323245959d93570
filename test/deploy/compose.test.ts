import { execFile, execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { CosmosClient } from '@azure/cosmos';
import { parse } from 'yaml';
import { afterAll, describe, expect, it } from 'vitest';
import { optionNames, variableOf } from '@epitaph/api/config/options.ts';
import { readConfiguration } from '@epitaph/api/config/configuration.ts';
import { Load } from '../postgres/load.ts';
import { clientTarget, fsckOf } from '../postgres/processes.ts';
import { environmentOf, readDockerfile, ROOT } from './dockerfile.ts';

interface Service {
  readonly image: string;
  readonly build?: string;
  readonly command?: readonly string[];
  readonly environment?: Readonly<Record<string, string | number>>;
  readonly volumes?: readonly string[];
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>;
  readonly stop_grace_period?: string;
  readonly healthcheck?: { readonly test: readonly string[] };
}

const secrets = {
  EPITAPH_MASTER_KEY: randomBytes(32).toString('base64'),
  EPITAPH_KEY: randomBytes(64).toString('base64'),
};
const file = parse(readFileSync(path.join(ROOT, 'compose.yaml'), 'utf8'), { merge: true }) as {
  readonly services: Readonly<Record<string, Service>>;
  readonly volumes: Readonly<Record<string, unknown>>;
};
const nodes = ['node1', 'node2'].map((name) => file.services[name]!);
const haproxy = readFileSync(path.join(ROOT, 'deploy/haproxy.cfg'), 'utf8');

/** The variables as Compose sets them. It supports `${NAME:?message}`. */
const environmentIn = ({ environment = {} }: Service): Record<string, string> =>
  Object.fromEntries(
    Object.entries(environment).map(([name, value]) => [
      name,
      String(value).replaceAll(/\$\{(\w+):\?[^}]*\}/g, (_, variable: keyof typeof secrets) => secrets[variable]),
    ]),
  );

describe('compose.yaml', () => {
  it('gives the nodes existing options with values that are valid together', () => {
    const known = new Set(optionNames.map(variableOf));
    for (const node of nodes) {
      const environment = { ...environmentOf(readDockerfile().at(-1)!), ...environmentIn(node) };
      for (const name of Object.keys(environmentIn(node))) expect(known, name).toContain(name);
      expect(readConfiguration({ flags: {}, environment })).toMatchObject({
        host: '0.0.0.0',
        postgres: expect.stringContaining('@postgres:5432/'),
        'event-store': expect.stringContaining('//kurrentdb:2113'),
        'master-key': secrets.EPITAPH_MASTER_KEY,
      });
    }
  });

  it('waits for a draining node longer than the balancer takes to notice it', () => {
    const [, everySeconds, failures] = /check inter (\d+)s fall (\d+)/.exec(haproxy)!;
    for (const node of nodes) {
      const drain = Number(environmentIn(node)['EPITAPH_DRAIN']);
      expect(drain).toBeGreaterThan(Number(everySeconds) * Number(failures) + 1);
      // After the drain, the server gives requests in progress ten seconds.
      expect(Number.parseInt(node.stop_grace_period!, 10)).toBeGreaterThan(drain + 10);
    }
  });

  it('has each node behind the balancer, every volume declared, and every mounted file', () => {
    expect([...haproxy.matchAll(/^ {2}server (\S+) (\S+)/gm)].map(([, name, address]) => [name, address])).toEqual([
      ['node1', 'node1:8081'],
      ['node2', 'node2:8081'],
    ]);
    const named = new Set<string>();
    for (const { volumes = [], depends_on: waitsFor = {} } of Object.values(file.services)) {
      for (const volume of volumes) {
        const [from] = volume.split(':') as [string];
        if (from.startsWith('.')) expect(existsSync(path.join(ROOT, from)), from).toBe(true);
        else named.add(from);
      }
      for (const [service, { condition }] of Object.entries(waitsFor)) {
        expect(condition).toBe('service_healthy');
        // Our own images have their health check from the Dockerfile.
        expect(file.services[service]?.healthcheck ?? file.services[service]?.build, service).toBeDefined();
      }
    }
    expect([...named].toSorted()).toEqual(Object.keys(file.volumes).toSorted());
  });

  it('configures PostgreSQL as the page on servers requires', () => {
    const page = readFileSync(path.join(ROOT, 'docs/servers.md'), 'utf8');
    const wanted = [...page.matchAll(/ALTER SYSTEM SET (\w+) = (\w+);/g)].map(([, name, value]) => `${name}=${value}`);
    expect(wanted.length).toBeGreaterThan(0);
    expect(file.services['postgres']!.command).toEqual(expect.arrayContaining(wanted));
  });
});

const whyNoDocker: string | undefined = (() => {
  try {
    execFileSync('docker', ['info'], { stdio: 'ignore', timeout: 20_000 });
    execFileSync('docker', ['compose', 'version'], { stdio: 'ignore', timeout: 20_000 });
    return undefined;
  } catch {
    return 'there is no Docker here, or no docker compose';
  }
})();
const skipped = whyNoDocker === undefined ? '' : ` [skipped: ${whyNoDocker}]`;

describe.skipIf(whyNoDocker !== undefined)(`compose.yaml, started by Docker${skipped}`, () => {
  const compose = (...args: string[]) =>
    promisify(execFile)('docker', ['compose', '-p', `epitaph-test-${process.pid}`, ...args], {
      cwd: ROOT,
      env: { ...process.env, ...secrets },
      maxBuffer: 64 * 1024 * 1024,
    });
  afterAll(() => compose('down', '--volumes', '--timeout', '1'), 120_000);

  it('serves clients through a restart of one node after the other', { timeout: 1_200_000 }, async () => {
    await compose('up', '--build', '--wait');
    const endpoint = 'http://127.0.0.1:8081';
    const client = new CosmosClient({ endpoint, key: secrets.EPITAPH_KEY });
    const { database } = await client.databases.create({ id: 'shop' });
    const { container } = await database.containers.create({ id: 'sessions', partitionKey: '/id' });
    const load = Load.start([clientTarget(container)], { workers: 4 });
    for (const name of ['node1', 'node2']) {
      await load.goesOn(30);
      await compose('restart', name);
      await compose('up', '--wait');
    }
    await load.goesOn(30);
    await load.stop();
    expect([load.failures, load.wrong]).toEqual([[], []]);
    for (const item of load.items) load.judge(item, await clientTarget(container).read(item.id));
    expect(load.wrong).toEqual([]);
    expect(await fsckOf(endpoint, secrets.EPITAPH_KEY)).toMatchObject({ ok: true, problems: [] });
    const { stdout: user } = await compose('exec', '-T', 'node1', 'id', '-un');
    expect(user.trim()).toBe('node');
  });
});
