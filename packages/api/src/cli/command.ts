import { UsageError } from './exit-codes.ts';
import type { ManagementClient } from './management-client.ts';
import type { ProgressStream } from './progress.ts';

/** A flag of a command, for the parser and for `--help` at once. */
export interface Flag {
  readonly type: 'string' | 'boolean';
  readonly multiple?: boolean;
  /** Stands for the value in `--help`. */
  readonly placeholder?: string;
  readonly description: string;
}

export type Flags = Readonly<Record<string, Flag>>;
export type FlagValues = Readonly<Record<string, string | boolean | readonly (string | boolean)[] | undefined>>;

/** What a command works with. */
export interface Invocation {
  readonly client: ManagementClient;
  readonly operands: readonly string[];
  readonly flags: FlagValues;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly json: boolean;
  /** Results, a line at a time, in which controls are shown and not obeyed. */
  readonly print: (line: string) => void;
  /** Lines of a file, as they are. */
  readonly printExactly: (line: string) => void;
  /** Where progress is shown, apart from results. */
  readonly stderr: ProgressStream;
}

/** A command: against a running server, or on the files of a stopped one. */
export interface Command {
  readonly summary: string;
  /** Operands as `--help` shows them: `<database> <container> [<id>]`. */
  readonly operands: string;
  readonly operandCounts: readonly [least: number, most: number];
  readonly flags: Flags;
  /** More for `--help`. */
  readonly notes?: string;
  /** It never asks a server, and takes none. */
  readonly isLocal?: boolean;
  /** @returns the exit code */
  readonly run: (invocation: Invocation) => Promise<number>;
}

export const reasonFlag: Flags = {
  reason: { type: 'string', placeholder: '<text>', description: 'Why; it stays on record.' },
};

export const textFlag = (values: FlagValues, name: string): string | undefined => {
  const value = values[name];
  return typeof value === 'string' ? value : undefined;
};

/** @throws UsageError for what is no whole number */
export const secondsFlag = (flags: FlagValues, name: string): number | undefined =>
  wholeSeconds(textFlag(flags, name), `--${name}`);

/**
 * A number of seconds of that name, if it is given.
 *
 * @throws UsageError for what is no whole number
 */
export function wholeSeconds(text: string | undefined, name: string): number | undefined {
  if (text === undefined) return undefined;
  if (!/^\d{1,9}$/.test(text)) throw new UsageError(`${name} must be a whole number of seconds.`);
  return Number(text);
}
