import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { parseDocumentPath } from '@epitaph/core/document-path.ts';
import { itemSystemProperties } from '../store/items/system-properties.ts';
import { badRequest } from './errors.ts';

/** Source: Cosmos DB, "Service quotas" (unique keys of a container, and paths of each). */
const MAX_UNIQUE_KEYS = 10;
const MAX_PATHS = 16;

type UniqueKeyPolicy = NonNullable<ContainerDefinition['uniqueKeyPolicy']>;

/**
 * Checks the unique keys of a new container.
 *
 * @throws WireError 400 for too many of them, and for paths that are invalid, given twice, or of the id or a system
 *   property
 */
export function checkUniqueKeys({ uniqueKeys = [] }: UniqueKeyPolicy): void {
  if (uniqueKeys.length > MAX_UNIQUE_KEYS) {
    throw badRequest(`The unique key policy has more than ${MAX_UNIQUE_KEYS} unique keys.`);
  }
  const seen = new Set<string>();
  for (const { paths } of uniqueKeys) {
    if (paths.length === 0 || paths.length > MAX_PATHS) {
      throw badRequest(`A unique key has 1 to ${MAX_PATHS} paths; one was given with ${paths.length}.`);
    }
    for (const path of paths) {
      const [first] = parseDocumentPath(path) ?? [];
      if (first === undefined) {
        throw badRequest(
          `The unique key path '${path.slice(0, 200)}' could not be accepted. Unique key paths name properties of the document, without a trailing slash, wildcard or array index.`,
        );
      }
      // Source: the integration tests of LogOtter/log-otter, which compare its mock with Microsoft's emulator.
      if (first === 'id' || (itemSystemProperties as readonly string[]).includes(first)) {
        throw badRequest(`The unique key path cannot contain system properties. '${first}' is a system property.`);
      }
    }
    if (new Set(paths).size < paths.length) throw badRequest('A unique key names a path twice.');
    const key = JSON.stringify(paths.toSorted());
    if (seen.has(key)) throw badRequest('The unique key policy names the same paths twice.');
    seen.add(key);
  }
}
