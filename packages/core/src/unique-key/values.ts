import type { ContainerDefinition } from '../container/definition.ts';
import { parseDocumentPath, valueAt } from '../document-path.ts';
import { canonicalJson } from '../canonical-json.ts';

export const hasUniqueKeys = ({ uniqueKeyPolicy }: ContainerDefinition): boolean =>
  (uniqueKeyPolicy?.uniqueKeys?.length ?? 0) > 0;

/**
 * What a document has of each of its container's unique keys, as text: the same text for the same value. A property
 * that is missing counts as null.
 */
export function uniqueValuesOf(
  { uniqueKeyPolicy }: ContainerDefinition,
  document: Readonly<Record<string, unknown>>,
): string[] {
  return (uniqueKeyPolicy?.uniqueKeys ?? []).map(({ paths }) =>
    canonicalJson([paths, paths.map((path) => valueAt(document, parseDocumentPath(path) ?? []) ?? null)]),
  );
}
