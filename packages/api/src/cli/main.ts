import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs, type ParseArgsOptionsConfig } from 'node:util';
import { BadConfiguration, readConfiguration } from '../config/configuration.ts';
import { optionNames } from '../config/options.ts';
import { EMULATOR_KEY } from '../http/keys.ts';
import { textFlag, type Command, type Flags, type FlagValues } from './command.ts';
import { exitCodes, UsageError } from './exit-codes.ts';
import { commandHelp, generalHelp, serveHelp } from './help.ts';
import { disappearances, explain, history } from './history-commands.ts';
import { ManagementClient, ServerRefused, ServerUnreachable } from './management-client.ts';
import { fsck, purge, rebuild } from './operation-commands.ts';
import { serve } from './serve.ts';

const SERVE = 'Runs the store.';
const commands: Readonly<Record<string, Command>> = { history, explain, disappearances, rebuild, purge, fsck };

const commonFlags: Flags = {
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
  json: { type: 'boolean', description: 'Prints the answer as JSON.' },
  help: { type: 'boolean', description: 'Prints this.' },
};

/** Runs one command line. @returns the exit code */
export async function run(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<number> {
  const print = (line: string): void => console.log(line);
  try {
    const [name, ...rest] = args;
    if (name === undefined || name === '--help' || name === 'help') {
      const text = generalHelp({ serve: { summary: SERVE, operands: '' }, ...commands });
      if (name === undefined) throw new UsageError(`No command was given.\n\n${text}`);
      print(text);
      return exitCodes.ok;
    }
    if (name === 'serve') return await runServe(rest, environment, print);
    const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
    if (command === undefined) {
      throw new UsageError(`There is no command ${JSON.stringify(name)}; there are serve, ${Object.keys(commands).join(', ')}.`);
    }
    return await runCommand(name, command, rest, environment, print);
  } catch (error) {
    return complain(error);
  }
}

async function runServe(args: readonly string[], environment: NodeJS.ProcessEnv, print: (line: string) => void): Promise<number> {
  const names = [...optionNames, 'config'];
  const { values, positionals } = parse(args, {
    ...Object.fromEntries(names.map((name) => [name, { type: 'string' } as const])),
    help: { type: 'boolean' },
  });
  if (values['help'] === true) {
    print(serveHelp(SERVE));
    return exitCodes.ok;
  }
  if (positionals.length > 0) throw new UsageError(`serve takes no ${JSON.stringify(positionals[0])}.`);
  const flags = Object.fromEntries(names.map((name) => [name, textFlag(values, name)]));
  return serve(readConfiguration({ flags, environment }), print);
}

async function runCommand(
  name: string,
  command: Command,
  args: readonly string[],
  environment: NodeJS.ProcessEnv,
  print: (line: string) => void,
): Promise<number> {
  const { values, positionals } = parse(args, { ...command.flags, ...commonFlags });
  if (values['help'] === true) {
    print(commandHelp(name, command, commonFlags));
    return exitCodes.ok;
  }
  const [least, most] = command.operandCounts;
  if (positionals.length < least || positionals.length > most) {
    throw new UsageError(`Use it as: epitaph ${`${name} ${command.operands}`.trimEnd()} [options]`);
  }
  const endpoint = textFlag(values, 'endpoint') ?? environment['EPITAPH_ENDPOINT'] ?? 'http://127.0.0.1:8081';
  const key = textFlag(values, 'key') ?? environment['EPITAPH_KEY'] ?? EMULATOR_KEY;
  return command.run({
    client: new ManagementClient(endpoint, key),
    operands: positionals,
    flags: values,
    json: values['json'] === true,
    print,
    stderr: process.stderr,
  });
}

/** @throws UsageError for flags that there are not */
function parse(
  args: readonly string[],
  flags: Readonly<Record<string, { readonly type: 'string' | 'boolean'; readonly multiple?: boolean }>>,
): { readonly values: FlagValues; readonly positionals: readonly string[] } {
  const options: ParseArgsOptionsConfig = Object.fromEntries(
    Object.entries(flags).map(([name, { type, multiple = false }]) => [name, { type, multiple }]),
  );
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true, strict: true });
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

/** One line on stderr for what somebody can put right; all of it for a defect. */
function complain(error: unknown): number {
  if (error instanceof UsageError || error instanceof BadConfiguration) {
    console.error(`epitaph: ${error.message}`);
    return exitCodes.usage;
  }
  if (error instanceof ServerUnreachable) {
    console.error(`epitaph: ${error.message}`);
    return exitCodes.unreachable;
  }
  if (error instanceof ServerRefused) {
    console.error(`epitaph: ${error.message} (${error.code})`);
    return exitCodes.problem;
  }
  console.error('epitaph:', error);
  return exitCodes.problem;
}

if (process.argv[1] !== undefined && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  process.exitCode = await run(process.argv.slice(2), process.env);
  // What a fault left behind, such as a writer's thread, must not keep the server's process; answers must be flushed.
  if (process.argv[2] === 'serve') process.exit();
}
