import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { type Configuration, configurationSchema, optionNames, type OptionName, variableOf } from './options.ts';

/** A configuration that can't be used. The message is one line for the person who wrote it. */
export class BadConfiguration extends Error {
  override readonly name = 'BadConfiguration';
}

export interface ConfigurationSources {
  /** The values of flags as given on the command line. */
  readonly flags: Readonly<Partial<Record<OptionName | 'config', string>>>;
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/**
 * Combines the sources of the configuration. Flags take precedence over environment variables, these over the file of `--config`, and that
 * over defaults.
 *
 * @throws BadConfiguration that names the first thing that is wrong and where it was given
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

/** Variables that are not options of the server: other commands or tests read them. */
const OTHER_VARIABLES = /^EPITAPH_(?:CONFIG|ENDPOINT|NEW_MASTER_KEY|TLS_CA|TEST_\w+)$/;

/** Variables that have the prefix of options but match none, usually because of a typing error. */
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
 * True for a variable that Kubernetes sets in the pods of a namespace that has a service called `epitaph`. One of them, `EPITAPH_PORT`,
 * would otherwise be taken for the port to listen on.
 *
 * Source: "Environment variables" under "Discovering services" in the documentation of Kubernetes.
 */
const isServiceLink = (variable: string, text = ''): boolean =>
  /^EPITAPH_(?:SERVICE|PORT)_/.test(variable) || (variable === 'EPITAPH_PORT' && /^[a-z]+:\/\//.test(text));

/** An empty variable counts as not set: `EPITAPH_KEY= npm start`. */
const nonEmpty = (text: string | undefined): string | undefined => (text === '' ? undefined : text);

/**
 * The text of a settings file, without the byte order mark that Windows editors put at its start.
 *
 * @throws BadConfiguration if the file can't be read
 */
export function readSettings(what: string, file: string, remedy = ''): string {
  try {
    return readFileSync(file, 'utf8').replace(/^\uFEFF/, '');
  } catch (error) {
    throw new BadConfiguration(`The ${what} ${file} can't be read: ${(error as Error).message}${remedy}`);
  }
}

/** @throws BadConfiguration if the file can't be read, or is not JSON */
export function readJson(what: string, file: string): unknown {
  const text = readSettings(what, file);
  try {
    return JSON.parse(text);
  } catch (error) {
    // V8's message quotes the text around the fault, which may be part of a key.
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

/** Describes the fault without repeating the value, which may be a key. */
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

/** The message for a fault. Zod's own messages are used only where they are understood without knowing the schema. */
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
