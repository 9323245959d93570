import { creationLost } from '../creation-lost.ts';
import { invariant, unreachable } from '../invariant.ts';
import { etagOf } from '../item/events.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import type { PermissionState, TakenUserName, UserState } from './state.ts';
import { parseUserStream } from './stream-name.ts';
import { readUserEvent } from './upcast.ts';

/** The user's state after one more recorded event. */
export function evolveUser(
  state: UserState | TakenUserName | undefined,
  recorded: RecordedEvent,
): UserState | TakenUserName {
  const event = readUserEvent(recorded);
  const stamp = { etag: etagOf(recorded.id), changedAtMs: recorded.occurredAtMs };
  if (event.type === 'UserCreated') {
    const rid = parseUserStream(recorded.stream);
    invariant(state === undefined && rid !== undefined, 'a user is created once, in its own stream');
    return { status: 'live', rid, ...event.data, permissions: [], ...stamp };
  }
  if (event.type === 'UserNameTaken') {
    invariant(state === undefined, 'a name is taken in a stream of its own');
    return { status: 'taken', name: event.data.name, user: event.data.user };
  }
  if (state === undefined) throw creationLost(recorded, 'a user');
  invariant(state.status === 'live', 'only a live user changes');
  const withPermissions = (permissions: readonly PermissionState[]): UserState => ({ ...state, permissions });
  switch (event.type) {
    case 'UserRenamed':
      return { ...state, name: event.data.name, ...stamp };
    case 'UserDeleted':
      return { ...state, status: 'deleted', permissions: [], ...stamp };
    case 'PermissionCreated':
      return withPermissions([...state.permissions, { ...event.data.permission, birth: recorded.revision, ...stamp }]);
    case 'PermissionReplaced': {
      const { birth, permission } = event.data;
      return withPermissions(
        state.permissions.map((each) => (each.birth === birth ? { ...permission, birth, ...stamp } : each)),
      );
    }
    case 'PermissionDeleted':
      return withPermissions(state.permissions.filter(({ birth }) => birth !== event.data.birth));
    default:
      return unreachable(event);
  }
}

/** Folds a user's whole stream. */
export function foldUser(events: readonly RecordedEvent[]): UserState | TakenUserName | undefined {
  let state: UserState | TakenUserName | undefined;
  for (const event of events) state = evolveUser(state, event);
  return state;
}
