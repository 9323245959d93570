/** A container for tests in which only its items matter. */
export const DEFINITION = {
  partitionKey: { paths: ['/pk'], kind: 'Hash' as const, version: 2 as const },
  indexingPolicy: { indexingMode: 'consistent' as const },
};
