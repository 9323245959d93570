import { expect, test } from 'vitest';
import { partitionKeyOf } from '@epitaph/api/cosmos/partition-key.ts';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { parseJson } from '@epitaph/query';

test('a partition key that no double holds is the same, whether its document is read exactly or not', () => {
  const definition: ContainerDefinition = {
    partitionKey: { paths: ['/n'], kind: 'Hash' },
    indexingPolicy: { indexingMode: 'consistent' },
  };
  const text = '{"id":"1","n":1234567890123456789}';
  const keyIn = (document: unknown) => partitionKeyOf(definition, document as Readonly<Record<string, unknown>>);
  expect(keyIn(JSON.parse(text))).toBe('[1234567890123456800]');
  expect(keyIn(parseJson(text))).toBe('[1234567890123456800]');
});
