/** The stream of one client encryption key, named by its rid. */
export function clientEncryptionKeyStream(rid: string): string {
  return `client-encryption-key-${rid}`;
}

/** The rid in a client encryption key's stream name, or undefined for a stream of another kind. */
export function parseClientEncryptionKeyStream(stream: string): string | undefined {
  return stream.startsWith('client-encryption-key-') ? stream.slice('client-encryption-key-'.length) : undefined;
}
