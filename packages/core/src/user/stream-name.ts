/** The stream of one user and its permissions, named by the user's rid, because a user's id may be a person's name. */
export function userStream(rid: string): string {
  return `user-${rid}`;
}

/** The rid in a user's stream name, or undefined for a stream of another kind. */
export function parseUserStream(stream: string): string | undefined {
  return stream.startsWith('user-') ? stream.slice('user-'.length) : undefined;
}
