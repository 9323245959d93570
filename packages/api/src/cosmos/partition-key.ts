import { parsedJson } from '@epitaph/core/parsed-json.ts';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import {
  canonicalKey,
  isKeyComponent,
  type KeyComponent,
  MISSING_COMPONENT,
} from '@epitaph/core/partition-key/canonical-key.ts';
import { badRequest, WireError } from './errors.ts';

/**
 * Reads the partition key header of a request.
 *
 * @returns the canonical key and whether it names all components, or undefined without a header
 * @throws WireError 400 for anything but a JSON array of components. If the number of components differs from the
 *   container's, the substatus is 1001, upon which clients read its definition again (`PartitionKeyMismatchRetryPolicy`
 *   of the .NET and the Java client)
 * @throws Refusal bad-request for a key that is too large
 */
export function readPartitionKeyHeader(
  definition: ContainerDefinition,
  header: string | undefined,
): { readonly key: string; readonly complete: boolean } | undefined {
  if (header === undefined || header === '') return undefined;
  const components = parseComponents(header);
  const { length } = definition.partitionKey.paths;
  // Containers from before partition keys were required: clients send [] for "no key".
  if (components.length === 0 && definition.partitionKey['systemKey'] === true) {
    return { key: canonicalKey([MISSING_COMPONENT]), complete: true };
  }
  if (components.length === 0 || components.length > length) {
    throw new WireError(
      'partitionKeyMismatch',
      `Partition key ${header.slice(0, 200)} is invalid: the container's has ${length} component(s).`,
    );
  }
  return { key: canonicalKey(components), complete: components.length === length };
}

/**
 * The key that a header names, for requests that need all of its components.
 *
 * @throws WireError 400, with substatus 1001 for the beginning of a hierarchical key
 */
export function wholeKeyOf(given: ReturnType<typeof readPartitionKeyHeader>): string {
  if (given === undefined) throw badRequest('PartitionKey value must be supplied for this operation.');
  if (given.complete) return given.key;
  throw new WireError(
    'partitionKeyMismatch',
    "Partition key provided either doesn't correspond to definition in the collection or doesn't match partition key field values specified in the document.",
  );
}

/**
 * The key that a header names, for requests on one item or a script. Clients from before partition keys were required
 * send none.
 *
 * @throws WireError 400
 */
export function namedKey(definition: ContainerDefinition, header: string | undefined): string {
  const given = definition.partitionKey['systemKey'] === true ? (header ?? '[]') : header;
  return wholeKeyOf(readPartitionKeyHeader(definition, given));
}

/** The refusal of a document with another key than the request names. */
export const otherKey = (): WireError =>
  new WireError(
    'partitionKeyMismatch',
    "PartitionKey extracted from document doesn't match the one specified in the header",
  );

function parseComponents(header: string): readonly KeyComponent[] {
  const value = parsedJson(header);
  if (!Array.isArray(value) || value.length > 3 || !value.every(isKeyComponent)) {
    throw badRequest(`Partition key ${header.slice(0, 200)} is invalid.`);
  }
  return value;
}
