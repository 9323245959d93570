import { optionNames, optionSchemas, placeholders, variableOf } from '../config/options.ts';
import type { Command, Flags } from './command.ts';
import { exitCodes } from './exit-codes.ts';

const WIDTH = 100;
/** If the left column is longer than this, the description begins on the next line. */
const MAX_LEFT = 36;
const TIME_TEXT =
  '<time> is like 2026-11-21T10:00:00Z, with an offset instead of the Z, a date alone (midnight UTC), or milliseconds since 1970 (13 digits).';

type Listed = Readonly<Record<string, Pick<Command, 'summary' | 'operands'>>>;

/** @param groups the commands, by the heading of their group */
export function generalHelp(groups: Readonly<Record<string, Listed>>): string {
  const rows = Object.values(groups).map((commands) =>
    Object.entries(commands).map(
      ([name, { summary, operands }]) => [`${name} ${operands}`.trimEnd(), summary] as const,
    ),
  );
  const left = leftOf(rows.flat());
  return [
    'epitaph <command> [options]',
    ...Object.keys(groups).flatMap((heading, index) => ['', `${heading}:`, table(rows[index]!, left)]),
    '',
    'epitaph <command> --help describes a command and its options; epitaph --version prints the version.',
    ...wrap(exitCodesText(), WIDTH),
  ].join('\n');
}

/** @param flags all flags of the command, its own first */
export function commandHelp(name: string, command: Omit<Command, 'run'>, flags: Flags): string {
  const rows = flagRows(flags);
  const takesTimes = [command.operands, ...rows.map(([flag]) => flag)].some((text) => text.includes('<time>'));
  return [
    `epitaph ${`${name} ${command.operands}`.trimEnd()} [options]`,
    '',
    ...wrap(command.summary, WIDTH),
    ...(command.notes === undefined ? [] : wrap(command.notes, WIDTH)),
    ...(takesTimes ? wrap(TIME_TEXT, WIDTH) : []),
    '',
    table(rows),
    '',
    ...wrap(exitCodesText(), WIDTH),
  ].join('\n');
}

export function serveHelp(summary: string): string {
  const rows = optionNames.map((name) => {
    const schema = optionSchemas[name];
    const standard = schema.safeParse(undefined).data;
    const ending = standard === undefined ? '' : ` (${String(standard)})`;
    return [`--${name} ${placeholders[name]}`, `${schema.description ?? ''}${ending}`] as const;
  });
  return [
    'epitaph serve [options]',
    '',
    summary,
    '',
    table([...rows, ['--config <file>', 'A JSON object with any of these: {"port": 8081, "policy-grace": 0}.']]),
    '',
    ...wrap(
      `Each option is also an environment variable, such as ${variableOf('policy-grace')}. A flag wins over a variable, a variable over the file. Do not give keys as flags: other users of the machine can see flags.`,
      WIDTH,
    ),
    'SIGINT or SIGTERM stops the store after the requests under way; a second signal stops it at once.',
    ...wrap(exitCodesText(), WIDTH),
  ].join('\n');
}

function flagRows(flags: Flags): (readonly [string, string])[] {
  return Object.entries(flags).map(
    ([name, { placeholder, description }]) =>
      [`--${name}${placeholder === undefined ? '' : ` ${placeholder}`}`, description] as const,
  );
}

function exitCodesText(): string {
  const { ok, problem, usage, unreachable } = exitCodes;
  return `Exit codes: ${ok}, all is well; ${problem}, a problem was found or the server refused; ${usage}, the command or the configuration is wrong; ${unreachable}, no server answers.`;
}

type Row = readonly [string, string];

/** The width of the left column. */
function leftOf(rows: readonly Row[]): number {
  return Math.min(MAX_LEFT, Math.max(...rows.map(([first]) => first.length))) + 4;
}

function table(rows: readonly Row[], left = leftOf(rows)): string {
  const indent = `\n${' '.repeat(left)}`;
  return rows
    .map(([first, second]) => {
      const start = first.length > MAX_LEFT ? `  ${first}${indent}` : `  ${first}`.padEnd(left);
      return start + wrap(second, WIDTH - left).join(indent);
    })
    .join('\n');
}

function wrap(text: string, width: number): string[] {
  const lines = [''];
  for (const word of text.split(' ')) {
    const line = lines.at(-1)!;
    if (line !== '' && line.length + 1 + word.length > width) lines.push(word);
    else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`;
  }
  return lines;
}
