import { isUtf8 } from 'node:buffer';
import { readFileSync, realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { inspect, parseArgs, type ParseArgsOptionsConfig } from 'node:util';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { BadConfiguration, readConfiguration, unknownVariables } from '../config/configuration.ts';
import { optionNames } from '../config/options.ts';
import { EMULATOR_KEY } from '../http/keys.ts';
import { version } from '../version.ts';
import { backup, ledger } from './backup-commands.ts';
import { textFlag, type Command, type Flags, type FlagValues } from './command.ts';
import { bundle } from './bundle-command.ts';
import { exitCodes, UsageError } from './exit-codes.ts';
import { commandHelp, generalHelp, serveHelp } from './help.ts';
import { certificate, disappearances, explain, history } from './history-commands.ts';
import { keys } from './keys-command.ts';
import { ManagementClient, ServerRefused, ServerUnreachable } from './management-client.ts';
import { clock, fsck, purge, rebuild } from './operation-commands.ts';
import { asOf, brake, preview, replay, ttl } from './policy-commands.ts';
import { erase, floor, hold, policyGrace, recover, recoveryWindow } from './retention-commands.ts';
import { restore } from './restore-command.ts';
import { verify } from './verify-command.ts';
import { ComplaintStream, type ProgressStream } from './progress.ts';
import { visible, visibleLines } from './visible.ts';

const SERVE = 'Runs the store.';
/** By what they are for, as the help lists them. */
const commandGroups = {
  'What happened, and why': { explain, history, disappearances, 'as-of': asOf },
  'TTL policies': { preview, ttl, brake, 'policy-grace': policyGrace, replay },
  'Holds, floors, erasure, recovery': { hold, floor, 'recovery-window': recoveryWindow, erase, recover },
  'For auditors': { certificate, bundle, verify },
  'Looking after a store': { purge, rebuild, fsck, clock, backup, restore, ledger, keys },
} satisfies Readonly<Record<string, Readonly<Record<string, Command>>>>;
const commands = Object.assign({}, ...Object.values(commandGroups)) as Readonly<Record<string, Command>>;

const serverFlags: Flags = {
  endpoint: {
    type: 'string',
    placeholder: '<URL>',
    description: 'The server; EPITAPH_ENDPOINT, or http://127.0.0.1:8081 by default.',
  },
  key: {
    type: 'string',
    placeholder: '<base64>',
    description: 'A key of the server; EPITAPH_KEY, or the published emulator key by default.',
  },
  'tls-ca': {
    type: 'string',
    placeholder: '<file>',
    description:
      'Certificates of the authorities to trust for https, a PEM file; EPITAPH_TLS_CA, or those of Node.js by default.',
  },
};
const commonFlags: Flags = {
  json: { type: 'boolean', description: 'Prints the answer as JSON.' },
  help: { type: 'boolean', description: 'Prints this.' },
};

/** A text that an item may have. */
const MAY_BE_EMPTY: ReadonlySet<string> = new Set(['partition-key']);

/** What opening the storage says of folders, files and keys that don't go together; and the store of itself. */
const USAGE_ERRORS: ReadonlySet<string> = new Set([
  'UnusableFile',
  'UnusableServer',
  'AccessRefused',
  'CredentialsRefused',
  'FolderInUse',
  'Refusal',
]);

type Environment = Readonly<Record<string, string | undefined>>;

export interface Output {
  /** Takes results, a line at a time. */
  readonly print: (line: string) => void;
  /** Takes complaints, and progress. */
  readonly stderr: ProgressStream;
}

/** Runs one command line. @returns the exit code */
export async function run(args: readonly string[], environment: Environment, output: Output): Promise<number> {
  const { print } = output;
  const stderr = new ComplaintStream(output.stderr);
  try {
    const [name, ...rest] = args;
    if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
      const text = generalHelp({ 'The store': { serve: { summary: SERVE, operands: '' } }, ...commandGroups });
      if (name === undefined) throw new UsageError(`No command was given.\n\n${text}`);
      print(text);
      return exitCodes.ok;
    }
    if (name === '--version') {
      print(`epitaph ${version}`);
      return exitCodes.ok;
    }
    if (name === 'serve') return await runServe(rest, environment, { print, stderr });
    const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
    if (command === undefined) {
      throw new UsageError(
        `There is no command ${JSON.stringify(name)}. The commands are serve, ${Object.keys(commands).join(', ')}; epitaph --help describes them.`,
      );
    }
    return await runCommand(name, command, rest, withoutEmpty(environment), { print, stderr });
  } catch (error) {
    const kept = error instanceof UsageError ? keptByNpm(args[0] ?? '', environment) : undefined;
    if (kept === undefined) return complain(error, stderr);
    const hint = `npm has kept --${kept} for itself: what is meant for epitaph follows a lone --.`;
    return complain(new UsageError(`${(error as Error).message.replace(/\.$/, '')}. ${hint}`), stderr);
  }
}

/** Of `npm start --port 80` npm takes the option, which it doesn't know, for its own, and hands on "80" alone. */
function keptByNpm(name: string, environment: Environment): string | undefined {
  if (environment['npm_lifecycle_event'] === undefined) return undefined;
  const ofCommand = Object.hasOwn(commands, name) ? Object.keys(commands[name]!.flags) : optionNames;
  return ofCommand.find((flag) => environment[`npm_config_${flag.replaceAll('-', '_')}`] !== undefined);
}

/** An empty variable is one that was not set, as it is for the server. */
const withoutEmpty = (environment: Environment): Environment =>
  Object.fromEntries(Object.entries(environment).filter(([, text]) => text !== ''));

async function runServe(args: readonly string[], environment: Environment, { print, stderr }: Output): Promise<number> {
  const names = [...optionNames, 'config'];
  const { values, positionals } = parse('serve', args, {
    ...Object.fromEntries(names.map((name) => [name, { type: 'string' } as const])),
    help: { type: 'boolean' },
  });
  if (values['help'] === true) {
    print(serveHelp(SERVE));
    return exitCodes.ok;
  }
  if (positionals.length > 0) throw new UsageError(`serve takes no argument ${JSON.stringify(positionals[0])}.`);
  const flags = Object.fromEntries(names.map((name) => [name, textFlag(values, name)]));
  // Only now: the commands that ask a server need not wait until all of one is loaded.
  const { serve } = await import('./serve.ts');
  for (const name of unknownVariables(environment))
    stderr.write(`epitaph: the variable ${name} is ignored: there is no such option\n`);
  return serve(readConfiguration({ flags, environment }), print);
}

async function runCommand(
  name: string,
  command: Command,
  args: readonly string[],
  environment: Environment,
  { print, stderr }: Output,
): Promise<number> {
  checkEncoding(args);
  const flags = { ...command.flags, ...(command.isLocal === true ? {} : serverFlags), ...commonFlags };
  const { values, positionals } = parse(name, args, flags);
  if (values['help'] === true) {
    print(commandHelp(name, command, flags));
    return exitCodes.ok;
  }
  const [least, most] = command.operandCounts;
  if (positionals.length < least || positionals.length > most) {
    throw new UsageError(`Usage: epitaph ${`${name} ${command.operands}`.trimEnd()} [options]`);
  }
  if (positionals.includes('')) throw new UsageError(`An operand of ${name} is empty.`);
  // As of a variable that is not set; a folder of that name would be the one that the command is given in.
  const empty = Object.keys(values).find((flag) => !MAY_BE_EMPTY.has(flag) && [values[flag]].flat().includes(''));
  if (empty !== undefined) throw new UsageError(`The value of --${empty} is empty.`);
  const endpoint = textFlag(values, 'endpoint') ?? environment['EPITAPH_ENDPOINT'] ?? 'http://127.0.0.1:8081';
  const key = textFlag(values, 'key') ?? environment['EPITAPH_KEY'] ?? EMULATOR_KEY;
  let isPointedBack = false;
  const pointBack = (rids: string): void => {
    // A command may ask for many pages.
    if (isPointedBack) return;
    isPointedBack = true;
    stderr.write(`Deleted containers of that name are not included; for their history give --rid ${visible(rids)}\n`);
  };
  const ca = authorities(textFlag(values, 'tls-ca') ?? environment['EPITAPH_TLS_CA']);
  return command.run({
    client: new ManagementClient(endpoint, key, ca, undefined, pointBack),
    operands: positionals,
    flags: values,
    environment,
    json: values['json'] === true,
    print: (line) => print(visible(line)),
    printExactly: print,
    stderr,
  });
}

/**
 * Of what is not UTF-8, Node.js makes U+FFFD: of a terminal or a script of another encoding, a hold would be on a key that
 * nobody means. Somebody's key may have that character, so what was typed decides, where the system tells it.
 *
 * @throws UsageError
 */
function checkEncoding(args: readonly string[]): void {
  const wrong = args.find((text) => text.includes('\uFFFD'));
  if (wrong === undefined) return;
  let typed: Buffer;
  try {
    typed = readFileSync('/proc/self/cmdline');
  } catch {
    return;
  }
  if (!isUtf8(typed)) throw new UsageError(`${JSON.stringify(wrong)} is not encoded in UTF-8. Set the terminal to it.`);
}

function authorities(file: string | undefined): Buffer | undefined {
  try {
    return file === undefined ? undefined : readFileSync(file);
  } catch (error) {
    throw new UsageError(`--tls-ca: the file can't be read: ${(error as Error).message}`);
  }
}

/** @throws UsageError for flags that there are not */
function parse(
  command: string,
  args: readonly string[],
  flags: Readonly<Record<string, { readonly type: 'string' | 'boolean'; readonly multiple?: boolean }>>,
): { readonly values: FlagValues; readonly positionals: readonly string[] } {
  const options: ParseArgsOptionsConfig = Object.fromEntries(
    Object.entries(flags).map(([name, { type, multiple = false }]) => [
      name,
      { type, multiple, ...(name === 'help' ? { short: 'h' } : {}) },
    ]),
  );
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true, strict: true });
  } catch (error) {
    throw new UsageError(flagComplaint(command, error as NodeJS.ErrnoException));
  }
}

/** Node.js's own words go on about positional arguments. */
function flagComplaint(command: string, { code, message }: NodeJS.ErrnoException): string {
  const [, option = ''] = /'(?:-\w, )?(-[^\s']*)/.exec(message) ?? [];
  if (code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION') {
    return /^-\d/.test(option)
      ? `A number below zero follows a lone --, as in: epitaph ${command} … -- ${option}`
      : `${command} has no option ${option}; epitaph ${command} --help lists its options.`;
  }
  if (message.includes('ambiguous')) return `${option} needs a value; one that begins with a dash as ${option}=-….`;
  return message.includes('does not take an argument') ? `${option} takes no value.` : `${option} needs a value.`;
}

/** A file or a folder is another user's, as after a command that root has run, or on a disk that may only be read. */
function isDenied(error: unknown): error is Error {
  const { code = '', path } = error as NodeJS.ErrnoException;
  return error instanceof Error && path !== undefined && ['EACCES', 'EPERM', 'EROFS'].includes(code);
}

/** Too many files are open, of this process or on the machine. */
const isOutOfFiles = (error: unknown): error is Error =>
  error instanceof Error && ['EMFILE', 'ENFILE'].includes((error as NodeJS.ErrnoException).code ?? '');

/** One line for what somebody can put right; all of it for a defect. */
function complain(error: unknown, stderr: ComplaintStream): number {
  // Copies that were put back, certificates and servers have their words in it, which others may have chosen.
  const say = (message: string, code: number, show = visible): number => {
    stderr.complain(show(message));
    return code;
  };
  // By name, so that commands which need no storage don't load it.
  if (error instanceof Error && USAGE_ERRORS.has(error.name)) return say(error.message, exitCodes.usage);
  if (error instanceof Error && error.name === 'BadConnectionString') {
    return say(`The connection string of --event-store ${error.message}.`, exitCodes.usage);
  }
  if (isDenied(error))
    return say(`${error.message}. Check whose it is, its permissions, and the disk.`, exitCodes.usage);
  if (isOutOfFiles(error)) return say(`${error.message}. Raise the limit (ulimit -n).`, exitCodes.usage);
  if (error instanceof UsageError || error instanceof BadConfiguration)
    return say(error.message, exitCodes.usage, visibleLines);
  if (error instanceof ServerUnreachable) return say(error.message, exitCodes.unreachable);
  if (error instanceof ServerRefused) return say(`${error.message} (${error.code})`, exitCodes.problem);
  if (error instanceof StorageUnavailable) {
    // Says itself what to do when the server can be reached.
    if (error.name === 'WorkCutShort') return say(error.message, exitCodes.unreachable);
    if (error.isForOperator) return say(error.message, exitCodes.problem);
    return say(`${error.message.replace(/\.$/, '')}. Try again when it can be reached.`, exitCodes.unreachable);
  }
  return say(inspect(error), exitCodes.problem, visibleLines);
}

/** What could not be printed must not pass for printed. Who reads no further, as `head`, need not be told so. */
function endWithOutput(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') process.stderr.write(`epitaph: The output can't be written: ${error.message}\n`);
    process.exit(exitCodes.problem);
  });
  process.stderr.on('error', () => {});
}

if (process.argv[1] !== undefined && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const isServer = process.argv[2] === 'serve';
  // The store goes on, and ends in order, when nobody reads what it prints.
  if (isServer) process.stdout.on('error', () => {});
  else endWithOutput();
  // Whoever made the folder may have left it open to others.
  if (isServer || process.argv[2] === 'restore') process.umask(0o077);
  process.exitCode = await run(process.argv.slice(2), process.env, {
    print: (line) => process.stdout.write(`${line}\n`),
    stderr: process.stderr,
  });
  // What a fault left behind, such as a writer's thread, must not keep the server's process; answers must be flushed.
  if (isServer) process.exit();
}
