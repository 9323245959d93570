export const BUNDLE_FORMAT = 'epitaph.bundle/2';
/** Those that can be checked. The first had all facts of the container in one file, `container-facts.ndjson`. */
export const BUNDLE_FORMATS: readonly string[] = ['epitaph.bundle/1', BUNDLE_FORMAT];

/** What a file of a bundle may be called, the first format's too: of others it is not known what unpacks over what. */
export const BUNDLE_FILE =
  /^(?:README\.md|bundle\.json|verifier-key\.txt|checkpoint\.txt|policies\.json|holds\.json|container-facts\.ndjson|(?:holds|container-facts|certificates)\/\d{6,}\.ndjson|disappearances\/\d{6,}\.csv)$/;

/** `bundle.json`: what a bundle is about. */
export interface BundleManifest {
  readonly format: typeof BUNDLE_FORMAT;
  readonly container: Readonly<Record<string, unknown>>;
  /** Deleted ones that had its name before it, newest first: nothing of theirs is in here. Older bundles do not say. */
  readonly earlierContainers?: readonly Readonly<Record<string, unknown>>[];
  /** From this instant on, and before that; null for no bound. */
  readonly from: string | null;
  readonly to: string | null;
  /** Items that expired in the period and are in no table, as the record of it had not come yet. Older bundles do not say. */
  readonly unrecordedExpiries?: number;
  readonly madeAt: string;
  readonly treeSize: number;
}
