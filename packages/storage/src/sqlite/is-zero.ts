/** True of what has been overwritten, or was never written. */
export const isZero = (bytes: Uint8Array): boolean => bytes.every((byte) => byte === 0);
