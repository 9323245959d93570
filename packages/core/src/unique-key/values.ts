import type { ContainerDefinition } from '../container/definition.ts';
import { parseDocumentPath, valueAt } from '../document-path.ts';
import { canonicalJson } from '../canonical-json.ts';

export const hasUniqueKeys = ({ uniqueKeyPolicy }: ContainerDefinition): boolean =>
  (uniqueKeyPolicy?.uniqueKeys?.length ?? 0) > 0;

/**
 * A document's value of each of its container's unique keys, as text. Equal values have the same text. A missing
 * property counts as null.
 */
export function uniqueValuesOf(
  { uniqueKeyPolicy }: ContainerDefinition,
  document: Readonly<Record<string, unknown>>,
): string[] {
  return (uniqueKeyPolicy?.uniqueKeys ?? []).map(({ paths }) =>
    canonicalJson([paths, paths.map((path) => valueAt(document, parseDocumentPath(path) ?? []) ?? null)]),
  );
}
