import { execFileSync } from 'node:child_process';

/** Why a test skips that has to mount one, and what it takes to run it. */
export const NO_MOUNT = 'this user may not mount a file system: run it as root, with CAP_SYS_ADMIN';

/** A file system of its own over a folder that is there, where this user may mount one. */
export class Disk {
  readonly path: string;
  #isMounted = false;

  constructor(path: string) {
    this.path = path;
  }

  mount(megabytes: number): boolean {
    try {
      const options = ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', this.path];
      execFileSync('mount', options, { stdio: 'ignore' });
      this.#isMounted = true;
    } catch {
      // Somebody who may not mount tests the rest.
    }
    return this.#isMounted;
  }

  remount(mode: 'ro' | 'rw'): void {
    execFileSync('mount', ['-o', `remount,${mode}`, this.path]);
  }

  unmount(): void {
    if (this.#isMounted) execFileSync('umount', ['--lazy', this.path]);
  }
}
