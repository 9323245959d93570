import { unreachable } from '../invariant.ts';
import { etagOf, type ItemEvent } from './events.ts';
import type { ItemState } from './state.ts';

/**
 * The state after an event. Each event carries all that a decision needs, so folding the last one alone gives
 * the same as folding the whole stream.
 */
export function evolveItem(_state: ItemState, event: ItemEvent, eventId: string): ItemState {
  switch (event.type) {
    case 'ItemUpserted':
    case 'ItemRecovered':
      return { status: 'live', lastWrite: event.data, etag: etagOf(eventId) };
    case 'ItemDeleted':
      return { status: 'deleted' };
    case 'ItemExpired':
      return { status: 'expired' };
    case 'ItemPurged':
      return { status: 'purged' };
    default:
      return unreachable(event);
  }
}
