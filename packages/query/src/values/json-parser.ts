import { keepNames } from './name-order.ts';
import { type Json, type JsonObject, setProperty } from './values.ts';

const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const BACKSLASH = 0x5c;

/**
 * Parses JSON that is known to be valid, without the losses of `JSON.parse`: the digits of long integers, the order of names, and, before
 * Node.js 26.12, names with escapes. There a name whose text begins like a name that was parsed before may become that one: `"\n"` may
 * become the name `\` (https://github.com/nodejs/node/issues/63785).
 */
export class JsonParser {
  readonly #json: string;
  readonly #number: (digits: string) => unknown;
  #at = 0;

  /** @param number converts the text of a number to its value */
  constructor(json: string, number: (digits: string) => unknown) {
    this.#json = json;
    this.#number = number;
  }

  value(): unknown {
    const first = this.#next();
    switch (first) {
      case '{':
        return this.#object();
      case '[':
        return this.#array();
      case '"':
        return this.#string();
      case 't':
        return this.#word('true', true);
      case 'f':
        return this.#word('false', false);
      case 'n':
        return this.#word('null', null);
      default:
        return this.#numberHere();
    }
  }

  #object(): object {
    const object: JsonObject = {};
    const names: string[] = [];
    do {
      this.#at += 1;
      if (this.#next() === '}') break;
      const name = this.#string();
      this.#next();
      this.#at += 1;
      names.push(name);
      setProperty(object, name, this.value() as Json);
    } while (this.#next() === ',');
    this.#at += 1;
    keepNames(object, names);
    return object;
  }

  #array(): unknown[] {
    const array: unknown[] = [];
    do {
      this.#at += 1;
      if (this.#next() === ']') break;
      array.push(this.value());
    } while (this.#next() === ',');
    this.#at += 1;
    return array;
  }

  #string(): string {
    const start = this.#at;
    let end = start;
    let escapes: number;
    do {
      end = this.#json.indexOf('"', end + 1);
      escapes = 0;
      while (this.#json.charCodeAt(end - 1 - escapes) === BACKSLASH) escapes += 1;
    } while (escapes % 2 === 1);
    this.#at = end + 1;
    const text = this.#json.slice(start + 1, end);
    return text.includes('\\') ? (JSON.parse(`"${text}"`) as string) : text;
  }

  #word<T>(word: string, value: T): T {
    this.#at += word.length;
    return value;
  }

  #numberHere(): unknown {
    NUMBER.lastIndex = this.#at;
    const [digits] = NUMBER.exec(this.#json)!;
    this.#at += digits.length;
    return this.#number(digits);
  }

  /** The next character that is not white space. */
  #next(): string | undefined {
    for (;;) {
      const code = this.#json.charCodeAt(this.#at);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return this.#json[this.#at];
      this.#at += 1;
    }
  }
}
