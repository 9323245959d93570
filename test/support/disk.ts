import { execFileSync } from 'node:child_process';
import type { TestContext } from 'vitest';

/** The reason to skip a test that has to mount a file system, and what it takes to run it. */
const NO_MOUNT = 'this user may not mount a file system: run it as root, with CAP_SYS_ADMIN';

/** A file system of its own over an existing folder, if this user may mount one. */
export class Disk {
  readonly path: string;
  #isMounted = false;

  constructor(path: string) {
    this.path = path;
  }

  /** A disk can be full, read-only or another one only if it is mounted. A user who may not mount skips these tests. */
  mountOrSkip(context: Pick<TestContext, 'skip'>, megabytes: number): void {
    try {
      const options = ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', this.path];
      execFileSync('mount', options, { stdio: 'ignore' });
    } catch {
      context.skip(NO_MOUNT);
    }
    this.#isMounted = true;
  }

  remount(mode: 'ro' | 'rw'): void {
    execFileSync('mount', ['-o', `remount,${mode}`, this.path]);
  }

  unmount(): void {
    if (this.#isMounted) execFileSync('umount', ['--lazy', this.path]);
  }
}
