import { z } from 'zod';
import { canonicalJson } from '../canonical-json.ts';

/** The format of a part of a backup. From format 2 on the manifest contains a digest of itself. */
export const MANIFEST_FORMAT = 2;

const file = z.strictObject({ bytes: z.int(), sha256: z.string() });
/** What the manifests of both parts contain. */
const common = {
  format: z.literal([1, MANIFEST_FORMAT]),
  /** Id of the backup. */
  id: z.string(),
  /** Id of the store. */
  store: z.string(),
  takenAtMs: z.int(),
  /**
   * Position of the last event in the copy of the log. For the keys: every key of an event up to this position is in
   * the copy.
   */
  logPosition: z.int(),
  /** Where the purge ledger ended before the copy began. A restore applies everything after that. */
  ledgerHead: z.string(),
  files: z.record(z.string(), file),
  /** SHA-256 of all other properties as canonical JSON, hexadecimal. */
  sha256: z.exactOptional(z.string()),
};
const logManifestSchema = z.strictObject({ part: z.literal('log'), ...common });
const vaultManifestSchema = z.strictObject({
  part: z.literal('vault'),
  lapsesAtMs: z.int(),
  /** Id of the event log on a server that the keys belong to. Absent if the log is the other part of the backup. */
  log: z.string().optional(),
  ...common,
});
export type LogManifest = z.infer<typeof logManifestSchema>;
export type VaultManifest = z.infer<typeof vaultManifestSchema>;
export type Manifest = LogManifest | VaultManifest;

/** SHA-256 of a text, hexadecimal. A parameter, because core has no cryptography of its own. */
type TextDigest = (text: string) => string;

/** A manifest with its digest, as it is written to disk. */
export const toWrite = <Any extends Manifest>(manifest: Any, digest: TextDigest): Any => ({
  ...manifest,
  sha256: digestOf(manifest, digest),
});

/** Reads a manifest. Undefined if the JSON is no manifest, or was changed since it was written. */
export function readManifestOf(part: 'log', json: unknown, digest: TextDigest): LogManifest | undefined;
export function readManifestOf(part: 'vault', json: unknown, digest: TextDigest): VaultManifest | undefined;
export function readManifestOf(part: Manifest['part'], json: unknown, digest: TextDigest): Manifest | undefined;
export function readManifestOf(part: Manifest['part'], json: unknown, digest: TextDigest): Manifest | undefined {
  const { data } = part === 'log' ? logManifestSchema.safeParse(json) : vaultManifestSchema.safeParse(json);
  if (data === undefined || (data.format > 1 && data.sha256 !== digestOf(data, digest))) return undefined;
  return data;
}

const digestOf = ({ sha256: _, ...all }: Manifest, digest: TextDigest): string => digest(canonicalJson(all));
