/** The stream of one container, named by its rid. A new container under an old name has another rid and another stream. */
export function containerStream(rid: string): string {
  return `container-${rid}`;
}

/** The rid in a container's stream name, or undefined for a stream of another kind. */
export function parseContainerStream(stream: string): string | undefined {
  return stream.startsWith('container-') ? stream.slice('container-'.length) : undefined;
}
