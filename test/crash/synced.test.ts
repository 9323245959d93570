import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import { newFolder, removeFolder } from '../simulation/embedded.ts';

/**
 * A power cut loses what the system was not told to write to the disk. No test can cut the power, but `strace` shows each write, each sync
 * and each acknowledgement, and their order.
 */
const CALLS =
  'openat,mkdir,write,pwrite64,pwritev,writev,copy_file_range,sendfile,ftruncate,fsync,fdatasync,rename,unlink,rmdir';

/** Files that are made again after a crash: read models and the proof tree from the log, locks and journal indexes by SQLite. */
const isMadeAnew = (file: string): boolean => /^(items\.v\d+|proof)\.db|^lock$|-shm$|-journal$/.test(basename(file));

/** An event must not be written before its key, nor the record of a purge before the key is destroyed and the ledger says so. */
const RESTS_ON: Readonly<Record<string, RegExp>> = {
  'log.db-wal': /\/(vault\.db(-wal)?|ledger\.ndjson)$/,
  'ledger.ndjson': /\/vault\.db(-wal)?$/,
};

const folder = newFolder('synced');
afterAll(() => removeFolder(folder));

/** What a power cut would remove from a folder, derived from the system calls of a process. */
class Disk {
  /** For each file, the number of the last call that wrote to it, and of the last write that is synced. */
  readonly #written = new Map<string, number>();
  readonly #synced = new Map<string, number>();
  /** For each name, the number of the call that created or changed it. */
  readonly #named = new Map<string, number>();
  #calls = 0;

  write(file: string): void {
    this.#written.set(file, ++this.#calls);
  }

  name(path: string): void {
    if (!this.#named.has(path)) this.#named.set(path, ++this.#calls);
  }

  /** Renames a file, or a folder with its contents. */
  rename(from: string, to: string): void {
    this.remove(to);
    for (const of of [this.#written, this.#synced, this.#named]) {
      for (const [path, call] of of) {
        if (path !== from && !path.startsWith(`${from}/`)) continue;
        of.delete(path);
        of.set(to + path.slice(from.length), call);
      }
    }
    this.#named.set(to, ++this.#calls);
  }

  remove(path: string): void {
    for (const of of [this.#written, this.#synced, this.#named]) of.delete(path);
  }

  /** Begins a sync. The returned function marks what is on the disk when the sync has ended. */
  sync(path: string): () => void {
    const upTo = this.#calls;
    return () => this.#synced.set(path, Math.max(upTo, this.#synced.get(path) ?? 0));
  }

  #isMadeAnew(path: string): boolean {
    // SQLite begins an empty journal again.
    return isMadeAnew(path) || (path.endsWith('-wal') && !this.#written.has(path));
  }

  /** The contents and names of some files and folders that would be lost. */
  lost(of: (path: string) => boolean): string[] {
    const behind = (calls: ReadonlyMap<string, number>, synced: (path: string) => string): string[] =>
      [...calls]
        .filter(([path, call]) => of(path) && !this.#isMadeAnew(path) && call > (this.#synced.get(synced(path)) ?? 0))
        .map(([path]) => path);
    return [...behind(this.#written, (file) => file), ...behind(this.#named, dirname).map((path) => `${path} (name)`)];
  }
}

/** The state of the disk over time, from the trace of a process. */
class Trace {
  /** For each acknowledgement, what would have been lost of it, or of anything before it, at that moment. */
  readonly lost = new Map<string, readonly string[]>();
  /** What was written while something that it depends on would have been lost. */
  readonly early = new Set<string>();
  readonly #disk = new Disk();
  readonly #place: string;

  /** @param place the folder that matters */
  constructor(text: string, place: string) {
    this.#place = place;
    /** Calls that were interrupted in the trace by calls of other threads, and that have not ended yet. */
    const unfinished = new Map<string, (() => void) | undefined>();
    for (const line of text.split('\n')) {
      const [, thread = '', rest = ''] = /^(\d+) +(.*)$/.exec(line) ?? [];
      if (/^<\.\.\. \w+ resumed>/.test(rest)) {
        if (!/= -1 /.test(rest)) unfinished.get(thread)?.();
        continue;
      }
      const [, call, args, result] = /^(\w+)\((.*?)(?:\) += (.*)| <unfinished \.\.\.>)$/.exec(rest) ?? [];
      if (call === undefined || result?.startsWith('-1')) continue;
      const end = this.#begin(call, args!);
      if (result === undefined) unfinished.set(thread, end);
      else end?.();
    }
  }

  /** Begins a call. The returned function applies its effect at its end. */
  #begin(call: string, args: string): (() => void) | undefined {
    const disk = this.#disk;
    const [path = '', to = ''] = [...args.matchAll(/"([^"]*)"/g)].map(([, text]) => text!);
    const files = [...args.matchAll(/\b\d+<([^>]*)>/g)].map(([, file]) => file!);
    const file = files[call === 'copy_file_range' ? 1 : 0] ?? '';
    switch (call) {
      case 'openat':
        return args.includes('O_CREAT') && this.#matters(path) ? () => disk.name(path) : undefined;
      case 'mkdir':
        return this.#matters(path) ? () => disk.name(path) : undefined;
      case 'rename': {
        if (!this.#matters(to)) return undefined;
        // A file that replaces another must be complete by then. So must a whole folder before its epitaph.json says what it is.
        const whole = basename(to) === 'epitaph.json' ? dirname(to) : path;
        this.#assertBefore(to, (other) => other === path || other.startsWith(`${whole}/`), `${path} (name)`);
        return () => disk.rename(path, to);
      }
      case 'unlink':
      case 'rmdir':
        return () => disk.remove(path);
      case 'fsync':
      case 'fdatasync':
        return disk.sync(file);
      default: {
        const [, told] = /"told: (.*)\\n"/.exec(args) ?? [];
        if (told !== undefined)
          this.lost.set(
            told,
            disk.lost(() => true),
          );
        // A journal that is truncated and comes back in its former length is emptied again by the next start.
        else if (this.#matters(file) && !(call === 'ftruncate' && file.endsWith('-wal'))) {
          const rests = RESTS_ON[basename(file)];
          if (rests !== undefined) this.#assertBefore(file, (other) => rests.test(other));
          disk.write(file);
        }
        return undefined;
      }
    }
  }

  #matters(path: string): boolean {
    return path === this.#place || path.startsWith(`${this.#place}/`);
  }

  #assertBefore(path: string, of: (other: string) => boolean, but?: string): void {
    for (const other of this.#disk.lost(of)) if (other !== but) this.early.add(`${path} before ${other}`);
  }
}

it('everything acknowledged is on the disk, and what it depends on was there before', (context) => {
  if (spawnSync('strace', ['-f', '-qq', '-o', '/dev/null', 'true']).status !== 0) {
    context.skip('there is no strace, or it may not trace: install it, and run as root or with CAP_SYS_PTRACE');
  }
  const trace = join(folder, 'trace');
  const place = join(folder, 'place');
  const child = fileURLToPath(new URL('./synced-child.ts', import.meta.url));
  const traced = ['-f', '-y', '-qq', '-s', '64', '-e', `trace=${CALLS}`, '-o', trace, process.execPath, child, place];
  const { status, stderr } = spawnSync('strace', traced, { encoding: 'utf8' });
  expect([status, stderr]).toEqual([0, '']);
  const { lost, early } = new Trace(readFileSync(trace, 'utf8'), place);
  expect([...early]).toEqual([]);
  expect(lost.size).toBe(15);
  expect(Object.fromEntries(lost)).toEqual(Object.fromEntries([...lost.keys()].map((told) => [told, []])));
}, 60_000);
