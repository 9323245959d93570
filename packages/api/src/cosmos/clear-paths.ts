import { parseDocumentPath } from '@epitaph/core/document-path.ts';
import { nameOfPath } from '../store/queries/clear-filters.ts';
import { itemSystemProperties } from '../store/items/system-properties.ts';
import { badRequest } from './errors.ts';

/** Each path is one more entry to write with every item. */
const MAX_CLEAR_PATHS = 16;

/**
 * Checks the paths whose values a container should keep in clear.
 *
 * @throws WireError 400 for too many paths, and for paths that are invalid, given twice, or in clear already
 */
export function checkClearPaths(paths: readonly string[], partitionKeyPaths: readonly string[]): void {
  if (paths.length > MAX_CLEAR_PATHS) throw badRequest(`A container has at most ${MAX_CLEAR_PATHS} clear paths.`);
  const seen = new Set(partitionKeyPaths.map((path) => nameOfPath(parseDocumentPath(path) ?? [])));
  for (const path of paths) {
    const names = parseDocumentPath(path);
    const shown = path.slice(0, 200);
    if (names === undefined) {
      throw badRequest(
        `The clear path '${shown}' could not be accepted. Clear paths name properties of the document, without a trailing slash, wildcard or array index.`,
      );
    }
    const [first] = names;
    if (
      names.length === 1 &&
      (first === 'id' || (itemSystemProperties as readonly (string | undefined)[]).includes(first))
    ) {
      throw badRequest(`The clear path '${shown}' is a system property; these need no clear path.`);
    }
    if (seen.has(nameOfPath(names))) {
      throw badRequest(
        `The clear path '${shown}' is given twice, or is a path of the partition key, which needs no clear path.`,
      );
    }
    seen.add(nameOfPath(names));
  }
}
