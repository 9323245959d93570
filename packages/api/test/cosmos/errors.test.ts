import { describe, expect, it } from 'vitest';
import { TooMuchContention } from '@epitaph/core/handle-command.ts';
import { describeError } from '@epitaph/api/cosmos/errors.ts';
import { problemDetails, problemOf } from '@epitaph/api/management/problems.ts';
import { PurgeFault } from '@epitaph/projections/purge/faults.ts';

describe('a write that lost against other writers too often', () => {
  const error = new TooMuchContention('20 attempts on item-rid.hash.0 lost against other writers');
  it('is 449 to clients of Cosmos DB, and names no stream', () => {
    const described = describeError(error)!;
    expect(described.shape).toMatchObject({ status: 449, code: 'RetryWith' });
    expect(described.message).not.toContain('item-');
  });
  it('is "busy" to the management plane', () => {
    expect(problemDetails(problemOf(error)!, '00000000-0000-4000-8000-000000000000')).toMatchObject({
      status: 503,
      code: 'busy',
    });
  });
});

describe('an end that can’t be recorded because of damage', () => {
  const error = new PurgeFault('the read models have the policies of container-rid otherwise than the event log');
  it('is 500 to clients of Cosmos DB, with that reason', () => {
    expect(describeError(error)).toMatchObject({ shape: { status: 500 }, message: error.message });
  });
  it('is "purge-fault" to the management plane', () => {
    expect(problemOf(error)).toMatchObject({ code: 'purge-fault', message: error.message });
  });
});
