import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { type Configuration, configurationSchema, optionNames, type OptionName, variableOf } from './options.ts';

/** A configuration that can't be used; the message is one line for whoever wrote it. */
export class BadConfiguration extends Error {
  override readonly name = 'BadConfiguration';
}

export interface ConfigurationSources {
  /** Values of flags, as they were given. */
  readonly flags: Readonly<Partial<Record<OptionName | 'config', string>>>;
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/**
 * Puts the configuration together: flags before variables before the file of `--config` before defaults.
 *
 * @throws BadConfiguration naming the one thing that is wrong and where it was said
 */
export function readConfiguration({ flags, environment }: ConfigurationSources): Configuration {
  const file = flags.config ?? nonEmpty(environment['EPITAPH_CONFIG']);
  const fromFile = file === undefined ? {} : readFile(file);
  const values: Record<string, unknown> = {};
  const origins: Record<string, string> = {};
  const take = (name: string, value: unknown, origin: string): void => {
    if (value === undefined || Object.hasOwn(values, name)) return;
    values[name] = value;
    origins[name] = origin;
  };
  for (const name of optionNames) {
    take(name, flags[name], `--${name}`);
    const variable = variableOf(name);
    if (!isServiceLink(variable, environment[variable])) take(name, nonEmpty(environment[variable]), variable);
  }
  for (const [name, value] of Object.entries(fromFile)) take(name, value, `${JSON.stringify(name)} in ${file}`);
  const result = configurationSchema.safeParse(values);
  if (result.success) return { ...result.data, config: file };
  throw new BadConfiguration(complaint(result.error.issues[0]!, origins, file));
}

/** Variables that other commands take, or tests do. */
const OTHER_VARIABLES = /^EPITAPH_(?:CONFIG|ENDPOINT|NEW_MASTER_KEY|TLS_CA|TEST_\w+)$/;

/** Variables that look like options and are none, as a mistyped one is. */
export function unknownVariables(environment: ConfigurationSources['environment']): readonly string[] {
  const known = new Set(optionNames.map(variableOf));
  return Object.keys(environment).filter(
    (name) =>
      name.startsWith('EPITAPH_') &&
      !known.has(name) &&
      !OTHER_VARIABLES.test(name) &&
      !isServiceLink(name, environment[name]),
  );
}

/**
 * What Kubernetes sets in pods beside a service that is called `epitaph`, of which the port of the service would pass for
 * the one to listen on. Source: "Environment variables" under "Discovering services" in the documentation of Kubernetes.
 */
const isServiceLink = (variable: string, text = ''): boolean =>
  /^EPITAPH_(?:SERVICE|PORT)_/.test(variable) || (variable === 'EPITAPH_PORT' && /^[a-z]+:\/\//.test(text));

/** An empty variable is one that was not set: `EPITAPH_KEY= npm start`. */
const nonEmpty = (text: string | undefined): string | undefined => (text === '' ? undefined : text);

/**
 * A file of settings as text, without the mark of its encoding that editors of Windows begin one with.
 *
 * @throws BadConfiguration when it can't be read
 */
export function readSettings(what: string, file: string, remedy = ''): string {
  try {
    return readFileSync(file, 'utf8').replace(/^\uFEFF/, '');
  } catch (error) {
    throw new BadConfiguration(`The ${what} ${file} can't be read: ${(error as Error).message}${remedy}`);
  }
}

/** @throws BadConfiguration when it can't be read, or is no JSON */
export function readJson(what: string, file: string): unknown {
  const text = readSettings(what, file);
  try {
    return JSON.parse(text);
  } catch (error) {
    // Around the place of the fault V8 shows what there is, which may be of a key.
    const why = (error as Error).message.replace(/, (?:\.\.\.)?".*$/s, '');
    throw new BadConfiguration(`The ${what} ${file} is not JSON: ${why}`);
  }
}

function readFile(file: string): Readonly<Record<string, unknown>> {
  const value = readJson('configuration file', file);
  const object = z.record(z.string(), z.unknown()).safeParse(value);
  if (!object.success) throw new BadConfiguration(`The configuration file ${file} must contain one JSON object.`);
  return object.data;
}

/** Says what is wrong without repeating the value: it may be a key. */
function complaint(
  issue: z.core.$ZodIssue,
  origins: Readonly<Record<string, string>>,
  file: string | undefined,
): string {
  if (issue.code === 'unrecognized_keys') {
    return `${JSON.stringify(issue.keys[0])} in ${file} is not an option; the options are ${optionNames.join(', ')}.`;
  }
  const name = issue.path.join('.');
  return `${origins[name] ?? name}: ${inWords(issue).replace(/\.$/, '')}.`;
}

/** The schema's own messages are for who knows the schema. */
function inWords(issue: z.core.$ZodIssue): string {
  switch (issue.code) {
    case 'invalid_value':
      return `must be one of ${issue.values.join(', ')}`;
    case 'too_small':
      return issue.origin === 'string' ? 'must not be empty' : issue.message;
    case 'invalid_type':
      return issue.expected === 'string' ? 'must be a string' : issue.message;
    default:
      return issue.message;
  }
}
