import { expect, test } from 'vitest';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { partitionKeyOf } from '@epitaph/core/partition-key/canonical-key.ts';

const definition: ContainerDefinition = {
  partitionKey: { paths: ['/n'], kind: 'Hash' },
  indexingPolicy: { indexingMode: 'consistent' },
};

test('a partition key that no double can hold is the same, whether or not its document is parsed exactly', () => {
  const rounded: unknown = JSON.parse('{"id":"1","n":1234567890123456789}');
  expect(partitionKeyOf(definition, rounded as Readonly<Record<string, unknown>>)).toBe('[1234567890123456800]');
  expect(partitionKeyOf(definition, { id: '1', n: 1_234_567_890_123_456_789n })).toBe('[1234567890123456800]');
});
