import { hasLargeNumbers, jsonText, jsonTextAgain } from '@epitaph/query';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { partitionKeyOf } from '@epitaph/core/partition-key/canonical-key.ts';
import type { Limits } from '../http/limits.ts';
import type { Document, ItemToWrite } from '../store/api/items-api.ts';
import { withoutSystemProperties } from '../store/items/system-properties.ts';
import { badRequest, requiredId, tooLarge } from './errors.ts';
import { isJsonObject, readExactJson, type JsonObject } from './json.ts';

/** Source: Cosmos DB, "Service quotas". */
const MAX_ID_BYTES = 1023;

/**
 * Reads the body of a create, upsert or replace.
 *
 * @throws WireError 400 for a body that is no document, 413 for one that is too large
 */
export function readItemBody(definition: ContainerDefinition, body: Buffer | undefined, limits: Limits): ItemToWrite {
  if (body === undefined || body.length === 0)
    throw badRequest('The request body is empty: a JSON object was expected.');
  if (body.length > limits.itemBytes) throw tooLarge();
  const { value, text } = readExactJson(body, limits.jsonDepth);
  if (!isJsonObject(value)) throw badRequest('The request body is not a JSON object.');
  const item = itemOf(definition, value, text);
  // Numbers can become longer than the client wrote them (1e20).
  if (item.json.length > limits.itemBytes) throw tooLarge();
  return item;
}

/**
 * As {@link readItemBody}, for a parsed document: an operation of a batch, or the result of a patch.
 *
 * @param text the text that it was parsed from, if it was parsed alone
 */
export function itemOf(definition: ContainerDefinition, value: JsonObject, text?: string): ItemToWrite {
  const own = withoutSystemProperties(value);
  const id = checkItemId(own['id']);
  const json = text === undefined || own !== value ? jsonText(own) : jsonTextAgain(own, text);
  // If the client's text was kept, the document has no large numbers.
  const document = json !== text && hasLargeNumbers(own) ? (JSON.parse(json) as Document) : own;
  return { id, partitionKey: partitionKeyOf(definition, document), document, json };
}

/** @throws WireError 400 for a missing id, or one that no item can have */
export function checkItemId(given: unknown): string {
  const id = requiredId(given);
  if (id.length > MAX_ID_BYTES / 3 && Buffer.byteLength(id) > MAX_ID_BYTES) {
    throw badRequest(
      `The id is longer than ${MAX_ID_BYTES} bytes. Ensure to provide a unique non-empty string less than '${MAX_ID_BYTES + 1}' characters.`,
    );
  }
  if (id.includes('/') || id.includes('\\') || id.includes('#') || !id.isWellFormed()) {
    throw badRequest("The id contains characters that are not allowed: '/', '\\', '#' or an unpaired surrogate.");
  }
  return id;
}
