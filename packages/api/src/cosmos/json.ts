import { isUtf8 } from 'node:buffer';
import { jsonText, parseJson as parseExactly } from '@epitaph/query';
import { decodeBinaryJson, isBinaryJson } from './binary-json.ts';
import { badRequest } from './errors.ts';

export type JsonObject = Readonly<Record<string, unknown>>;

/**
 * Parses a request's body, text or binary, whatever its content type says: some clients send none with PATCH.
 *
 * @throws WireError 400 for what isn't JSON, for nesting beyond the depth, and for numbers beyond a double's range,
 *   which would be stored as another value than was sent
 */
export function parseJson(body: Buffer, maxDepth: number): unknown {
  // As JSON has them, integers that no double holds are rounded.
  if (isBinaryJson(body)) return JSON.parse(jsonText(parseExactJson(body, maxDepth)));
  const value = parsed(textOf(body), JSON.parse);
  checkJson(value, maxDepth);
  return value;
}

/** The same, but integers of 64 bits that no double holds are bigints, and not rounded. */
export const parseExactJson = (body: Buffer, maxDepth: number): unknown => readExactJson(body, maxDepth).value;

/** The same of text alone. */
export const parseExactText = (body: Buffer, maxDepth: number): unknown => readExactText(body, maxDepth).value;

/** What {@link parseExactJson} gives, with the text that it was read from, if it came as text. */
export function readExactJson(body: Buffer, maxDepth: number): { readonly value: unknown; readonly text?: string } {
  if (!isBinaryJson(body)) return readExactText(body, maxDepth);
  const value = decodeBinaryJson(body, maxDepth);
  checkJson(value, maxDepth);
  return { value };
}

function readExactText(body: Buffer, maxDepth: number): { readonly value: unknown; readonly text: string } {
  const text = textOf(body);
  const value = parsed(text, parseExactly);
  checkJson(value, maxDepth);
  return { value, text };
}

function textOf(body: Buffer): string {
  // Of another encoding every character that is not ASCII would be stored as U+FFFD, and a hold be on a key with such.
  if (!isUtf8(body)) {
    throw badRequest('The request body is not encoded in UTF-8, or it is compressed: no Content-Encoding is taken.');
  }
  // A byte order mark is dropped, as it would be by a client's own parser.
  return body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf ? body.toString('utf8', 3) : body.toString();
}

function parsed(text: string, parse: (text: string) => unknown): unknown {
  try {
    return parse(text);
  } catch {
    throw badRequest('The request body is not valid JSON.');
  }
}

/** The beginning of what a client has sent, for a refusal. `String` fails over an object that has a `toString` of its own. */
export const asShown = (value: unknown): string =>
  (typeof value === 'string' || value === undefined ? `${value}` : jsonText(value)).slice(0, 100);

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** @throws WireError 400 for nesting beyond the depth, and for numbers beyond a double's range */
function checkJson(value: unknown, depthLeft: number): void {
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw badRequest('The request body has a number that is out of range.');
    return;
  }
  if (typeof value !== 'object' || value === null) return;
  if (depthLeft <= 0) throw badRequest('The request body is nested too deeply.');
  if (Array.isArray(value)) {
    for (const element of value) checkJson(element, depthLeft - 1);
    return;
  }
  // Parsed JSON has own properties only, `__proto__` included.
  for (const name in value) checkJson((value as JsonObject)[name], depthLeft - 1);
}
