import type { ContainerState } from '@epitaph/core/container/state.ts';
import { DEFAULT_POLICY_GRACE_SECONDS } from '@epitaph/core/container/upcast.ts';
import { etagOf } from '@epitaph/core/item/events.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { initialRetention } from '@epitaph/core/retention/state.ts';
import { initialProvisioning } from '@epitaph/core/throughput/provisioning.ts';

/** What no container's name begins with. */
const NAMELESS = '?';

/**
 * What stands for a container of whose creation the log has nothing that can be read: what it is called, where its items have their
 * partition keys, and by what these leave, it does not say.
 *
 * @param first what there is of it, or of its items, and can't go on from a creation
 */
export const lostContainer = (rid: string, first: RecordedEvent): ContainerState => ({
  status: 'live',
  rid,
  databaseRid: databaseOf(rid),
  name: `${NAMELESS}${rid}`,
  definition: { partitionKey: { paths: [], kind: 'Hash' }, indexingPolicy: { indexingMode: 'consistent' } },
  timeline: [
    {
      fromMs: first.occurredAtMs,
      defaultTtl: null,
      version: 1,
      setBy: first.actor,
      recordedAtMs: first.occurredAtMs,
    },
  ],
  policyGraceSeconds: DEFAULT_POLICY_GRACE_SECONDS,
  partitionKeyDeletes: [],
  retention: initialRetention,
  ...initialProvisioning(first),
  createdAtMs: first.occurredAtMs,
  deletedAtMs: null,
  lacksEvents: true,
  etag: etagOf(first.id),
  changedAtMs: first.occurredAtMs,
});

/** True for what {@link lostContainer} has made. */
export const isLost = ({ name }: Pick<ContainerState, 'name'>): boolean => name.startsWith(NAMELESS);

/** A container's rid begins with the four bytes of its database's. */
function databaseOf(rid: string): string {
  const bytes = Buffer.from(rid.replaceAll('-', '/'), 'base64').subarray(0, 4);
  return bytes.toString('base64').replaceAll('/', '-');
}
