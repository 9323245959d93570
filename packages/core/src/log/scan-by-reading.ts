import type { EventLog, LogScan } from './event-log.ts';

/** {@link EventLog.scan} for a log that can't filter: reads everything and leaves out what doesn't match. */
export async function scanByReading(
  log: Pick<EventLog, 'readAll'>,
  afterPosition: number,
  maxCount: number,
  streamPrefix: string,
): Promise<LogScan> {
  const events = await log.readAll(afterPosition, maxCount, { withBodies: false });
  return {
    events: events.filter((event) => event.stream.startsWith(streamPrefix)),
    position: events.at(-1)?.position ?? afterPosition,
  };
}
