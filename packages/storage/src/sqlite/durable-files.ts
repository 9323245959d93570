import {
  closeSync,
  existsSync,
  fdatasync as fdatasyncOf,
  fdatasyncSync,
  fsyncSync,
  mkdirSync,
  openSync,
  renameSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { UnusableFile } from './database.ts';
import { giveToFolderOwner } from './file-owner.ts';
import { StorageFault } from './writer.ts';

/**
 * Like a recursive mkdir, but the new names are durable: what is put into a folder would be lost with its name. (Node's
 * own recursive mkdir never returns where a parent refuses with ENOENT, as /proc does.)
 */
export function makeFolder(path: string): void {
  if (existsSync(path)) return;
  const parent = dirname(resolve(path));
  if (parent !== resolve(path)) makeFolder(parent);
  mkdirSync(path, { mode: 0o700 });
  syncFolder(parent);
}

/**
 * Replaces a small file, for its owner alone, so that after a crash it holds either the old text or the new.
 *
 * @throws {UnusableFile} for a disk that is full or can't be written to; then it holds the old text.
 */
export function writeDurably(file: string, text: string): void {
  const temporary = `${file}.new`;
  try {
    writeFileSync(temporary, text, { mode: 0o600, flush: true });
    giveToFolderOwner(temporary);
    renameSync(temporary, file);
    syncFolder(join(file, '..'));
  } catch (error) {
    throw new UnusableFile(
      `${file} can't be written: ${(error as Error).message}. Make room on its disk, or check its permissions.`,
      { cause: error },
    );
  }
}

/**
 * Writes a short text over one of the same length. That takes no space, so on a full disk time goes on, and reading
 * with it. So few bytes are in one sector, which is written whole or not at all.
 *
 * @throws {StorageFault} when it can't be written
 */
export function overwriteDurably(file: string, text: string): void {
  try {
    if (statSync(file, { throwIfNoEntry: false })?.size !== text.length) {
      writeDurably(file, text);
      return;
    }
    const mark = openSync(file, 'r+');
    try {
      writeSync(mark, text);
      fdatasyncSync(mark);
    } finally {
      closeSync(mark);
    }
  } catch (error) {
    throw new StorageFault({
      fault: `the time can't be stored in ${file}, so the store can't use a new time: ${(error as Error).message}. Check its disk and its permissions.`,
    });
  }
}

const fdatasync = promisify(fdatasyncOf);

/**
 * The same, but waits for the disk without holding up others: beside other writes a sync takes tens of milliseconds. The
 * text itself is written at once, so that what is written after it stands.
 *
 * @throws the system's own error when it can't be written
 */
export async function overwriteSoon(file: string, text: string): Promise<void> {
  const mark = openSync(file, 'r+');
  try {
    writeSync(mark, text);
    await fdatasync(mark);
  } finally {
    closeSync(mark);
  }
}

/** Identifies a file whatever its name; undefined where there is none. */
export function identityOf(file: string): string | undefined {
  const found = statSync(file, { throwIfNoEntry: false, bigint: true });
  return found === undefined ? undefined : `${found.dev} ${found.ino}`;
}

/** Makes durable the names that were made or changed in a folder. */
export function syncFolder(path: string): void {
  const folder = openSync(path, 'r');
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}
