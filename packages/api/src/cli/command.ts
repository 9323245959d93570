import { UsageError } from './exit-codes.ts';
import type { ManagementClient } from './management-client.ts';
import type { ProgressStream } from './progress.ts';

/** A flag of a command, for the parser as well as for `--help`. */
export interface Flag {
  readonly type: 'string' | 'boolean';
  readonly multiple?: boolean;
  /** Represents the value in `--help`. */
  readonly placeholder?: string;
  readonly description: string;
}

export type Flags = Readonly<Record<string, Flag>>;
export type FlagValues = Readonly<Record<string, string | boolean | readonly (string | boolean)[] | undefined>>;

/** The arguments of a command, and where it prints. */
export interface Invocation {
  readonly client: ManagementClient;
  readonly operands: readonly string[];
  readonly flags: FlagValues;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly json: boolean;
  /** Prints a line of the result. Control characters are shown and have no effect. */
  readonly print: (line: string) => void;
  /** Prints a line of a file unchanged. */
  readonly printExactly: (line: string) => void;
  /** For progress, apart from results. */
  readonly stderr: ProgressStream;
}

/** A command, for a running server or for the files of a stopped one. */
export interface Command {
  readonly summary: string;
  /** Operands as in `--help`: `<database> <container> [<id>]`. */
  readonly operands: string;
  readonly operandCounts: readonly [least: number, most: number];
  readonly flags: Flags;
  /** Additional text for `--help`. */
  readonly notes?: string;
  /** True for a command that never calls a server, and so accepts none. */
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

/** @throws UsageError for anything but a whole number */
export const secondsFlag = (flags: FlagValues, name: string): number | undefined =>
  wholeSeconds(textFlag(flags, name), `--${name}`);

/**
 * A number of seconds, if it is given.
 *
 * @throws UsageError for anything but a whole number
 */
export function wholeSeconds(text: string | undefined, name: string): number | undefined {
  if (text === undefined) return undefined;
  if (!/^\d{1,9}$/.test(text)) throw new UsageError(`${name} must be a whole number of seconds.`);
  return Number(text);
}
