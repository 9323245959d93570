/**
 * A tour of time to live with machine-made events: the 329 GitHub webhook payloads of `@octokit/webhooks-examples`. They are written
 * through the real client into a real store with a manual clock.
 *
 * Run it with `npm run tour`.
 */
import { CosmosClient, type Container, type Database } from '@azure/cosmos';
import { containers, DAY, webhookDeliveries, type Delivery } from './events.ts';
import { Management } from './management.ts';
import { startStore } from './store-process.ts';

/** The published key of Microsoft's local emulator, which the store accepts on loopback only. */
const KEY = 'C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==';
const START = '2026-01-01T00:00:00Z';
const AT_ONCE = 16;

const deliveries = webhookDeliveries();
const store = await startStore(START);
const client = new CosmosClient({ endpoint: store.endpoint, key: KEY });
const management = new Management(store.endpoint, KEY, 'webhooks');
let today = 0;
let loaded = 0;

try {
  const { database } = await client.databases.create({ id: 'webhooks' });
  await makeContainers(database);

  heading('Day 0: half of the events arrive');
  await load(deliveries.filter(({ day }) => day === 0));
  await showVisible();

  heading('Day 3: a client deletes what it should not have stored');
  await turnTo(3);
  await container('chat').item('issue_comment-1', 'issue_comment').delete();
  await container('activity').item('star-1', 'star').delete();
  await purge();
  await showVisible();

  heading('Day 8: talk that was over has had its week');
  await turnTo(8);
  await showVisible();

  heading('Day 10: the other half arrives');
  await turnTo(10);
  await load(deliveries.filter(({ day }) => day === 10));
  await showVisible();

  heading('Day 20: ci-events is shortened from 30 days to 14');
  await turnTo(20);
  await setTtl('ci-events', 14 * DAY);
  await showVisible();
  print('What arrived on day 0 is hidden at once. Its content waits for a day, in case that was a mistake:');
  await purge();

  heading('Day 22: the grace is over, and ci-events is turned off');
  await turnTo(22);
  await setTtl('ci-events', undefined);
  await showVisible();
  print('What has expired does not come back. What had not expired yet now stays.');

  heading('Day 110: comments have had their 90 days');
  await turnTo(110);
  await showVisible();

  heading('Day 400: activity has had its year');
  await turnTo(400);
  await showVisible();

  heading('Why is it gone? Why is it there?');
  await tell('purged, by its own ttl', 'chat', 'issues-5', 'issues');
  await tell('purged, because the policy was shortened', 'ci-events', 'check_run-1', 'check_run');
  await tell('purged, by the container default', 'activity', 'fork-1', 'fork');
  await tell('deleted by a client', 'chat', 'issue_comment-1', 'issue_comment');
  await tell(
    'live, because TTL was turned off in time',
    'ci-events',
    'check_run-2',
    'check_run',
    '2026-01-21T12:00:00Z',
  );
  await tell('live, TTL was never on', 'security-events', 'dependabot_alert-1', 'dependabot_alert');
  await tell('not one of the 329', 'chat', 'issues-330', 'issues');

  heading('What left, by cause');
  const gone = await showDisappearances();

  heading('The books');
  await purge();
  const report = await management.fsck();
  print(
    `fsck:    ${report.ok ? 'ok' : 'NOT OK'}, ${report.lives} lives by the log, ${report.items} of them visible, ` +
      `${report.problems.length} problems`,
  );
  for (const { message } of report.problems) print(`  ${message}`);
  const visible = sum((await visibleCounts()).values());
  print(`${visible} visible + ${gone} gone = ${visible + gone} of ${deliveries.length} events`);
  if (!report.ok || visible + gone !== deliveries.length) process.exitCode = 1;
} finally {
  client.dispose();
  await store.stop();
}

async function makeContainers(database: Database): Promise<void> {
  for (const { id, defaultTtl, why } of containers) {
    await database.containers.create({
      id,
      partitionKey: '/event',
      ...(defaultTtl === undefined ? {} : { defaultTtl }),
    });
    print(`container ${id.padEnd(16)} ${why}`);
  }
}

async function load(some: readonly Delivery[]): Promise<void> {
  let next = 0;
  const work = async () => {
    while (next < some.length) {
      const { container: plan, item } = some[next++]!;
      await container(plan.id).items.create(item);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  loaded += some.length;
}

/** Changes a container's policy by replacing the container, as clients of Cosmos DB do. Without `defaultTtl`, TTL is off. */
async function setTtl(id: string, defaultTtl: number | undefined): Promise<void> {
  await container(id).replace({
    id,
    partitionKey: { paths: ['/event'] },
    ...(defaultTtl === undefined ? {} : { defaultTtl }),
  });
  print(`${id}: defaultTtl is now ${defaultTtl === undefined ? 'off' : `${defaultTtl / DAY} days`}`);
}

async function turnTo(day: number): Promise<void> {
  await management.advance((day - today) * DAY * 1000);
  today = day;
  print(`it is ${await management.now()}`);
  await purge();
}

/** Waits for the purge, which otherwise runs by itself, so that every run of the tour prints the same. */
async function purge(): Promise<void> {
  for (;;) {
    await management.runPurge();
    const { overdueItems, awaitingErasure, inGrace, purgedTotal } = await management.purgeStatus();
    if (overdueItems > 0 || awaitingErasure > 0) continue;
    print(`purge:   ${purgedTotal} erased so far, ${inGrace} hidden and not yet erased`);
    return;
  }
}

async function visibleCounts(): Promise<ReadonlyMap<string, number>> {
  const counts = new Map<string, number>();
  for (const { id } of containers) {
    const { resources } = await container(id).items.query<number>('SELECT VALUE COUNT(1) FROM c').fetchAll();
    counts.set(id, resources[0]!);
  }
  return counts;
}

async function showVisible(): Promise<void> {
  const counts = await visibleCounts();
  const columns = containers.map(({ id }) => `${id} ${String(counts.get(id)).padStart(3)}`);
  print(`visible: ${columns.join('   ')}   together ${sum(counts.values())} of ${loaded}`);
}

async function tell(what: string, inContainer: string, id: string, event: string, at?: string): Promise<void> {
  print(`${inContainer}/${id} (${what})`);
  for (const entry of await management.history(inContainer, id, event)) {
    const operation = typeof entry.data['operation'] === 'string' ? ` (${entry.data['operation']})` : '';
    const by = entry.fromLedger === true ? 'from the ledger of the purge' : `by ${entry.actor}`;
    print(`  ${entry.occurredAt}  ${`${entry.type}${operation}`.padEnd(21)}  ${by}`);
  }
  if (at !== undefined) {
    const then = await management.explain(inContainer, id, event, at);
    print(`  at ${at} it was ${then.state}: ${then.sentence}`);
  }
  const { state, sentence } = await management.explain(inContainer, id, event);
  print(`  ${state}: ${sentence}`);
  print('');
}

/** Prints one line per container, and returns how many items left in all. */
async function showDisappearances(): Promise<number> {
  let all = 0;
  for (const { id } of containers) {
    const causes = new Map<string, number>();
    for (const { cause } of await management.disappearances(id)) causes.set(cause, (causes.get(cause) ?? 0) + 1);
    const text = [...causes].map(([cause, count]) => `${cause} ${count}`).join(', ');
    print(`${id.padEnd(16)} ${text === '' ? 'nothing' : text}`);
    all += sum(causes.values());
  }
  return all;
}

function container(id: string): Container {
  return client.database('webhooks').container(id);
}

function sum(numbers: Iterable<number>): number {
  let total = 0;
  for (const number of numbers) total += number;
  return total;
}

function heading(text: string): void {
  print(`\n== ${text}`);
}

function print(line: string): void {
  console.log(line);
}
