import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** The forms in which a text could be in a file: plain, as UTF-16, in hexadecimal, and in base64 at each alignment. */
export function formsOf(text: string): Map<string, Buffer> {
  const plain = Buffer.from(text, 'utf8');
  const utf16 = Buffer.from(text, 'utf16le');
  const forms = new Map<string, Buffer>([
    ['plain', plain],
    ['UTF-16, little end first', utf16],
    ['UTF-16, big end first', Buffer.from(utf16).swap16()],
    ['hexadecimal', Buffer.from(plain.toString('hex'))],
    ['upper hexadecimal', Buffer.from(plain.toString('hex').toUpperCase())],
    ['reversed', Buffer.from(plain).reverse()],
  ]);
  for (const encoding of ['base64', 'base64url'] as const) {
    for (let offset = 0; offset < 3; offset++) {
      // The characters at both ends are left out, because they depend on the neighbouring bytes.
      const coded = Buffer.concat([Buffer.alloc(offset), plain])
        .toString(encoding)
        .replaceAll('=', '');
      forms.set(`${encoding} at ${offset}`, Buffer.from(coded.slice(offset + 1, -2)));
    }
  }
  return forms;
}

export interface Found {
  readonly file: string;
  readonly form: string;
  readonly offset: number;
}

/** Every file in a folder and its subfolders, with all its bytes, except files that a running server removes meanwhile. */
export function filesOf(folder: string): { readonly file: string; readonly bytes: Buffer }[] {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    try {
      return statSync(path).isDirectory() ? filesOf(path) : [{ file: name, bytes: readFileSync(path) }];
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
      throw error;
    }
  });
}

/** The places in the files of a folder where a text occurs in any of its forms. */
export function search(folder: string, forms: ReadonlyMap<string, Buffer>): Found[] {
  return filesOf(folder).flatMap(({ file, bytes }) =>
    [...forms].flatMap(([form, wanted]) => {
      const offset = bytes.indexOf(wanted);
      return offset < 0 ? [] : [{ file, form, offset }];
    }),
  );
}

/** Which of many byte strings, each of four bytes or more, occur anywhere in the files of a folder. One pass for all of them. */
export function foundIn(folder: string, wanted: readonly Buffer[]): Set<Buffer> {
  const byStart = new Map<number, Buffer[]>();
  for (const bytes of wanted) {
    const start = bytes.readUInt32LE(0);
    const others = byStart.get(start);
    if (others === undefined) byStart.set(start, [bytes]);
    else others.push(bytes);
  }
  const found = new Set<Buffer>();
  for (const { bytes } of filesOf(folder)) {
    for (let offset = 0; offset + 4 <= bytes.length; offset++) {
      const candidates = byStart.get(bytes.readUInt32LE(offset));
      if (candidates === undefined) continue;
      for (const candidate of candidates) {
        if (bytes.subarray(offset, offset + candidate.length).equals(candidate)) found.add(candidate);
      }
    }
  }
  return found;
}
