/**
 * The head of a tree, to be signed: its size and its root hash. Source: C2SP, "tlog-checkpoint" and "signed-note";
 * signatures are Ed25519 (signature type 0x01).
 */
export interface Checkpoint {
  /** The name of the log, without blanks and plus signs. */
  readonly origin: string;
  readonly size: number;
  readonly root: Uint8Array;
}

/** What is needed to check signatures: the key's name and its 32 bytes. */
export interface VerifierKey {
  readonly name: string;
  readonly publicKey: Uint8Array;
}

/** The cryptography, as a parameter, because core has none of its own. */
export interface CheckpointCryptography {
  readonly sha256: (...parts: readonly Uint8Array[]) => Uint8Array;
  /** Ed25519 over the text. */
  readonly verify: (publicKey: Uint8Array, text: Uint8Array, signature: Uint8Array) => boolean;
}

/** Signs in the store's name. */
export interface CheckpointSigner {
  readonly key: VerifierKey;
  /** An Ed25519 signature over the text. */
  sign(text: string): Uint8Array;
}

const ED25519 = 0x01;
const NEWLINE = 0x0a;
const utf8 = new TextEncoder();

/** The text that is signed. */
export function checkpointText({ origin, size, root }: Checkpoint): string {
  return `${origin}\n${size}\n${base64(root)}\n`;
}

/** The signed note: the text, an empty line, and the signature's line. */
export function signedCheckpoint(
  checkpoint: Checkpoint,
  key: VerifierKey,
  signature: Uint8Array,
  { sha256 }: Pick<CheckpointCryptography, 'sha256'>,
): string {
  const line = base64(Uint8Array.of(...keyHash(key, sha256), ...signature));
  return `${checkpointText(checkpoint)}\n— ${key.name} ${line}\n`;
}

/** The verifier key as text: `name+hash+key`. */
export function verifierKeyText(key: VerifierKey, { sha256 }: Pick<CheckpointCryptography, 'sha256'>): string {
  const hash = hexOf(keyHash(key, sha256));
  return `${key.name}+${hash}+${base64(Uint8Array.of(ED25519, ...key.publicKey))}`;
}

/** @returns undefined if the text is no Ed25519 verifier key, or its hash is not that of the key */
export function readVerifierKey(
  text: string,
  cryptography: Pick<CheckpointCryptography, 'sha256'>,
): VerifierKey | undefined {
  const [, name, , encoded] = /^([^+\s]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)$/.exec(text.trim()) ?? [];
  const bytes = encoded === undefined ? undefined : fromBase64(encoded);
  if (name === undefined || bytes?.length !== 33) return undefined;
  const key = { name, publicKey: bytes.subarray(1) };
  // This compares the algorithm, too, which is part of the text.
  return verifierKeyText(key, cryptography) === text.trim() ? key : undefined;
}

/**
 * The checkpoint in a signed note.
 *
 * @returns undefined if the note is malformed, or has no valid signature of this key
 */
export function openCheckpoint(
  note: string,
  key: VerifierKey,
  { sha256, verify }: CheckpointCryptography,
): Checkpoint | undefined {
  const end = note.indexOf('\n\n');
  if (end < 0) return undefined;
  const text = note.slice(0, end + 1);
  const [origin, size, root, ...extensions] = text.slice(0, -1).split('\n');
  const rootBytes = root === undefined ? undefined : fromBase64(root);
  if (!origin || !/^(0|[1-9]\d{0,15})$/.test(size ?? '') || rootBytes?.length !== 32 || extensions.length > 0) {
    return undefined;
  }
  const hash = keyHash(key, sha256);
  const signed = note
    .slice(end + 2)
    .split('\n')
    .some((line) => {
      const [, name, encoded] = /^— (\S+) ([A-Za-z0-9+/=]+)$/.exec(line) ?? [];
      const bytes = encoded === undefined ? undefined : fromBase64(encoded);
      if (name !== key.name || bytes?.length !== 68 || !hash.every((byte, at) => byte === bytes[at])) return false;
      return verify(key.publicKey, utf8.encode(text), bytes.subarray(4));
    });
  return signed ? { origin, size: Number(size), root: rootBytes } : undefined;
}

function keyHash({ name, publicKey }: VerifierKey, sha256: CheckpointCryptography['sha256']): Uint8Array {
  return sha256(utf8.encode(name), Uint8Array.of(NEWLINE, ED25519), publicKey).subarray(0, 4);
}

export function hexOf(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function base64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}

/** @returns undefined if the text is not base64 in its canonical form */
export function fromBase64(text: string): Uint8Array | undefined {
  try {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    return base64(bytes) === text ? bytes : undefined;
  } catch {
    return undefined;
  }
}
