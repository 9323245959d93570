/** The stream of one script, named by its rid, which begins with its container's rid. */
export function scriptStream(rid: string): string {
  return `script-${rid}`;
}

/** The rid in a script's stream name, or undefined for a stream of another kind. */
export function parseScriptStream(stream: string): string | undefined {
  return stream.startsWith('script-') ? stream.slice('script-'.length) : undefined;
}
