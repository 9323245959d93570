import type { ContainerState } from '@epitaph/core/container/state.ts';
import { DEFAULT_POLICY_GRACE_SECONDS } from '@epitaph/core/container/upcast.ts';
import { etagOf } from '@epitaph/core/item/events.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { initialRetention } from '@epitaph/core/retention/state.ts';
import { initialProvisioning } from '@epitaph/core/throughput/provisioning.ts';

/** No real container's name begins with this. */
const NAMELESS = '?';

/**
 * Stands for a container whose creation is lost in the log or can't be read, so that its name, its partition key paths
 * and its TTL policies are not known.
 *
 * @param first the first event of the container, or of its items, that lacks the creation before it
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

/** True for a container that {@link lostContainer} has made. */
export const isLost = ({ name }: Pick<ContainerState, 'name'>): boolean => name.startsWith(NAMELESS);

/** A container's rid begins with the four bytes of its database's rid. */
function databaseOf(rid: string): string {
  const bytes = Buffer.from(rid.replaceAll('-', '/'), 'base64').subarray(0, 4);
  return bytes.toString('base64').replaceAll('/', '-');
}
