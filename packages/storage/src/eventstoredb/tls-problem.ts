import { connect } from 'node:tls';
import type { ConnectionTarget } from './connection-string.ts';
import { after } from '../patience.ts';

const ANSWERS_WITHIN_MS = 5_000;

/**
 * Finds out why a connection can never succeed: one side uses TLS and the other does not, or the certificate is not trusted. The client
 * does not distinguish this from a server that is not available.
 *
 * @returns a message; undefined if one of the nodes may just not have started yet
 */
export async function tlsProblem({ nodes, channel }: ConnectionTarget): Promise<string | undefined> {
  const problems = await Promise.all(nodes.map((node) => problemWith(node, channel)));
  return problems.includes(undefined) ? undefined : problems[0];
}

/** Tries a TLS handshake. A server that answers it uses TLS; one that answers with anything else does not. */
function problemWith(
  { address, port }: ConnectionTarget['nodes'][number],
  { insecure = false, rootCertificate, userCertFile, userKeyFile }: ConnectionTarget['channel'],
): Promise<string | undefined> {
  const { promise, resolve } = Promise.withResolvers<string | undefined>();
  const socket = connect({
    host: address,
    port,
    ca: rootCertificate,
    cert: userCertFile,
    key: userKeyFile,
    ALPNProtocols: ['h2'],
    rejectUnauthorized: !insecure,
  });
  socket.once('secureConnect', () => {
    resolve(insecure ? 'the server there uses TLS, but tls=false says that it does not' : undefined);
  });
  socket.once('error', ({ code, message }: NodeJS.ErrnoException) =>
    resolve(insecure ? undefined : meaning(code, message)),
  );
  const stop = after(ANSWERS_WITHIN_MS, () => resolve(undefined));
  return promise.finally(() => {
    stop();
    socket.on('error', () => {}).destroy();
  });
}

function meaning(code = '', message: string): string | undefined {
  if (/WRONG_VERSION_NUMBER|PACKET_LENGTH/.test(code)) {
    return 'the server there does not use TLS: give it a certificate, or add ?tls=false to the connection string';
  }
  // A certificate that has expired, or is not valid yet, is not reported: it may be renewed without a change of the store's options.
  if (/SELF_SIGNED|SIGNATURE|ISSUER/.test(code)) {
    return `its certificate is not trusted (${message}): name the file of its authority as tlsCAFile`;
  }
  return /ALTNAME/.test(code) ? `its certificate is for another name (${message})` : undefined;
}
