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
 * Makes a folder and its parents, and makes their names durable: if a folder's name is lost, so is everything in it. (Node's own
 * recursive mkdir never returns if a parent refuses with ENOENT, as /proc does.)
 */
export function makeFolder(path: string): void {
  if (existsSync(path)) return;
  const parent = dirname(resolve(path));
  if (parent !== resolve(path)) makeFolder(parent);
  mkdirSync(path, { mode: 0o700 });
  syncFolder(parent);
}

/**
 * Replaces a small file, readable for its owner only, so that after a crash it has either the old or the new text.
 *
 * @throws {UnusableFile} if the disk is full or can't be written; then the file has the old text
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
      `${file} can't be written: ${(error as Error).message}. Free some space on its disk, or check its permissions.`,
      { cause: error },
    );
  }
}

/**
 * Overwrites a short text with one of the same length. That needs no space, so the clock's mark can be stored on a full disk, and the
 * store can still be read. The text is in one sector of the disk, which is written as a whole or not at all.
 *
 * @throws {StorageFault} if it can't be written
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
 * Does the same, but syncs without blocking the event loop: beside other writes a sync takes tens of milliseconds. The text itself is
 * written before this returns, so a later write is not overwritten by it.
 *
 * @throws the operating system's error if it can't be written
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

/** Identifies a file independently of its name; undefined if there is none. */
export function identityOf(file: string): string | undefined {
  const found = statSync(file, { throwIfNoEntry: false, bigint: true });
  return found === undefined ? undefined : `${found.dev} ${found.ino}`;
}

/** Makes new and changed names in a folder durable. */
export function syncFolder(path: string): void {
  const folder = openSync(path, 'r');
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}
