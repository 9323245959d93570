/** True for a partition key as text: a JSON array, whatever is in it. */
export function isKeyText(text: string): boolean {
  try {
    return Array.isArray(JSON.parse(text));
  } catch {
    return false;
  }
}
