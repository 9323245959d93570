/** A container whose partition key names no version, which is the first. */
export const DEFINITION = {
  partitionKey: { paths: ['/pk'], kind: 'Hash' as const },
  indexingPolicy: { indexingMode: 'consistent' as const },
};
