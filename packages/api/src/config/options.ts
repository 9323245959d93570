import path from 'node:path';
import { z } from 'zod';
import { DEFAULT_POLICY_GRACE_SECONDS } from '@epitaph/core/container/upcast.ts';
import { consistencyLevels, defaultConsistency } from '../cosmos/consistency.ts';
import { type Throughput, throughputProblem } from '@epitaph/core/throughput/throughput.ts';
import { DEFAULT_READY_LAG_EVENTS } from '../store/operations/ready-lag.ts';
import { parseInstant } from './instant.ts';

/** A key of the store: canonical base64 of at least 32 bytes. */
export const keyText = z
  .string()
  // Text read from a file often ends with a line break. The message below names that fault, which the base64 check could not.
  .regex(/^[!-~]*$/, { message: "contains a space, a line end or another character that a key can't have" })
  .refine(
    (text) => {
      const bytes = Buffer.from(text, 'base64');
      return bytes.length >= 32 && bytes.toString('base64') === text;
    },
    { message: 'must be base64 of at least 32 bytes' },
  );

/** Relative to the sources. Relative to the working directory, the place where the store is started would decide which store it opens. */
export const DEFAULT_DATA = path.resolve(import.meta.dirname, '../../../../data');
/** 90 days. Nobody stops a server for that long by mistake, and clocks that are wrong by less are rare. */
const DEFAULT_MAX_DOWNTIME_SECONDS = 7_776_000;
/** The only value that is accepted without PostgreSQL, where there is a single node. */
const ALL_ROLES = 'project,purge';
const POLICY_DELAY_SECONDS = 4;

/**
 * Every option of the server, declared once. Each is a flag (`--policy-grace`), an environment variable (`EPITAPH_POLICY_GRACE`) and a
 * property of the configuration file (`"policy-grace"`). Flags and variables are text, which the schemas convert.
 */
export const optionSchemas = {
  host: z
    .string()
    .min(1)
    .default('127.0.0.1')
    .describe('Address to listen on. Beyond loopback the published emulator key is refused.'),
  port: wholeNumber(0, 65_535).default(8081).describe('Port to listen on; 0 picks a free one and prints it.'),
  'tls-cert': z
    .string()
    .min(1)
    .optional()
    .describe(
      'PEM file with the certificate of the server, followed by those that lead to its authority. The store then uses HTTPS only.',
    ),
  'tls-key': z
    .string()
    .min(1)
    .optional()
    .describe('PEM file with the private key of that certificate. SIGHUP reads both files again.'),
  'cors-origins': z
    .string()
    .transform((text, context) => {
      const origins = text.split(',');
      if (text === '*' || origins.every((origin) => URL.parse(origin)?.origin === origin)) return origins;
      context.addIssue({ code: 'custom', message: 'must be origins like https://app.example.com, or *' });
      return z.NEVER;
    })
    .optional()
    .describe('Origins of web pages that may call the data plane, separated by commas, or * for all. By default none.'),
  data: z.string().min(1).default(DEFAULT_DATA).describe('Folder for all data; created if missing.'),
  clock: z
    .enum(['system', 'manual'])
    .default('system')
    .describe('manual: time stands still until POST /_epitaph/clock/advance advances it. For tests.'),
  now: z
    .string()
    .transform((text, context) => {
      const atMs = parseInstant(text);
      if (atMs !== undefined) return atMs;
      context.addIssue({ code: 'custom', message: 'must be a time like 2026-11-21T10:00:00Z' });
      return z.NEVER;
    })
    .optional()
    .describe('With --clock manual: the time to start at, as ISO text. Time never goes back.'),
  'max-downtime': wholeNumber(1, 2_147_483_647)
    .default(DEFAULT_MAX_DOWNTIME_SECONDS)
    .describe(
      'If the store was not in use for more seconds than this, it writes and erases nothing until you confirm the clock.',
    ),
  key: keyText.optional().describe('Primary key, base64. By default the published emulator key, on loopback only.'),
  identities: z
    .string()
    .min(1)
    .optional()
    .describe(
      'File that defines which identity tokens (Entra ID, OpenID Connect) are accepted, and what they permit. SIGHUP reads it again.',
    ),
  'master-key': z
    .string()
    .min(1)
    .optional()
    .describe('Key that wraps all others, 32 bytes in base64; by default in a file of the data folder.'),
  'purge-ledger': z
    .string()
    .min(1)
    .optional()
    .describe('File of the ledger of destroyed keys; purge-ledger.ndjson in the data folder by default.'),
  'backup-folder': z
    .string()
    .min(1)
    .optional()
    .describe(
      'Existing folder below which online backups are written; without it, they are refused. Not with --postgres.',
    ),
  'event-store': z
    .string()
    .min(1)
    .optional()
    .describe(
      'Connection string of an EventStoreDB or KurrentDB for the event log. By default the log is in the data folder.',
    ),
  'scavenge-every': wholeNumber(60, 31_536_000)
    .optional()
    .describe('With --event-store: seconds between scavenges of that server. By default only on request.'),
  postgres: z
    .string()
    .min(1)
    .optional()
    .describe('URL of a PostgreSQL database for keys and read models, which several nodes may share.'),
  'vault-copies-kept': wholeNumber(0, 2_147_483_647)
    .optional()
    .describe('With --postgres: how many seconds backups, WAL archives and replicas of the keys are kept.'),
  roles: z
    .string()
    .regex(/^(?:none|(?:project|purge)(?:,(?:project|purge))?)$/, 'must be project, purge, project,purge or none')
    .default(ALL_ROLES)
    .describe('With --postgres: what this node does besides answering requests.'),
  'policy-delay': wholeNumber(1, 3_600)
    .default(POLICY_DELAY_SECONDS)
    .describe(
      'With --postgres: seconds after which a TTL change takes effect. Clocks of nodes may differ by half of it.',
    ),
  drain: wholeNumber(0, 600)
    .default(0)
    .describe('Seconds after SIGINT or SIGTERM in which requests are still answered, while the readiness check fails.'),
  'policy-grace': wholeNumber(0, 2_147_483_647)
    .default(DEFAULT_POLICY_GRACE_SECONDS)
    .describe('For new containers: seconds for which items that expire by a policy change are hidden but not erased.'),
  consistency: z
    .enum(consistencyLevels)
    .default(defaultConsistency.level)
    .describe(
      'Consistency level of the account: the strongest that clients may ask for, and what they get by default.',
    ),
  'max-staleness-prefix': wholeNumber(10, 2_147_483_647)
    .default(defaultConsistency.maxStalenessPrefix)
    .describe('With --consistency BoundedStaleness: how many versions reads may be behind, as told to clients.'),
  'max-staleness-seconds': wholeNumber(5, 86_400)
    .default(defaultConsistency.maxStalenessSeconds)
    .describe('With --consistency BoundedStaleness: how many seconds reads may be behind, as told to clients.'),
  throughput: z
    .union([z.number().transform(String), z.string()])
    .transform((text, context) => {
      const throughput = parseThroughputOption(text);
      if (typeof throughput !== 'string') return throughput;
      context.addIssue({ code: 'custom', message: throughput });
      return z.NEVER;
    })
    .optional()
    .describe(
      'Throughput of containers that are created without one, in request units a second; it is enforced. With serverless, no container is limited. By default such containers show 400 and are not limited.',
    ),
  scripts: z
    .enum(['on', 'off'])
    .default('on')
    .describe(
      'off: new stored procedures, triggers and user-defined functions are refused, and stored ones are not run.',
    ),
  'ready-lag': wholeNumber(1, 1_000_000_000)
    .default(DEFAULT_READY_LAG_EVENTS)
    .describe('How many events the read models may be behind the log before the store reports that it is not ready.'),
  traces: z
    .union([z.literal('off'), z.url({ protocol: /^https?$/, error: 'must be the URL of a collector, or off' })])
    .optional()
    .describe(
      'Where to send OpenTelemetry traces, such as http://127.0.0.1:4318/v1/traces. By default to OTEL_EXPORTER_OTLP_ENDPOINT, if that is set.',
    ),
  'log-level': z
    .enum(['silent', 'error', 'warn', 'info', 'debug'])
    .default('warn')
    .describe('What to log on stderr, one JSON object a line. Requests, bodies and keys are not logged.'),
} as const;

export type OptionName = keyof typeof optionSchemas;

/** What `--help` shows in the place of each option's value. */
export const placeholders: Readonly<Record<OptionName, string>> = {
  host: '<address>',
  port: '<number>',
  'tls-cert': '<file>',
  'tls-key': '<file>',
  'cors-origins': '<origin,…>|*',
  data: '<folder>',
  clock: 'system|manual',
  now: '<ISO time>',
  'max-downtime': '<seconds>',
  key: '<base64>',
  identities: '<file>',
  'master-key': '<base64>',
  'purge-ledger': '<file>',
  'backup-folder': '<folder>',
  'event-store': '<esdb://…>',
  'scavenge-every': '<seconds>',
  postgres: '<postgresql://…>',
  'vault-copies-kept': '<seconds>',
  roles: 'project,purge|none',
  'policy-delay': '<seconds>',
  drain: '<seconds>',
  'policy-grace': '<seconds>',
  consistency: '<level>',
  'max-staleness-prefix': '<versions>',
  'max-staleness-seconds': '<seconds>',
  throughput: '<RU/s>|autoscale:<max RU/s>|serverless',
  scripts: 'on|off',
  'ready-lag': '<events>',
  traces: '<URL>|off',
  'log-level': '<level>',
};

export const configurationSchema = z
  .strictObject(optionSchemas)
  .refine(({ clock, now }) => now === undefined || clock === 'manual', {
    path: ['now'],
    message: 'only works with --clock manual',
  })
  .refine(({ 'tls-cert': cert, 'tls-key': key }) => cert === undefined || key !== undefined, {
    path: ['tls-cert'],
    message: 'needs --tls-key, the private key of the certificate',
  })
  .refine(({ 'tls-cert': cert, 'tls-key': key }) => key === undefined || cert !== undefined, {
    path: ['tls-key'],
    message: 'needs --tls-cert, the certificate of the key',
  })
  .refine(({ postgres, 'event-store': log }) => postgres === undefined || log !== undefined, {
    path: ['postgres'],
    message: 'needs --event-store: nodes that share keys and read models must share the log',
  })
  .refine((values) => values['scavenge-every'] === undefined || values['event-store'] !== undefined, {
    path: ['scavenge-every'],
    message: 'needs --event-store: a log in the data folder frees its space by itself',
  })
  .refine(({ postgres, roles }) => postgres !== undefined || roles === ALL_ROLES, {
    path: ['roles'],
    message: 'needs --postgres: the only node of a data folder does everything',
  })
  .refine((values) => values.postgres !== undefined || values['policy-delay'] === POLICY_DELAY_SECONDS, {
    path: ['policy-delay'],
    message: 'needs --postgres: on a single node a TTL change takes effect at once',
  })
  .refine((values) => values.postgres !== undefined || values['vault-copies-kept'] === undefined, {
    path: ['vault-copies-kept'],
    message: 'needs --postgres: copies of keys in a data folder are made by epitaph backup, which records them',
  })
  .refine(({ postgres, 'master-key': key }) => postgres === undefined || key !== undefined, {
    path: ['postgres'],
    message: 'needs a master key (EPITAPH_MASTER_KEY), the same for every node',
  })
  .refine(({ postgres, 'purge-ledger': ledger }) => postgres === undefined || ledger === undefined, {
    path: ['purge-ledger'],
    message: 'is for keys in the data folder; those in PostgreSQL are backed up with its own tools',
  })
  .refine((values) => values.postgres === undefined || values['backup-folder'] === undefined, {
    path: ['backup-folder'],
    message: 'is for keys in the data folder; those in PostgreSQL are backed up with its own tools',
  })
  .refine(({ postgres, clock }) => postgres === undefined || clock === 'system', {
    path: ['clock'],
    message: 'manual is only for a single node, without --postgres',
  });

export type Configuration = z.infer<typeof configurationSchema> & {
  /** The configuration file, if one was given. */
  readonly config?: string | undefined;
};

export const optionNames = Object.keys(optionSchemas) as OptionName[];

export const variableOf = (name: string): string => `EPITAPH_${name.toUpperCase().replaceAll('-', '_')}`;

/** The throughput that `--throughput` asks for, with kind `none` for serverless; or a sentence that says what is wrong with the text. */
function parseThroughputOption(text: string): Throughput | string {
  if (text === 'serverless') return { kind: 'none' };
  const [, scaled, digits] = /^(autoscale:)?(\d{1,9})$/.exec(text) ?? [];
  if (digits === undefined) return 'must be a number of request units a second, autoscale:<number> or serverless';
  const amount = Number(digits);
  const throughput: Throughput =
    scaled === undefined
      ? { kind: 'manual', requestUnitsPerSecond: amount }
      : { kind: 'autoscale', maxRequestUnitsPerSecond: amount };
  return throughputProblem(throughput, 0) ?? throughput;
}

/** A whole number, or its digits as text: flags and environment variables are always text. */
function wholeNumber(least: number, most: number) {
  const message = `must be a whole number from ${least} to ${most}`;
  return z
    .union([z.number(), z.string().regex(/^\d+$/).transform(Number)], message)
    .pipe(z.int(message).min(least, message).max(most, message));
}
