import { randomBytes } from 'node:crypto';
import { closeSync, existsSync, fsyncSync, openSync, renameSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { EMULATOR_KEY, type KeyTexts } from '../http/keys.ts';
import { BadConfiguration, readSettings } from './configuration.ts';
import { keyText } from './options.ts';

const keysSchema = z.strictObject({ primary: keyText, secondary: keyText, readOnly: keyText, auditor: keyText });
type KeysFile = z.infer<typeof keysSchema>;

export interface KeysInForce {
  readonly texts: KeyTexts;
  /** Where the primary key comes from. */
  readonly primary: 'emulator' | 'given' | 'file';
  readonly file: string;
}

/**
 * The keys of a store. They come from `keys.json` in the data folder, which is created at the first start, readable by its owner only. The
 * primary key may come from elsewhere: it is the one given as an option or, on loopback, the published emulator key, so that clients
 * configured for the emulator work unchanged.
 *
 * The caller must hold the folder's lock.
 *
 * @throws BadConfiguration if the file is damaged, or if the emulator key would be accepted beyond loopback
 */
export function keysInForce(options: {
  readonly folder: string;
  readonly given: string | undefined;
  readonly loopback: boolean;
}): KeysInForce {
  const file = path.resolve(options.folder, 'keys.json');
  const keys = existsSync(file) ? readKeys(file) : makeKeys(file);
  const primary = options.given ?? (options.loopback ? EMULATOR_KEY : keys.primary);
  if (!options.loopback && Object.values({ ...keys, primary }).includes(EMULATOR_KEY)) refuseEmulatorKey();
  return {
    texts: { ...keys, primary },
    primary: primary === EMULATOR_KEY ? 'emulator' : options.given === undefined ? 'file' : 'given',
    file,
  };
}

/** @throws BadConfiguration */
export function refuseEmulatorKey(): never {
  throw new BadConfiguration(
    'The published emulator key protects nothing, so it works on loopback only: give another --key, or no key (the store makes one then), or --host 127.0.0.1.',
  );
}

function makeKeys(file: string): KeysFile {
  const newKey = (): string => randomBytes(64).toString('base64');
  const keys: KeysFile = { primary: newKey(), secondary: newKey(), readOnly: newKey(), auditor: newKey() };
  const temporary = `${file}.new`;
  writeFileSync(temporary, `${JSON.stringify(keys, undefined, 2)}\n`, { mode: 0o600, flush: true });
  renameSync(temporary, file);
  const folder = openSync(path.dirname(file), 'r');
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
  return keys;
}

function readKeys(file: string): KeysFile {
  if (process.platform !== 'win32' && (statSync(file).mode & 0o077) !== 0) {
    throw new BadConfiguration(
      `The keys in ${file} can be read by others on this machine: run chmod 600 on it, and replace the keys if others may have read them.`,
    );
  }
  const text = readSettings('keys file', file, '. Check its permissions.');
  try {
    return keysSchema.parse(JSON.parse(text));
  } catch {
    throw new BadConfiguration(
      `The keys file ${file} is damaged. Restore it from a copy, or remove it: the next start then makes new keys, which clients need.`,
    );
  }
}
