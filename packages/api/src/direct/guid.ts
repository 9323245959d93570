/**
 * The number of bytes of a GUID as .NET writes it: in the first three parts the lowest byte comes first.
 *
 * @source https://learn.microsoft.com/dotnet/api/system.guid.tobytearray
 */
export const GUID_BYTES = 16;

/** The place of each byte of the text among the bytes of .NET. */
const PLACES = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15] as const;

export function readGuid(bytes: Buffer, at: number): string {
  const hex = PLACES.map((place) => bytes[at + place]!.toString(16).padStart(2, '0')).join('');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

export function writeGuid(guid: string, bytes: Buffer, at: number): void {
  const plain = Buffer.from(guid.replaceAll('-', ''), 'hex');
  for (const [index, place] of PLACES.entries()) bytes[at + place] = plain[index]!;
}
