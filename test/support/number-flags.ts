import { parseArgs, type ParseArgsOptionsConfig } from 'node:util';

/**
 * Reads the flags of a program, all of them integers. For `--help` or an unknown flag it prints the usage and exits, with code 2 for a
 * mistake, so that a run of nothing does not count as a success.
 */
export function numberFlags<Name extends string>(
  usage: string,
  defaults: Readonly<Record<Name, number>>,
): Readonly<Record<Name, number>> {
  try {
    const texts = Object.keys(defaults).map((name) => [name, { type: 'string' }] as const);
    const options: ParseArgsOptionsConfig = { ...Object.fromEntries(texts), help: { type: 'boolean', short: 'h' } };
    const { values } = parseArgs({ options });
    if (values['help'] === true) {
      process.stdout.write(`${usage}\n`);
      process.exit(0);
    }
    return Object.fromEntries(
      Object.entries<number>(defaults).map(([name, standard]) => [name, numberOf(name, values[name], standard)]),
    ) as Record<Name, number>;
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n${usage}\n`);
    process.exit(2);
  }
}

function numberOf(name: string, text: unknown, standard: number): number {
  if (text === undefined) return standard;
  if (typeof text === 'string' && /^\d{1,9}$/.test(text)) return Number(text);
  throw new Error(`--${name} is a whole number.`);
}
