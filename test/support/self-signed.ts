import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

export interface SelfSigned {
  readonly key: Buffer;
  readonly certificate: Buffer;
  /** The certificate, as the authority for clients to trust. */
  readonly file: string;
  readonly keyFile: string;
  remove(): void;
}

/** A certificate for localhost, made for this run by `openssl`. */
export function selfSigned(): SelfSigned {
  const folder = mkdtempSync(path.join(tmpdir(), 'epitaph-tls-'));
  const keyFile = path.join(folder, 'key.pem');
  const file = path.join(folder, 'certificate.pem');
  const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'];
  execFileSync(
    'openssl',
    [
      'req',
      '-x509',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:prime256v1',
      '-nodes',
      '-days',
      '2',
      '-keyout',
      keyFile,
      '-out',
      file,
      ...subject,
    ],
    { stdio: 'ignore' },
  );
  return {
    key: readFileSync(keyFile),
    certificate: readFileSync(file),
    file,
    keyFile,
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}
