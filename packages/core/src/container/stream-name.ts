/** The stream of one container, named by its rid: a container made again under an old name has another. */
export function containerStream(rid: string): string {
  return `container-${rid}`;
}

/** The rid in a container's stream name, or undefined for a stream of another kind. */
export function parseContainerStream(stream: string): string | undefined {
  return stream.startsWith('container-') ? stream.slice('container-'.length) : undefined;
}
