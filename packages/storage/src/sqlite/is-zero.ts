/** True if all bytes are zero: they were overwritten, or never written. */
export const isZero = (bytes: Uint8Array): boolean => bytes.every((byte) => byte === 0);
