import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import { newFolder, removeFolder } from '../simulation/embedded.ts';

/**
 * A power cut takes what the system has not been told to write to the disk. No test can cut the power, but `strace` sees
 * each write, each sync and each acknowledgement, and in which order they were.
 */
const CALLS =
  'openat,mkdir,write,pwrite64,pwritev,writev,copy_file_range,sendfile,ftruncate,fsync,fdatasync,rename,unlink,rmdir';

/** What is made anew after a crash: read models and the proof's tree from the log, locks and the index of a journal by SQLite. */
const isMadeAnew = (file: string): boolean => /^(items\.v\d+|proof)\.db|^lock$|-shm$|-journal$/.test(basename(file));

/** An event never comes before its key, nor the record of a purge before the key has gone and the ledger says so. */
const RESTS_ON: Readonly<Record<string, RegExp>> = {
  'log.db-wal': /\/(vault\.db(-wal)?|ledger\.ndjson)$/,
  'ledger.ndjson': /\/vault\.db(-wal)?$/,
};

const folder = newFolder('synced');
afterAll(() => removeFolder(folder));

/** What of a folder a power cut would take, by the calls of a process. */
class Disk {
  /** For each file what was written of it, and how much of that is on the disk: numbers of calls. */
  readonly #written = new Map<string, number>();
  readonly #synced = new Map<string, number>();
  /** For each name that was made or changed the call that did. */
  readonly #named = new Map<string, number>();
  #calls = 0;

  write(file: string): void {
    this.#written.set(file, ++this.#calls);
  }

  name(path: string): void {
    if (!this.#named.has(path)) this.#named.set(path, ++this.#calls);
  }

  /** Of a file, or of a folder with what is in it. */
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

  /** Says what is on the disk when the sync that begins now has ended. */
  sync(path: string): () => void {
    const upTo = this.#calls;
    return () => this.#synced.set(path, Math.max(upTo, this.#synced.get(path) ?? 0));
  }

  #isMadeAnew(path: string): boolean {
    // A journal that has nothing yet is begun again by SQLite.
    return isMadeAnew(path) || (path.endsWith('-wal') && !this.#written.has(path));
  }

  /** What would be lost of some files and folders: what is in them, or their names. */
  lost(of: (path: string) => boolean): string[] {
    const behind = (calls: ReadonlyMap<string, number>, synced: (path: string) => string): string[] =>
      [...calls]
        .filter(([path, call]) => of(path) && !this.#isMadeAnew(path) && call > (this.#synced.get(synced(path)) ?? 0))
        .map(([path]) => path);
    return [...behind(this.#written, (file) => file), ...behind(this.#named, dirname).map((path) => `${path} (name)`)];
  }
}

/** What was on the disk at which moment, by the trace of a process. */
class Trace {
  /** Of each thing that was acknowledged, what of it, or of anything before it, would have been lost then. */
  readonly lost = new Map<string, readonly string[]>();
  /** What was written while something that it rests on would have been lost. */
  readonly early = new Set<string>();
  readonly #disk = new Disk();
  readonly #place: string;

  /** @param place the folder that matters */
  constructor(text: string, place: string) {
    this.#place = place;
    /** Calls of threads that came between the beginning and the end of a call of another. */
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

  /** Answers with what is so at the end of a call. */
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
        // What takes a place is whole by then; and so is all of a folder, before that says of itself what it is.
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
        // A journal that comes back in its old length is emptied again by the next start.
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

it('what was acknowledged is on the disk, and what it rests on was there before', (context) => {
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
