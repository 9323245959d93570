/** The names along a path into a document: `/address/"zip-code"` and `/address/'zip-code'` are `['address', 'zip-code']`. */
export type DocumentPath = readonly string[];

const PLAIN_SEGMENT = /^[\p{L}\p{N}_$]+$/u;

/** @returns the names along a path in the notation of container definitions; undefined if it isn't a valid path */
export function parseDocumentPath(path: string): DocumentPath | undefined {
  if (path.length > 1024 || !path.startsWith('/')) return undefined;
  const names: string[] = [];
  let at = 0;
  while (at < path.length) {
    if (path[at] !== '/') return undefined;
    at += 1;
    const quote = path[at];
    if (quote === '"' || quote === "'") {
      let name = '';
      at += 1;
      while (path[at] !== quote) {
        if (path[at] === '\\') at += 1;
        if (at >= path.length) return undefined;
        name += path[at];
        at += 1;
      }
      if (name === '') return undefined;
      names.push(name);
      at += 1;
    } else {
      const slash = path.indexOf('/', at);
      const end = slash < 0 ? path.length : slash;
      const name = path.slice(at, end);
      if (!PLAIN_SEGMENT.test(name)) return undefined;
      names.push(name);
      at = end;
    }
  }
  return names.length === 0 ? undefined : names;
}

/** The value of a document at a path. Undefined if there is none. A path does not lead into arrays. */
export function valueAt(document: unknown, path: DocumentPath): unknown {
  let value = document;
  for (const name of path) {
    if (typeof value !== 'object' || value === null || Array.isArray(value) || !Object.hasOwn(value, name)) {
      return undefined;
    }
    value = (value as Readonly<Record<string, unknown>>)[name];
  }
  return value;
}
