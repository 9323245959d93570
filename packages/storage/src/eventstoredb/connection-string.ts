import { readFileSync } from 'node:fs';
import type { ChannelCredentialOptions } from '@eventstore/db-client/dist/Client/index.js';
import type { Credentials, EndPoint, NodePreference } from '@eventstore/db-client';

/** A connection string that can't be used. The message has one line and contains no credentials. */
export class BadConnectionString extends Error {
  override readonly name = 'BadConnectionString';
}

/** The content of a connection string, in the form that the client uses. */
export interface ConnectionTarget {
  /** Whether to ask the (only) host for the nodes of its cluster. */
  readonly discover: boolean;
  readonly nodes: readonly EndPoint[];
  readonly channel: ChannelCredentialOptions;
  readonly credentials: Credentials | undefined;
  /** The longest time that one call may take, in milliseconds. */
  readonly deadlineMs: number;
  readonly settings: {
    readonly connectionName: string;
    readonly keepAliveInterval: number;
    readonly keepAliveTimeout: number;
    readonly nodePreference: NodePreference;
    readonly maxDiscoverAttempts: number;
    readonly discoveryInterval: number;
    readonly gossipTimeout: number;
  };
}

const SCHEMES: Readonly<Record<string, { readonly discover: boolean }>> = {
  esdb: { discover: false },
  'esdb+discover': { discover: true },
  kurrentdb: { discover: false },
  'kurrentdb+discover': { discover: true },
};

const OPTIONS = [
  'tls',
  'tlsVerifyCert',
  'tlsCAFile',
  'userCertFile',
  'userKeyFile',
  'connectionName',
  'defaultDeadline',
  'keepAliveInterval',
  'keepAliveTimeout',
  'nodePreference',
  'maxDiscoverAttempts',
  'discoveryInterval',
  'gossipTimeout',
] as const;
type Option = (typeof OPTIONS)[number];

const DEFAULT_PORT = 2113;

/**
 * Parses a connection string: `esdb://`, `esdb+discover://` and the same with KurrentDB's name, with the options that EventStoreDB
 * documents for its clients. The client's own parser is not used, because it prints the whole string, including the password, if it
 * does not know an option.
 *
 * @see https://docs.kurrent.io/clients/node/v1.0/getting-started.html#connection-string
 * @throws {BadConnectionString}
 */
export function parseConnectionString(text: string): ConnectionTarget {
  const match = /^(?<scheme>[^:/?#]*):\/\/(?:(?<user>[^@/?]*)@)?(?<hosts>[^@/?]*)\/*(?:\?(?<query>.*))?$/.exec(
    text.trim(),
  );
  const { scheme, user, hosts, query } = match?.groups ?? {};
  const kind = scheme === undefined ? undefined : SCHEMES[scheme];
  if (kind === undefined) {
    throw new BadConnectionString('must begin with esdb://, esdb+discover://, kurrentdb:// or kurrentdb+discover://');
  }
  const nodes = (hosts ?? '').split(',').map(readNode);
  if (kind.discover && nodes.length > 1) {
    throw new BadConnectionString(`names ${nodes.length} hosts, but +discover takes one`);
  }
  const options = readOptions(query ?? '');
  const tls = flag(options, 'tls') ?? true;
  if (flag(options, 'tlsVerifyCert') === false) {
    throw new BadConnectionString('tlsVerifyCert=false is not supported: name the authority with tlsCAFile instead');
  }
  const deadlineMs = number(options, 'defaultDeadline', 1) ?? 10_000;
  return {
    discover: kind.discover,
    nodes,
    channel: tls ? readCertificates(options) : { insecure: true },
    credentials: readCredentials(user),
    deadlineMs,
    settings: {
      connectionName: options.get('connectionName') ?? 'epitaph',
      keepAliveInterval: number(options, 'keepAliveInterval', -1) ?? 10_000,
      keepAliveTimeout: number(options, 'keepAliveTimeout', -1) ?? 10_000,
      nodePreference: readPreference(options.get('nodePreference')),
      maxDiscoverAttempts: number(options, 'maxDiscoverAttempts', 1) ?? 10,
      discoveryInterval: number(options, 'discoveryInterval', 1) ?? 100,
      gossipTimeout: number(options, 'gossipTimeout', 1) ?? 5,
    },
  };
}

function readNode(text: string): EndPoint {
  const match = /^(?<address>[^\s:]+)(?::(?<port>\d{1,5}))?$/.exec(text);
  const port = Number(match?.groups?.['port'] ?? DEFAULT_PORT);
  if (match === null || port > 65_535) throw new BadConnectionString(`${JSON.stringify(text)} is not host:port`);
  return { address: match.groups!['address']!, port };
}

function readCredentials(text: string | undefined): Credentials | undefined {
  if (text === undefined) return undefined;
  const colon = text.indexOf(':');
  if (colon < 1) throw new BadConnectionString('has an @, but no user:password before it');
  try {
    return { username: decodeURIComponent(text.slice(0, colon)), password: decodeURIComponent(text.slice(colon + 1)) };
  } catch {
    throw new BadConnectionString('has credentials that are not percent-encoded as in a URL');
  }
}

function readOptions(query: string): ReadonlyMap<Option, string> {
  const options = new Map<Option, string>();
  for (const [name, value] of new URLSearchParams(query)) {
    // Clients ignore case and separators in the names of options.
    const flat = name.toLowerCase().replaceAll(/[_-]/g, '');
    const option = OPTIONS.find((known) => known.toLowerCase() === flat);
    if (option === undefined) {
      throw new BadConnectionString(`has no option ${JSON.stringify(name)}; the options are ${OPTIONS.join(', ')}`);
    }
    options.set(option, value);
  }
  return options;
}

function flag(options: ReadonlyMap<Option, string>, name: Option): boolean | undefined {
  const text = options.get(name);
  if (text !== undefined && text !== 'true' && text !== 'false') {
    throw new BadConnectionString(`${name} must be true or false`);
  }
  return text === undefined ? undefined : text === 'true';
}

function number(options: ReadonlyMap<Option, string>, name: Option, least: number): number | undefined {
  const text = options.get(name);
  if (text === undefined) return undefined;
  const value = /^-?\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= least)) throw new BadConnectionString(`${name} must be a whole number from ${least}`);
  return value;
}

/** Only the leader may be used: followers lag behind, and accept no appends. */
function readPreference(text: string | undefined): NodePreference {
  if (text !== undefined && text.toLowerCase() !== 'leader') {
    throw new BadConnectionString('nodePreference must be leader: the store reads what it has just written');
  }
  return 'leader';
}

function readCertificates(options: ReadonlyMap<Option, string>): ChannelCredentialOptions {
  const channel: { rootCertificate?: Buffer; userCertFile?: Buffer; userKeyFile?: Buffer } = {};
  const files = { tlsCAFile: 'rootCertificate', userCertFile: 'userCertFile', userKeyFile: 'userKeyFile' } as const;
  for (const [option, property] of Object.entries(files) as [
    keyof typeof files,
    (typeof files)[keyof typeof files],
  ][]) {
    const file = options.get(option);
    if (file === undefined) continue;
    try {
      channel[property] = readFileSync(file);
    } catch (error) {
      throw new BadConnectionString(`${option} can't be read: ${(error as Error).message}`);
    }
  }
  if ((channel.userCertFile === undefined) !== (channel.userKeyFile === undefined)) {
    throw new BadConnectionString('userCertFile and userKeyFile go together');
  }
  return channel;
}
