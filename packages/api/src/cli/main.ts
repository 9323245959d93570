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
/** The commands by purpose, as the help lists them. */
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
    description: 'URL of the server; EPITAPH_ENDPOINT, or http://127.0.0.1:8081 by default.',
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
  help: { type: 'boolean', description: 'Prints this help.' },
};

/** Flags whose text may be empty, since an item can have such a text. */
const MAY_BE_EMPTY: ReadonlySet<string> = new Set(['partition-key']);

/**
 * Names of errors from opening the storage, for folders, files and keys that don't belong together, and of the store
 * itself.
 */
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
  /** Prints a line of the result. */
  readonly print: (line: string) => void;
  /** For complaints and progress. */
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
    const hint = `npm has taken --${kept} for itself. Put a lone -- before the options that are for epitaph.`;
    return complain(new UsageError(`${(error as Error).message.replace(/\.$/, '')}. ${hint}`), stderr);
  }
}

/** npm takes the option of `npm start --port 80`, which it doesn't know, for its own, and passes only "80" on. */
function keptByNpm(name: string, environment: Environment): string | undefined {
  if (environment['npm_lifecycle_event'] === undefined) return undefined;
  const ofCommand = Object.hasOwn(commands, name) ? Object.keys(commands[name]!.flags) : optionNames;
  return ofCommand.find((flag) => environment[`npm_config_${flag.replaceAll('-', '_')}`] !== undefined);
}

/** An empty variable counts as not set, as for the server. */
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
  if (positionals.length > 0) throw new UsageError(`serve has no argument ${JSON.stringify(positionals[0])}.`);
  const flags = Object.fromEntries(names.map((name) => [name, textFlag(values, name)]));
  // Imported only here, so that commands that call a server need not wait until one is loaded.
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
    const extra = positionals[most];
    const reason = extra === undefined ? '' : `${JSON.stringify(extra)} is one argument too many. `;
    throw new UsageError(`${reason}Usage: epitaph ${`${name} ${command.operands}`.trimEnd()} [options]`);
  }
  if (positionals.includes('')) throw new UsageError(`An operand of ${name} is empty.`);
  // Empty values come from variables that are not set. An empty folder name would mean the current folder.
  const empty = Object.keys(values).find((flag) => !MAY_BE_EMPTY.has(flag) && [values[flag]].flat().includes(''));
  if (empty !== undefined) throw new UsageError(`The value of --${empty} is empty.`);
  const endpoint = textFlag(values, 'endpoint') ?? environment['EPITAPH_ENDPOINT'] ?? 'http://127.0.0.1:8081';
  const key = textFlag(values, 'key') ?? environment['EPITAPH_KEY'] ?? EMULATOR_KEY;
  let isPointedBack = false;
  const pointBack = (rids: string): void => {
    // Said once, because a command may request many pages.
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
 * Refuses arguments in another encoding than UTF-8, in which Node.js replaces bytes by U+FFFD: a hold would be on a key
 * that the user does not mean. But a key may contain that character, so the bytes that were typed decide, if the system
 * shows them.
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
  if (!isUtf8(typed))
    throw new UsageError(`${JSON.stringify(wrong)} is not encoded in UTF-8. Set the terminal to UTF-8.`);
}

function authorities(file: string | undefined): Buffer | undefined {
  try {
    return file === undefined ? undefined : readFileSync(file);
  } catch (error) {
    throw new UsageError(`--tls-ca: the file can't be read: ${(error as Error).message}`);
  }
}

/** @throws UsageError for unknown flags */
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

/** The message for a wrong flag. Node.js's own also explains positional arguments. */
function flagComplaint(command: string, { code, message }: NodeJS.ErrnoException): string {
  const [, option = ''] = /'(?:-\w, )?(-[^\s']*)/.exec(message) ?? [];
  if (code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION') {
    return /^-\d/.test(option)
      ? `Put a lone -- before a negative number, as in: epitaph ${command} … -- ${option}`
      : `${command} has no option ${option}; epitaph ${command} --help lists its options.`;
  }
  if (message.includes('ambiguous'))
    return `${option} needs a value. If the value begins with a dash, write ${option}=-….`;
  return message.includes('does not take an argument') ? `${option} takes no value.` : `${option} needs a value.`;
}

/**
 * Whether a file or folder belongs to another user, as after a command that root has run, or is on a read-only disk.
 */
function isDenied(error: unknown): error is Error {
  const { code = '', path } = error as NodeJS.ErrnoException;
  return error instanceof Error && path !== undefined && ['EACCES', 'EPERM', 'EROFS'].includes(code);
}

/** Whether too many files are open, in this process or on the machine. */
const isOutOfFiles = (error: unknown): error is Error =>
  error instanceof Error && ['EMFILE', 'ENFILE'].includes((error as NodeJS.ErrnoException).code ?? '');

/** Prints one line for an error that the user can fix, and the whole error for a defect. */
function complain(error: unknown, stderr: ComplaintStream): number {
  // Messages may contain text from restored copies, certificates and servers, so they are shown without control
  // characters.
  const say = (message: string, code: number, show = visible): number => {
    stderr.complain(show(message));
    return code;
  };
  // Compared by name, so that commands that need no storage don't load it.
  if (error instanceof Error && USAGE_ERRORS.has(error.name)) return say(error.message, exitCodes.usage);
  if (error instanceof Error && error.name === 'BadConnectionString') {
    return say(`The connection string of --event-store ${error.message}.`, exitCodes.usage);
  }
  if (isDenied(error)) return say(`${error.message}. Check its owner, its permissions, and the disk.`, exitCodes.usage);
  if (isOutOfFiles(error)) return say(`${error.message}. Raise the limit (ulimit -n).`, exitCodes.usage);
  if (error instanceof UsageError || error instanceof BadConfiguration)
    return say(error.message, exitCodes.usage, visibleLines);
  if (error instanceof ServerUnreachable) return say(error.message, exitCodes.unreachable);
  if (error instanceof ServerRefused) return say(`${error.message} (${error.code})`, exitCodes.problem);
  if (error instanceof StorageUnavailable) {
    // Its message already says what to do when the server can be reached.
    if (error.name === 'WorkCutShort') return say(error.message, exitCodes.unreachable);
    if (error.isForOperator) return say(error.message, exitCodes.problem);
    return say(`${error.message.replace(/\.$/, '')}. Try again when it can be reached.`, exitCodes.unreachable);
  }
  return say(inspect(error), exitCodes.problem, visibleLines);
}

/**
 * Makes the command fail when its output could not be printed. If the reader has closed the output, as `head` does, it
 * fails without a message.
 */
function endWithOutput(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') process.stderr.write(`epitaph: The output can't be written: ${error.message}\n`);
    process.exit(exitCodes.problem);
  });
  process.stderr.on('error', () => {});
}

if (process.argv[1] !== undefined && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const isServer = process.argv[2] === 'serve';
  // The store goes on, and ends properly, when its output is closed.
  if (isServer) process.stdout.on('error', () => {});
  else endWithOutput();
  // The folder may have been created with open permissions.
  if (isServer || process.argv[2] === 'restore') process.umask(0o077);
  process.exitCode = await run(process.argv.slice(2), process.env, {
    print: (line) => process.stdout.write(`${line}\n`),
    stderr: process.stderr,
  });
  // Nothing left by a fault, such as a writer's thread, may keep the server's process alive. A command must flush its
  // answer first, so it ends by itself.
  if (isServer) process.exit();
}
