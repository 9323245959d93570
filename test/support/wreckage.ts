import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join, relative } from 'node:path';

/** What a process leaves if it is killed at one of some steps. */
export interface Wreck<Known> {
  readonly path: string;
  readonly steps: string[];
  /** What else was known at these steps. */
  readonly known: Known;
}

/**
 * Folders as the steps of a process leave them, each different one once. Many steps change no file, and a store opened on equal files does
 * the same. So of crashes at such steps it is enough to check one.
 */
export class Wreckage<Known = undefined> {
  readonly wrecks: Wreck<Known>[] = [];
  readonly #byState = new Map<string, Wreck<Known>>();

  /** The steps of all wrecks. */
  get steps(): string[] {
    return this.wrecks.flatMap(({ steps }) => steps);
  }

  /**
   * Keeps a folder, or removes it if an earlier step has left the same.
   *
   * @param state distinguishes steps that leave equal files
   */
  keep(step: string, path: string, known: Known, state = ''): void {
    const key = `${state} ${fingerprintOf(path)}`;
    const same = this.#byState.get(key);
    if (same !== undefined) {
      same.steps.push(step);
      rmSync(path, { recursive: true });
      return;
    }
    const wreck = { path, steps: [step], known };
    this.#byState.set(key, wreck);
    this.wrecks.push(wreck);
  }

  /** Checks one wreck after the other, and names the one for which a check failed. */
  async each(look: (wreck: Wreck<Known>, at: string) => Promise<void>): Promise<void> {
    for (const [index, wreck] of this.wrecks.entries()) {
      const at = `crash ${index} at "${wreck.steps.join('", "')}"`;
      try {
        await look(wreck, at);
      } catch (error) {
        const { message, stack = '' } = error as Error;
        throw new Error(`${at}: ${message}\n${stack}`, { cause: error });
      }
    }
  }
}

/** Identifies the names and contents of all files in a folder. */
function fingerprintOf(folder: string): string {
  const hash = createHash('sha256');
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true })
    .map((entry) => ({ isFile: entry.isFile(), path: join(entry.parentPath, entry.name) }))
    .toSorted((one, other) => (one.path < other.path ? -1 : 1));
  for (const { isFile, path } of entries) {
    const bytes = isFile ? readFileSync(path) : undefined;
    hash.update(JSON.stringify([relative(folder, path), bytes?.length ?? null]));
    if (bytes !== undefined) hash.update(bytes);
  }
  return hash.digest('base64url');
}
