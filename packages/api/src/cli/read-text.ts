import { readFileSync } from 'node:fs';
import { UsageError } from './exit-codes.ts';

/**
 * The text of a file that was named on the command line.
 *
 * @throws UsageError when it can't be read
 */
export function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw unreadable(file, error);
  }
}

/** The message of Node.js names the file. */
export function unreadable(file: string, error: unknown): UsageError {
  return new UsageError(`${file} can't be read: ${(error as Error).message}`);
}
