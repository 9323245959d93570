import { access, constants, stat } from 'node:fs/promises';

/** Why no backup can be taken into a folder; undefined if no reason is found. */
export async function backupFolderProblem(folder: string): Promise<string | undefined> {
  const about = (what: string): string =>
    `no backup can be taken: the --backup-folder ${folder} ${what}. Is its disk mounted?`;
  try {
    if (!(await stat(folder)).isDirectory()) return about('is not a folder');
    await access(folder, constants.W_OK | constants.X_OK);
    return undefined;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return about(code === 'ENOENT' ? 'does not exist' : `can't be written to (${code})`);
  }
}
