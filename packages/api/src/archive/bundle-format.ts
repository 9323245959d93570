export const BUNDLE_FORMAT = 'epitaph.bundle/1';

/** `bundle.json`: what a bundle is about. */
export interface BundleManifest {
  readonly format: typeof BUNDLE_FORMAT;
  readonly container: Readonly<Record<string, unknown>>;
  /** From this instant on, and before that; null for no bound. */
  readonly from: string | null;
  readonly to: string | null;
  readonly madeAt: string;
  readonly treeSize: number;
}
