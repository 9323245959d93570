import { closeSync, constants, fchmodSync, fchownSync, fstatSync, openSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

/**
 * Gives what root makes in another user's folder to that user, whose store could not open it otherwise. Where that is
 * not possible, as over NFS, where root is nobody in particular, it stays root's.
 *
 * It is that user who says what is in the folder: a link to a file of root's elsewhere is given to nobody.
 */
export function giveToFolderOwner(file: string): void {
  if (process.geteuid?.() !== 0) return;
  const { uid, gid } = statSync(dirname(file));
  if (uid === 0) return;
  withFile(file, (handle) => fchownSync(handle, uid, gid));
}

/**
 * Takes from all but its owner what they may do with a file that a version of before 2026-11-23 has made, which left it
 * to the user's umask. To be called before SQLite has it open, whose locks go when any handle of the process is closed.
 */
export function keepFromOthers(file: string): void {
  withFile(file, (handle) => {
    const { mode } = fstatSync(handle);
    if ((mode & 0o077) !== 0) fchmodSync(handle, mode & 0o700);
  });
}

/** Does something to a file under no other name, if it can be done. */
function withFile(file: string, change: (handle: number) => void): void {
  try {
    const handle = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW);
    try {
      if (fstatSync(handle).nlink === 1) change(handle);
    } finally {
      closeSync(handle);
    }
  } catch {
    // It is not there, or stays as it is.
  }
}
