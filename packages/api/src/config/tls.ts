import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import { isoTime } from '@epitaph/core/clock.ts';
import { BadConfiguration } from './configuration.ts';
import type { Configuration } from './options.ts';

/** The server's certificate chain and private key, as PEM. */
export interface TlsFiles {
  readonly cert: Buffer;
  readonly key: Buffer;
}

/**
 * Reads the server's certificate and key; undefined without TLS.
 *
 * @throws BadConfiguration if a file can't be read, or if certificate and key don't belong together
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

/** Says why a certificate is not valid at an instant; undefined if it is valid. */
export function outOfDate({ cert }: TlsFiles, nowMs: number): string | undefined {
  const { validFromDate, validToDate } = new X509Certificate(cert);
  if (nowMs > validToDate.getTime()) return `the certificate has expired at ${isoTime(validToDate.getTime())}`;
  if (nowMs < validFromDate.getTime()) return `the certificate is not valid before ${isoTime(validFromDate.getTime())}`;
  return undefined;
}

function readPem(option: string, file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    throw new BadConfiguration(`${option}: the file can't be read: ${(error as Error).message}`);
  }
}
