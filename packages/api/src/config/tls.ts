import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import { BadConfiguration } from './configuration.ts';
import type { Configuration } from './options.ts';

/** What a server shows to clients, as PEM. */
export interface TlsFiles {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/**
 * The server's certificate and key as their files have them; undefined without TLS.
 *
 * @throws BadConfiguration for files that can't be read, or don't go together
 */
export function readTls({ 'tls-cert': certFile, 'tls-key': keyFile }: Configuration): TlsFiles | undefined {
  if (certFile === undefined || keyFile === undefined) return undefined;
  const tls = { cert: readPem('--tls-cert', certFile), key: readPem('--tls-key', keyFile) };
  try {
    createSecureContext(tls);
  } catch (error) {
    throw new BadConfiguration(
      `The certificate in ${certFile} and the key in ${keyFile} can't be used together: ${(error as Error).message}`,
    );
  }
  return tls;
}

function readPem(option: string, file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    throw new BadConfiguration(`${option}: the file can't be read: ${(error as Error).message}`);
  }
}
