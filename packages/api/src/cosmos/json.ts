import { isUtf8 } from 'node:buffer';
import { jsonText, parseJson as parseExactly } from '@epitaph/query';
import { decodeBinaryJson, isBinaryJson } from './binary-json.ts';
import { badRequest, type WireError } from './errors.ts';

export type JsonObject = Readonly<Record<string, unknown>>;

/**
 * Parses a request's body, text or binary, whatever its content type is: some clients send none with PATCH.
 *
 * @throws WireError 400 for anything but JSON, for nesting beyond the depth, and for numbers beyond a double's range,
 *   which would be stored as another value than was sent
 */
export function parseJson(body: Buffer, maxDepth: number): unknown {
  // Integers that no double holds are rounded, as in JSON text.
  if (isBinaryJson(body)) return JSON.parse(jsonText(parseExactJson(body, maxDepth)));
  const value = parsed(textOf(body), JSON.parse);
  checkJson(value, maxDepth);
  return value;
}

/** As {@link parseJson}, but 64-bit integers that no double holds become bigints and are not rounded. */
export const parseExactJson = (body: Buffer, maxDepth: number): unknown => readExactJson(body, maxDepth).value;

/** As {@link parseExactJson}, for text only. */
export const parseExactText = (body: Buffer, maxDepth: number): unknown => readExactText(body, maxDepth).value;

/** The value of {@link parseExactJson}, with the text that it was read from, if it came as text. */
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
  // In another encoding, every character outside ASCII would be stored as U+FFFD, and a hold would be on a key with
  // that character.
  if (!isUtf8(body)) {
    throw badRequest(
      'The request body is not encoded in UTF-8, or it is compressed: Content-Encoding is not supported.',
    );
  }
  // A byte order mark is dropped, as a client's own parser would do.
  return body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf ? body.toString('utf8', 3) : body.toString();
}

function parsed(text: string, parse: (text: string) => unknown): unknown {
  try {
    return parse(text);
  } catch (error) {
    // The parser that keeps all digits of long integers calls itself for each level.
    if (error instanceof RangeError) throw tooDeep();
    throw badRequest(`The request body is not JSON: ${(error as SyntaxError).message}.`);
  }
}

const tooDeep = (): WireError => badRequest('The request body is nested too deeply.');

/**
 * The beginning of a value that a client sent, for a refusal. `String` would fail for an object with a `toString` of
 * its own.
 */
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
  if (depthLeft <= 0) throw tooDeep();
  if (Array.isArray(value)) {
    for (const element of value) checkJson(element, depthLeft - 1);
    return;
  }
  // Parsed JSON has own properties only, `__proto__` included.
  for (const name in value) checkJson((value as JsonObject)[name], depthLeft - 1);
}
