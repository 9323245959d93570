export const BUNDLE_FORMAT = 'epitaph.bundle/2';
/** Formats that the verifier can check. Format 1 had all facts of the container in one file, `container-facts.ndjson`. */
export const BUNDLE_FORMATS: readonly string[] = ['epitaph.bundle/1', BUNDLE_FORMAT];

/** Names that a file of a bundle may have, in either format. Other names are refused, because unpacking them could overwrite anything. */
export const BUNDLE_FILE =
  /^(?:README\.md|bundle\.json|verifier-key\.txt|checkpoint\.txt|policies\.json|holds\.json|container-facts\.ndjson|(?:holds|container-facts|certificates)\/\d{6,}\.ndjson|disappearances\/\d{6,}\.csv)$/;

/** The content of `bundle.json`. */
export interface BundleManifest {
  readonly format: typeof BUNDLE_FORMAT;
  readonly container: Readonly<Record<string, unknown>>;
  /** Deleted containers that had the same name before, newest first. The bundle has nothing about them. Absent from older bundles. */
  readonly earlierContainers?: readonly Readonly<Record<string, unknown>>[];
  /** The period: from this instant (inclusive) until `to` (exclusive). Null means no bound. */
  readonly from: string | null;
  readonly to: string | null;
  /**
   * How many items expired in the period but are missing from the bundle, because their expiry was not recorded yet. Absent from older
   * bundles.
   */
  readonly unrecordedExpiries?: number;
  readonly madeAt: string;
  readonly treeSize: number;
}
