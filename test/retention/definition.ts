/** A container whose partition key names no version, which means version 1. */
export const DEFINITION = {
  partitionKey: { paths: ['/pk'], kind: 'Hash' as const },
  indexingPolicy: { indexingMode: 'consistent' as const },
};
