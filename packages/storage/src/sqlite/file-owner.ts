import { closeSync, constants, fchmodSync, fchownSync, fstatSync, openSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

/**
 * Gives a file that root makes in another user's folder to that user, whose store could not open it otherwise. If that is not possible,
 * as over NFS, where root has no special rights, the file stays root's.
 *
 * The user controls the folder, and could put a link to one of root's files there. So links are not followed, and files with several
 * names are left alone.
 */
export function giveToFolderOwner(file: string): void {
  if (process.geteuid?.() !== 0) return;
  const { uid, gid } = statSync(dirname(file));
  if (uid === 0) return;
  withFile(file, (handle) => fchownSync(handle, uid, gid));
}

/**
 * Removes all permissions on a file except its owner's: versions before 2026-11-23 left them to the umask. Must be called before SQLite
 * opens the file, since closing any handle of a file releases the locks that the process has on it.
 */
export function keepFromOthers(file: string): void {
  withFile(file, (handle) => {
    const { mode } = fstatSync(handle);
    if ((mode & 0o077) !== 0) fchmodSync(handle, mode & 0o700);
  });
}

/** Changes a file, if that is possible and the file has no other name. */
function withFile(file: string, change: (handle: number) => void): void {
  try {
    const handle = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW);
    try {
      if (fstatSync(handle).nlink === 1) change(handle);
    } finally {
      closeSync(handle);
    }
  } catch {
    // The file does not exist, or can't be changed.
  }
}
