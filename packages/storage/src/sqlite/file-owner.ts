import { chownSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

/**
 * Gives what root makes in another user's folder to that user, whose store could not open it otherwise. Where that is
 * not possible it stays root's.
 */
export function giveToFolderOwner(file: string): void {
  if (process.geteuid?.() !== 0) return;
  const { uid, gid } = statSync(dirname(file));
  if (uid === 0) return;
  try {
    chownSync(file, uid, gid);
  } catch {
    // As over NFS, where root is nobody in particular.
  }
}
