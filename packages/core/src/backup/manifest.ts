import { z } from 'zod';

/** Layout of a part of a backup, from 1. */
export const MANIFEST_FORMAT = 1;

const file = z.strictObject({ bytes: z.int(), sha256: z.string() });
/** What the manifest of either part says. */
const common = {
  format: z.literal(MANIFEST_FORMAT),
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
};
export const logManifestSchema = z.strictObject({ part: z.literal('log'), ...common });
export const vaultManifestSchema = z.strictObject({
  part: z.literal('vault'),
  lapsesAtMs: z.int(),
  /** Id of the event log on a server that the keys go with; absent where the log is the other part. */
  log: z.string().optional(),
  ...common,
});
export type LogManifest = z.infer<typeof logManifestSchema>;
export type VaultManifest = z.infer<typeof vaultManifestSchema>;
