import { execFileSync } from 'node:child_process';
import type { TestContext } from 'vitest';

/** Why a test skips that has to mount one, and what it takes to run it. */
const NO_MOUNT = 'this user may not mount a file system: run it as root, with CAP_SYS_ADMIN';

/** A file system of its own over a folder that is there, where this user may mount one. */
export class Disk {
  readonly path: string;
  #isMounted = false;

  constructor(path: string) {
    this.path = path;
  }

  /** A disk can be full, read-only or another one only when it is mounted: who may not do that tests the rest. */
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
