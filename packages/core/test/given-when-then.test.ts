import { expect, it } from 'vitest';
import { etagOfGiven, givenDatabase, SpecificationFailure } from '@epitaph/core/testing/given-when-then.ts';

const created = { type: 'DatabaseCreated', data: { name: 'shop' } } as const;

it('a specification that holds passes', () => {
  givenDatabase().when({ type: 'CreateDatabase', name: 'shop' }).then(created);
  givenDatabase(created).when({ type: 'CreateDatabase', name: 'shop' }).thenRefused('already-exists');
  givenDatabase(created)
    .when({ type: 'DeleteDatabase', ifMatch: etagOfGiven(0) })
    .then({ type: 'DatabaseDeleted', data: {} });
});

it('a specification that does not hold tells where, what was expected and what was decided', () => {
  const other = { type: 'DatabaseCreated', data: { name: 'depot' } } as const;
  const create = givenDatabase().when({ type: 'CreateDatabase', name: 'shop' });
  expect(() => create.then(other)).toThrow(SpecificationFailure);
  expect(() => create.then(other)).toThrow('decision.events.0.data.name is "shop", not "depot"');
  expect(() => create.then()).toThrow('decision.events has 1 entries, not 0');
  expect(() => create.then(created, created)).toThrow(SpecificationFailure);
  expect(() => create.thenRefused('not-found')).toThrow('decision.kind is "accepted", not "refused"');
  expect(() => create.thenGoesToNextLife()).toThrow(SpecificationFailure);
  expect(() => create.thenEndsFirst(created)).toThrow(SpecificationFailure);
  const refused = givenDatabase(created).when({ type: 'CreateDatabase', name: 'shop' });
  expect(() => refused.then()).toThrow(SpecificationFailure);
  expect(() => refused.thenRefused('not-found')).toThrow('decision.refusal.reason is "already-exists"');
  expect(() => refused.thenRefused('already-exists', { value: 1 })).toThrow('decision.refusal.value');
});
