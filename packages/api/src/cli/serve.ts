import { constants } from 'node:os';
import path from 'node:path';
import type { Server as TlsServer } from 'node:tls';
import { setFlagsFromString } from 'node:v8';
import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { isoTime, systemClocks } from '@epitaph/core/clock.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { UnreadableEvent } from '@epitaph/core/upcast.ts';
import { type EmbeddedStoreOptions, openEmbeddedStore, type SharedStorageOptions } from '../compose.ts';
import { nodeRoles } from '../store/parts.ts';
import { backupFolderProblem } from '../config/backup-folder.ts';
import { BadConfiguration } from '../config/configuration.ts';
import { readIdentities } from '../config/identities-file.ts';
import { keysInForce, refuseEmulatorKey, type KeysInForce } from '../config/keys-file.ts';
import { isLoopbackHost } from '../config/loopback.ts';
import type { Configuration } from '../config/options.ts';
import { outOfDate, readTls, type TlsFiles } from '../config/tls.ts';
import { wait } from '../wait.ts';
import { Identities } from '../http/identities.ts';
import { EMULATOR_KEY, KeyRing } from '../http/keys.ts';
import { closeWithin } from '../http/close-within.ts';
import { Draining } from '../http/draining.ts';
import { connectionsBeside, OWN_FILES } from '../http/limits.ts';
import { buildServer } from '../http/server.ts';
import { registerManagement } from '../management/plugin.ts';
import { sendProblem } from '../management/send-problem.ts';
import type { StoreApi } from '../store/store-api.ts';
import { exitCodes } from './exit-codes.ts';
import { openLog } from './log.ts';
import { otherHostsRefused } from './loopback-guard.ts';

/** How long requests under way may take to end when the server stops. */
const STOP_WITHIN_MS = 10_000;
/** Under npm, Ctrl-C sends two signals, one from the terminal and one from npm. Only a later one means "at once". */
const SECOND_SIGNAL_AFTER_MS = 500;

/**
 * Runs the store until a signal ends it.
 *
 * @returns the exit code
 * @throws BadConfiguration, or an error of a storage adapter, for anything that the operator can fix
 * @throws StorageUnavailable when a server that it needs is away or not up yet: the same start may work a little later
 */
export async function serve(configuration: Configuration, print: (line: string) => void): Promise<number> {
  // When V8 has seen that objects live long, as documents do while their cache fills, it allocates later ones among the
  // old objects from the start. A third of what a scan of a million items released was then collected in pauses of half
  // a second.
  setFlagsFromString('--no-allocation-site-pretenuring');
  const log = openLog(configuration['log-level']);
  const openFiles = openFileLimit();
  if (openFiles <= OWN_FILES) {
    throw new BadConfiguration(
      `This process may have ${openFiles} files and connections open, and the store needs ${OWN_FILES} for its own. Raise the limit (ulimit -n, or LimitNOFILE of a systemd unit).`,
    );
  }
  let tls = readTls(configuration);
  const identities = await openIdentities(configuration, log);
  const loopback = await isLoopbackHost(configuration.host);
  if (configuration.key === EMULATOR_KEY && !loopback) refuseEmulatorKey();
  let isStarting = true;
  const signal = firstSignal(
    readsAgain(configuration) ? ['SIGINT', 'SIGTERM'] : ['SIGINT', 'SIGTERM', 'SIGHUP'],
    (name) => {
      // No request is served yet, so stopping is as safe as a crash, and projecting a log may take minutes.
      if (!isStarting) return;
      print(`epitaph: stopping (${name})`);
      process.exit(exitCodes.ok);
    },
  );
  let app: FastifyInstance | undefined;
  if (tls !== undefined) {
    // Registered here, because a program that renews certificates does not know that the store is still starting, and
    // the signal would end it.
    renewCertificates(configuration, log, (renewed) => {
      tls = renewed;
      (app?.server as unknown as TlsServer | undefined)?.setSecureContext(renewed);
    });
  }
  if (identities !== undefined) renewIdentities(identities, configuration, log);
  const endTraces = await startTraces(configuration.traces, log);
  // Not awaited: a network disk that is away may not answer at all.
  void warnIfNoBackups(configuration, log);
  const { promise: lost, resolve: lose } = Promise.withResolvers<Error>();
  const store = await openStore(configuration, {
    onFault: (error) => log.error({ err: error }, 'background work failed and will be tried again'),
    onUnreadable: ({ message }) => log.error(message),
    onWriterLost: lose,
    onLoss: (what) => log.warn(what),
  });
  const draining = new Draining();
  try {
    await startClock(store, configuration, print);
    const keys = keysInForce({ folder: configuration.data, given: configuration.key, loopback });
    const origins = configuration['cors-origins'];
    if (keys.primary === 'emulator' && origins?.includes('*') === true) {
      throw new BadConfiguration(
        'With the published emulator key every web page could read this store. List the allowed origins in --cors-origins, or give another --key.',
      );
    }
    app = buildServer({
      store,
      keys: new KeyRing(
        keys.texts,
        systemClocks.wallMs,
        configuration.clock === 'system' ? () => store.nowMs() : undefined,
      ),
      identities,
      consistency: {
        level: configuration.consistency,
        maxStalenessPrefix: configuration['max-staleness-prefix'],
        maxStalenessSeconds: configuration['max-staleness-seconds'],
      },
      limits: { connections: connectionsBeside(openFiles) },
      logger: log,
      origins,
      scripts: configuration.scripts === 'on',
      tls,
      guard: keys.primary === 'emulator' ? otherHostsRefused() : undefined,
      sendUnroutable: sendProblem,
      plugins: [
        (server) => {
          registerManagement(server, {
            store,
            keys: new KeyRing(keys.texts),
            identities,
            draining: () => draining.begun,
          });
        },
        (server) => draining.register(server),
      ],
    });
    isStarting = false;
    await listen(app, configuration);
    if (tls !== undefined) warnIfOutOfDate(tls, log);
    const endpoint = endpointOf(app, configuration);
    for (const line of welcome(endpoint, keys, configuration, store)) print(line);
    log.info({ endpoint, data: path.resolve(configuration.data), clock: configuration.clock }, 'started');
    const reason = await Promise.race([signal, lost]);
    if (reason instanceof Error) {
      // Only a new start helps, and the supervisor of the process will do that.
      log.fatal(reason.message);
      return exitCodes.problem;
    }
    print(`epitaph: stopping (${reason})`);
    log.info({ signal: reason }, 'stopping');
    draining.begin();
    await wait(configuration.drain * 1000);
  } finally {
    if (app !== undefined) await closeWithin(app, STOP_WITHIN_MS);
    await store.close();
    await endTraces();
  }
  log.info('stopped');
  return exitCodes.ok;
}

/**
 * Resolves with the name of the first signal to stop. `onFirst` is called at once; a later signal ends the process at
 * once.
 */
function firstSignal(names: readonly NodeJS.Signals[], onFirst: (name: string) => void): Promise<string> {
  return new Promise((resolve) => {
    let firstMs: number | undefined;
    for (const name of names) {
      process.on(name, () => {
        const nowMs = systemClocks.monotonicMs();
        if (firstMs !== undefined && nowMs - firstMs > SECOND_SIGNAL_AFTER_MS) {
          process.exit(128 + constants.signals[name]);
        }
        if (firstMs === undefined) onFirst(name);
        firstMs ??= nowMs;
        resolve(name);
      });
    }
  });
}

/**
 * Sends traces, if a destination is configured.
 *
 * @returns a function that sends the last of them
 */
async function startTraces(url: Configuration['traces'], log: Logger): Promise<() => Promise<void>> {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: any, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: ofTraces } = process.env;
  if (url === 'off' || (url === undefined && !any && !ofTraces)) return async () => {};
  const { exportTraces } = await import('../telemetry/otlp.ts');
  return exportTraces({
    url,
    onFault: ({ message }) => log.warn(`traces could not be sent to their collector: ${message}`),
  });
}

async function openStore(
  configuration: Configuration,
  told: Pick<EmbeddedStoreOptions, 'onFault' | 'onUnreadable' | 'onWriterLost' | 'onLoss'>,
): ReturnType<typeof openEmbeddedStore> {
  const { config, 'backup-folder': backupFolder, 'purge-ledger': purgeLedger } = configuration;
  const { 'tls-cert': cert, 'tls-key': key, identities } = configuration;
  try {
    return await openEmbeddedStore({
      folder: configuration.data,
      clock: configuration.clock,
      masterKey: configuration['master-key'],
      purgeLedger,
      besides: [config, cert, key, identities, backupFolder, purgeLedger].filter((file) => file !== undefined),
      backupsInto: backupFolder === undefined ? undefined : { below: backupFolder },
      startMs: configuration.now,
      maxDowntimeSeconds: configuration['max-downtime'],
      eventStore: configuration['event-store'],
      shared: sharedStorage(configuration),
      policyGraceSeconds: configuration['policy-grace'],
      readyLagEvents: configuration['ready-lag'],
      scavengeEverySeconds: configuration['scavenge-every'],
      defaultThroughput: configuration.throughput,
      serverless: configuration.throughput?.kind === 'none',
      ...told,
    });
  } catch (error) {
    // Other errors that an adapter throws at a start are reported as for any command.
    const isForOperator = error instanceof StorageUnavailable && error.isForOperator;
    if (isForOperator || error instanceof UnreadableEvent) throw new BadConfiguration(error.message);
    throw error;
  }
}

function sharedStorage({ postgres, roles, ...rest }: Configuration): SharedStorageOptions | undefined {
  if (postgres === undefined) return undefined;
  return {
    url: postgres,
    copiesKeptSeconds: rest['vault-copies-kept'],
    roles: new Set(nodeRoles.filter((role) => roles.split(',').includes(role))),
    policyDelayMs: rest['policy-delay'] * 1000,
  };
}

/** How many files and connections the system allows this process to have open. */
function openFileLimit(): number {
  // Looking up host names could take long. The types don't have this property yet.
  (process.report as { excludeNetwork?: boolean }).excludeNetwork = true;
  const { userLimits } = process.report.getReport() as {
    readonly userLimits?: { readonly open_files: { readonly soft: number | 'unlimited' } };
  };
  const limit = userLimits?.open_files.soft;
  return typeof limit === 'number' ? limit : Number.POSITIVE_INFINITY;
}

/** `--now` is the time at which a new folder starts. The clock of a folder that was used before is advanced to it. */
async function startClock(store: StoreApi, { now }: Configuration, print: (line: string) => void): Promise<void> {
  if (now === undefined) return;
  const nowMs = store.nowMs();
  if (now > nowMs) await store.advanceClock(now - nowMs);
  else if (now < nowMs)
    print(`epitaph: the manual clock is at ${isoTime(nowMs)}, which is later than --now: time never goes back`);
}

async function listen(app: FastifyInstance, { host, port }: Configuration): Promise<void> {
  try {
    // As many connections may wait to be accepted as may be open, as far as the system allows. Others would retry only
    // after seconds.
    await app.listen({ host, port, backlog: app.server.maxConnections });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    switch (code) {
      case 'EADDRINUSE':
        throw new BadConfiguration(
          `Port ${port} on ${host} is in use by another program. Stop that program, or use another port (--port; 0 picks a free one).`,
        );
      case 'EACCES':
        throw new BadConfiguration(`This user may not listen on port ${port}. Use a port from 1024 on (--port).`);
      case 'EADDRNOTAVAIL':
      case 'ENOTFOUND':
      case 'EAI_AGAIN':
      case 'EINVAL':
        throw new BadConfiguration(
          `${JSON.stringify(host)} is not an address of this machine (${code}). Check --host.`,
        );
      default:
        throw error;
    }
  }
}

/**
 * Reads the certificate files again at SIGHUP, because certificates expire. If they can't be used, that is logged, and
 * the former ones stay in use.
 */
function renewCertificates(configuration: Configuration, log: Logger, use: (tls: TlsFiles) => void): void {
  onHangUp(
    log,
    ['the certificate was read again', "the new certificate can't be used; the former one stays in use"],
    () => {
      const tls = readTls(configuration)!;
      use(tls);
      warnIfOutOfDate(tls, log);
    },
  );
}

/** @param told the messages that are logged after success and after failure */
function onHangUp(log: Logger, [done, failed]: readonly [string, string], work: () => void): void {
  process.on('SIGHUP', () => {
    try {
      work();
      log.info(done);
    } catch (error) {
      log.error({ err: error }, failed);
    }
  });
}

/** Whether there are files that SIGHUP reads again. Without any, SIGHUP ends the store. */
const readsAgain = ({ 'tls-cert': cert, identities }: Configuration): boolean =>
  cert !== undefined || identities !== undefined;

/** @throws BadConfiguration */
async function openIdentities({ identities: file }: Configuration, log: Logger): Promise<Identities | undefined> {
  if (file === undefined) return undefined;
  const issuers = readIdentities(file);
  try {
    return await Identities.of(issuers, { onFault: (message) => log.error(message) });
  } catch (error) {
    throw new BadConfiguration(
      `The identities file ${file}: an issuer's keys can't be used: ${(error as Error).message}`,
    );
  }
}

/**
 * Reads the identities file again at SIGHUP, so that those who leave lose their rights at once. If it can't be used,
 * that is logged, and the former one stays in use.
 */
function renewIdentities(identities: Identities, { identities: file }: Configuration, log: Logger): void {
  const told = [
    'the identities file was read again',
    "the new identities file can't be used; the former one stays in use",
  ] as const;
  onHangUp(log, told, () => identities.use(readIdentities(file!)));
}

/**
 * Warns about an unusable backup folder at the start. Otherwise the problem would be noticed at the first backup, or when a backup is
 * needed and missing.
 */
async function warnIfNoBackups({ 'backup-folder': folder }: Configuration, log: Logger): Promise<void> {
  const why = folder === undefined ? undefined : await backupFolderProblem(folder);
  if (why !== undefined) log.warn(why);
}

/** Clients don't trust a certificate that is out of date. */
function warnIfOutOfDate(tls: TlsFiles, log: Logger): void {
  const why = outOfDate(tls, systemClocks.wallMs());
  if (why !== undefined) log.warn(why);
}

function endpointOf(app: FastifyInstance, { host, 'tls-cert': cert }: Configuration): string {
  const address = app.server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const everywhere: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '[::1]' };
  return `${cert === undefined ? 'http' : 'https'}://${everywhere[host] ?? (host.includes(':') ? `[${host}]` : host)}:${port}`;
}

function welcome(endpoint: string, keys: KeysInForce, { host, data, clock }: Configuration, store: StoreApi): string[] {
  const { ready, reasons } = store.health();
  const bearer = `-H "Authorization: Bearer ${keys.primary === 'emulator' ? EMULATOR_KEY : `$(${printPrimary(keys.file)})`}"`;
  const key = {
    emulator: `the emulator's published key, on loopback only: ${EMULATOR_KEY}`,
    given: 'the primary key is the one that you have given',
    file: `the primary key in ${keys.file}`,
  }[keys.primary];
  const attempt =
    keys.primary === 'given' ? `${endpoint}/_epitaph/health/ready` : `${bearer} ${endpoint}/_epitaph/purge`;
  return [
    `epitaph: listening on ${endpoint}${host === '0.0.0.0' || host === '::' ? ' and every other address of this machine' : ''}`,
    `  data     ${path.resolve(data)} (${clock} clock: ${isoTime(store.nowMs())})`,
    `  key      ${key}`,
    `  others   secondary, read-only and auditor key are in ${keys.file}`,
    `  try      curl ${attempt}`,
    `  client   new CosmosClient({ endpoint: '${endpoint}', key: ${keys.primary === 'emulator' ? `'${EMULATOR_KEY}'` : '…'} })`,
    ...(ready ? [] : reasons.map((reason) => `  not ready: ${reason}`)),
  ];
}

/** A shell command that prints the primary key from the keys file, so that no secret need be printed here. */
function printPrimary(file: string): string {
  return String.raw`sed -n 's/.*"primary": "\(.*\)".*/\1/p' ${`'${file.replaceAll("'", String.raw`'\''`)}'`}`;
}
