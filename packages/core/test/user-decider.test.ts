import { describe, expect, it } from 'vitest';
import { InvariantViolation } from '@epitaph/core/invariant.ts';
import { etagOfGiven, givenUser } from '@epitaph/core/testing/given-when-then.ts';
import { MAX_PERMISSIONS } from '@epitaph/core/user/decide.ts';
import { allowsWrites, type Permission, type PermissionTarget } from '@epitaph/core/user/events.ts';
import { foldUser } from '@epitaph/core/user/evolve.ts';
import { parseUserStream, userStream } from '@epitaph/core/user/stream-name.ts';
import { recordedEvent } from '@epitaph/core/testing/recorded-event.ts';

const created = { type: 'UserCreated', data: { databaseRid: 'Db', name: 'ann' } } as const;
const deleted = { type: 'UserDeleted', data: {} } as const;
const renamed = (name: string) => ({ type: 'UserRenamed', data: { name } }) as const;
const taken = { type: 'UserNameTaken', data: { databaseRid: 'Db', name: 'ann', user: 'Other' } } as const;
const create = { type: 'CreateUser', databaseRid: 'Db', name: 'ann' } as const;

function permission(name: string, target: PermissionTarget = { containerRid: name }, mode = 'Read'): Permission {
  return { name, permissionMode: mode, resource: `dbs/Db/colls/${target.containerRid}/`, target };
}
const given = (name: string, target?: PermissionTarget) =>
  ({ type: 'PermissionCreated', data: { permission: permission(name, target) } }) as const;
const replaced = (birth: number, value: Permission) =>
  ({ type: 'PermissionReplaced', data: { birth, permission: value } }) as const;
const write = (operation: 'create' | 'upsert', value: Permission, ifMatch?: string) =>
  ({ type: 'WritePermission', operation, permission: value, ifMatch }) as const;
const replace = (name: string | number, value: Permission, ifMatch?: string) =>
  ({ type: 'ReplacePermission', name, permission: value, ifMatch }) as const;

describe('creating a user', () => {
  it('in an unused stream is recorded', () => {
    givenUser().when(create).then(created);
  });
  it('that exists is refused', () => {
    givenUser(created).when(create).thenRefused('already-exists');
  });
  it('whose stream belongs to another name, or to a deleted or renamed user, is refused as taken', () => {
    givenUser(created)
      .when({ ...create, name: 'carla' })
      .thenRefused('rid-taken');
    givenUser(created, deleted).when(create).thenRefused('rid-taken');
    givenUser(created, renamed('anna')).when(create).thenRefused('rid-taken');
    givenUser(taken)
      .when({ ...create, name: 'carla' })
      .thenRefused('rid-taken');
  });
  it('under a name that another user took by a rename is refused with that user, whom the caller must check', () => {
    givenUser(taken).when(create).thenRefused('name-taken', { user: 'Other' });
  });
});

describe('renaming a user', () => {
  it('is recorded, and to the present name changes nothing', () => {
    givenUser(created).when({ type: 'RenameUser', name: 'anna' }).then(renamed('anna'));
    givenUser(created).when({ type: 'RenameUser', name: 'ann' }).then();
  });
  it('takes the new name in the stream of that name, if it is free', () => {
    const take = { type: 'TakeUserName', databaseRid: 'Db', name: 'ann', user: 'Other' } as const;
    givenUser().when(take).then(taken);
    givenUser(created).when(take).thenRefused('already-exists');
    givenUser(taken).when(take).thenRefused('name-taken', { user: 'Other' });
    givenUser(created, deleted).when(take).thenRefused('rid-taken');
  });
  it('is refused with another etag, and without a user', () => {
    givenUser(created).when({ type: 'RenameUser', name: 'anna', ifMatch: '"x"' }).thenRefused('precondition-failed');
    givenUser().when({ type: 'RenameUser', name: 'anna' }).thenRefused('user-not-found');
    givenUser(taken).when({ type: 'RenameUser', name: 'anna' }).thenRefused('user-not-found');
    givenUser(created, deleted).when({ type: 'RenameUser', name: 'anna' }).thenRefused('user-not-found');
  });
});

describe('deleting a user', () => {
  it('is recorded with the current etag or none', () => {
    for (const ifMatch of [undefined, '*', etagOfGiven(0)]) {
      givenUser(created, given('p')).when({ type: 'DeleteUser', ifMatch }).then(deleted);
    }
  });
  it('is refused with another etag, and the second time', () => {
    givenUser(created).when({ type: 'DeleteUser', ifMatch: '"x"' }).thenRefused('precondition-failed');
    givenUser(created, deleted).when({ type: 'DeleteUser' }).thenRefused('user-not-found');
  });
});

describe('writing a permission', () => {
  it('under a new name is recorded, by create and by upsert', () => {
    for (const operation of ['create', 'upsert'] as const) {
      givenUser(created)
        .when(write(operation, permission('p')))
        .then(given('p'));
    }
  });
  it('under an existing name is refused for a create; an upsert replaces it, even by the same', () => {
    givenUser(created, given('p'))
      .when(write('create', permission('p', { containerRid: 'other' })))
      .thenRefused('already-exists');
    givenUser(created, given('p'))
      .when(write('upsert', permission('p')))
      .then(replaced(1, permission('p')));
  });
  it('for a target for which the user has a permission is refused; another partition key or item is another target', () => {
    const c = { containerRid: 'C' };
    givenUser(created, given('p', c))
      .when(write('create', permission('q', c)))
      .thenRefused('already-exists');
    const others: PermissionTarget[] = [
      { ...c, partitionKey: '["a"]' },
      { ...c, item: { id: 'i' } },
      { ...c, item: { id: 'i', partitionKey: '["a"]' } },
    ];
    for (const target of others) {
      givenUser(created, given('p', c))
        .when(write('create', permission('q', target)))
        .then(given('q', target));
    }
  });
  it('beyond the limit is refused, except for a replacement', () => {
    const many = Array.from({ length: MAX_PERMISSIONS }, (_, index) => given(`p${index}`));
    givenUser(created, ...many)
      .when(write('create', permission('more')))
      .thenRefused('too-many-permissions');
    givenUser(created, ...many)
      .when(write('upsert', permission('p3')))
      .then(replaced(4, permission('p3')));
  });
  it('is refused without the user or with another etag', () => {
    givenUser(created, deleted)
      .when(write('create', permission('p')))
      .thenRefused('user-not-found');
    givenUser(created)
      .when(write('upsert', permission('p'), '"x"'))
      .thenRefused('precondition-failed');
    givenUser(created, given('p'))
      .when(write('upsert', permission('p'), '"x"'))
      .thenRefused('precondition-failed');
  });
});

describe('replacing a permission', () => {
  it('keeps its number, also under a new name', () => {
    givenUser(created, given('p'), given('q'))
      .when(replace('q', permission('r'), etagOfGiven(2)))
      .then(replaced(2, permission('r')));
  });
  it('by its number changes that permission, whatever its present name, and not another that has taken the name', () => {
    const steps = [created, given('p'), replaced(1, permission('q')), given('p', { containerRid: 'other' })] as const;
    givenUser(...steps)
      .when(replace(1, permission('p')))
      .thenRefused('already-exists');
    givenUser(...steps)
      .when(replace(1, permission('q', { containerRid: 'q' }, 'All')))
      .then(replaced(1, permission('q', { containerRid: 'q' }, 'All')));
    givenUser(...steps)
      .when(replace(2, permission('q')))
      .thenRefused('permission-not-found');
  });
  it('is refused if another permission has the name or the target', () => {
    givenUser(created, given('p'), given('q'))
      .when(replace('q', permission('p')))
      .thenRefused('already-exists');
    givenUser(created, given('p'), given('q'))
      .when(replace('q', permission('q', { containerRid: 'p' })))
      .thenRefused('already-exists');
  });
  it('is refused if it does not exist, or with another etag', () => {
    givenUser(created)
      .when(replace('p', permission('p')))
      .thenRefused('permission-not-found');
    givenUser(created, given('p'))
      .when(replace('p', permission('p'), '"x"'))
      .thenRefused('precondition-failed');
  });
});

describe('deleting a permission', () => {
  it('is recorded by its number, and refused if it does not exist or with another etag', () => {
    const gone = { type: 'PermissionDeleted', data: { birth: 1 } } as const;
    givenUser(created, given('p')).when({ type: 'DeletePermission', name: 'p' }).then(gone);
    givenUser(created, given('p'), replaced(1, permission('q')), given('p', { containerRid: 'other' }))
      .when({ type: 'DeletePermission', name: 1 })
      .then(gone);
    givenUser(created, given('p'), gone)
      .when({ type: 'DeletePermission', name: 'p' })
      .thenRefused('permission-not-found');
    givenUser(created, given('p'))
      .when({ type: 'DeletePermission', name: 'p', ifMatch: '"x"' })
      .thenRefused('precondition-failed');
  });
});

describe("a user's state", () => {
  const stream = userStream('U');
  const at = (index: number, event: object & { type: string; data: object }) =>
    recordedEvent(stream, event, { occurredAtMs: 1_000 * (index + 1), id: `e${index}`, revision: index });

  it('has the permissions and the user with the etags of their last changes', () => {
    const steps = [created, given('p'), given('q'), replaced(1, permission('r', { containerRid: 'p' }, 'all'))];
    const events = [...steps, { type: 'PermissionDeleted', data: { birth: 2 } } as const, renamed('anna')];
    const state = foldUser(events.map((event, index) => at(index, event)));
    expect(state).toEqual({
      status: 'live',
      rid: 'U',
      databaseRid: 'Db',
      name: 'anna',
      etag: '"e5"',
      changedAtMs: 6_000,
      permissions: [{ ...permission('r', { containerRid: 'p' }, 'all'), birth: 1, etag: '"e3"', changedAtMs: 4_000 }],
    });
    expect(allowsWrites(permission('r', undefined, 'aLL'))).toBe(true);
    expect(allowsWrites(permission('r', undefined, 'Read'))).toBe(false);
  });
  it('has no permissions once the user is deleted', () => {
    expect(foldUser([at(0, created), at(1, given('p')), at(2, deleted)])).toMatchObject({
      status: 'deleted',
      permissions: [],
    });
  });
  it('refuses events after the end, a second beginning, and events of another kind of stream', () => {
    expect(() => foldUser([at(0, created), at(1, deleted), at(2, given('p'))])).toThrow(InvariantViolation);
    expect(() => foldUser([at(0, created), at(1, created)])).toThrow(InvariantViolation);
    expect(() => foldUser([recordedEvent('database-U', created)])).toThrow(InvariantViolation);
    expect(parseUserStream(stream)).toBe('U');
    expect(parseUserStream('database-U')).toBe(undefined);
  });
});
