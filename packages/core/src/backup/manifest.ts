import { z } from 'zod';
import { canonicalJson } from '../canonical-json.ts';

/** Layout of a part of a backup. From 2 on the manifest has a digest of itself. */
export const MANIFEST_FORMAT = 2;

const file = z.strictObject({ bytes: z.int(), sha256: z.string() });
/** What the manifest of either part says. */
const common = {
  format: z.literal([1, MANIFEST_FORMAT]),
  /** Of the backup. */
  id: z.string(),
  /** Of the store it was taken of. */
  store: z.string(),
  takenAtMs: z.int(),
  /** Position of the last event in the copy of the log; for the keys, up to which event all are in the copy. */
  logPosition: z.int(),
  /** Where the purge ledger ended before the copy was begun: what it says after that is to be applied. */
  ledgerHead: z.string(),
  files: z.record(z.string(), file),
  /** SHA-256 of all else in it as canonical JSON, hexadecimal. */
  sha256: z.exactOptional(z.string()),
};
const logManifestSchema = z.strictObject({ part: z.literal('log'), ...common });
const vaultManifestSchema = z.strictObject({
  part: z.literal('vault'),
  lapsesAtMs: z.int(),
  /** Id of the event log on a server that the keys go with; absent where the log is the other part. */
  log: z.string().optional(),
  ...common,
});
export type LogManifest = z.infer<typeof logManifestSchema>;
export type VaultManifest = z.infer<typeof vaultManifestSchema>;
export type Manifest = LogManifest | VaultManifest;

/** SHA-256 of a text, hexadecimal. Passed in, because core knows no cryptography of its own. */
type TextDigest = (text: string) => string;

/** A manifest as it is written: with its digest. */
export const toWrite = <Any extends Manifest>(manifest: Any, digest: TextDigest): Any => ({
  ...manifest,
  sha256: digestOf(manifest, digest),
});

/** The manifest that some JSON is; undefined for what is none, or has changed since it was written. */
export function readManifestOf(part: 'log', json: unknown, digest: TextDigest): LogManifest | undefined;
export function readManifestOf(part: 'vault', json: unknown, digest: TextDigest): VaultManifest | undefined;
export function readManifestOf(part: Manifest['part'], json: unknown, digest: TextDigest): Manifest | undefined;
export function readManifestOf(part: Manifest['part'], json: unknown, digest: TextDigest): Manifest | undefined {
  const { data } = part === 'log' ? logManifestSchema.safeParse(json) : vaultManifestSchema.safeParse(json);
  if (data === undefined || (data.format > 1 && data.sha256 !== digestOf(data, digest))) return undefined;
  return data;
}

const digestOf = ({ sha256: _, ...all }: Manifest, digest: TextDigest): string => digest(canonicalJson(all));
