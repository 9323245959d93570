/** True if a text is a partition key: a JSON array, whatever its elements. */
export function isKeyText(text: string): boolean {
  try {
    return Array.isArray(JSON.parse(text));
  } catch {
    return false;
  }
}
