import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** For the names of tests that are skipped for want of the program that makes certificates; undefined where it is. */
export const whyNoCertificates: string | undefined =
  spawnSync('openssl', ['version']).error === undefined ? undefined : ' [skipped: no openssl: apt-get install openssl]';

export interface SelfSigned {
  readonly key: Buffer;
  readonly certificate: Buffer;
  /** The certificate, as the authority that clients are to trust. */
  readonly file: string;
  readonly keyFile: string;
  remove(): void;
}

/** A certificate for localhost, made for this run. */
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
