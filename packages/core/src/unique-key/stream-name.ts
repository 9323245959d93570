/**
 * The stream of one value of a unique key in one partition key: `unique-<container rid>.<keyed hash>`. The hash is made
 * by `ItemNaming`, and the value can't be found from it.
 */
export function uniqueKeyStream(containerRid: string, hash: string): string {
  return `unique-${containerRid}.${hash}`;
}

/** The container's rid in such a stream's name, or undefined for a stream of another kind. */
export function parseUniqueKeyStream(stream: string): string | undefined {
  return stream.startsWith('unique-') ? stream.slice('unique-'.length, stream.indexOf('.')) : undefined;
}
