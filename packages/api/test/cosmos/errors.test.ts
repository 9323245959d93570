import { describe, expect, it } from 'vitest';
import { TooMuchContention } from '@epitaph/core/handle-command.ts';
import { describeError } from '@epitaph/api/cosmos/errors.ts';
import { problemDetails, problemOf } from '@epitaph/api/management/problems.ts';

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
