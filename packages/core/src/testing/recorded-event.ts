import type { RecordedEvent } from '../log/recorded-event.ts';

/** An event as a log would return it, for tests that need no log. */
export function recordedEvent(
  stream: string,
  event: { readonly type: string; readonly data: object },
  over: Partial<RecordedEvent> = {},
): RecordedEvent {
  return {
    id: '11111111-1111-4111-8111-111111111111',
    type: event.type,
    version: event.type === 'ContainerCreated' ? 2 : 1,
    data: { ...event.data },
    occurredAtMs: 0,
    actor: 'key:primary',
    correlationId: '22222222-2222-4222-8222-222222222222',
    causationId: '22222222-2222-4222-8222-222222222222',
    stream,
    revision: 0,
    position: 1,
    ...over,
  };
}
