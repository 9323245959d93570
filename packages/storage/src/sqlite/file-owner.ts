import { closeSync, constants, fchownSync, fstatSync, openSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

/**
 * Gives what root makes in another user's folder to that user, whose store could not open it otherwise. Where that is
 * not possible it stays root's.
 *
 * It is that user who says what is in the folder: a link to a file of root's elsewhere is given to nobody.
 */
export function giveToFolderOwner(file: string): void {
  if (process.geteuid?.() !== 0) return;
  const { uid, gid } = statSync(dirname(file));
  if (uid === 0) return;
  try {
    const handle = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW);
    try {
      if (fstatSync(handle).nlink === 1) fchownSync(handle, uid, gid);
    } finally {
      closeSync(handle);
    }
  } catch {
    // As over NFS, where root is nobody in particular.
  }
}
