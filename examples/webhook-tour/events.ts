import { createRequire } from 'node:module';

/** A webhook delivery as the tour stores it: GitHub's payload unchanged, and the properties that the store needs. */
export interface EventItem {
  /** Payloads have no unique text that could be their id, so the tour gives each one an id: `issues-7`. */
  readonly id: string;
  readonly event: string;
  readonly action: string | null;
  readonly payload: object;
  /** In seconds. Only set if the container leaves the ttl to its items. */
  readonly ttl?: number;
}

export interface ContainerPlan {
  readonly id: string;
  readonly why: string;
  /** In seconds. -1 means on without a default; absent means off. */
  readonly defaultTtl?: number;
  readonly takes: (event: string) => boolean;
  readonly ttlOf?: (event: string, action: string | null) => number | undefined;
}

export const DAY = 86_400;

const startsWithOneOf = (names: readonly string[]) => (event: string) => names.some((name) => event.startsWith(name));

/** Actions that end a conversation. Its items are kept for a week. */
const OVER: ReadonlySet<string | null> = new Set(['closed', 'deleted', 'locked', 'resolved', 'dismissed', 'answered']);

/** The containers of the tour. An event goes to the first one that takes it. */
export const containers: readonly ContainerPlan[] = [
  {
    id: 'security-events',
    why: 'TTL off: stays',
    takes: startsWithOneOf([
      'branch_protection_rule',
      'code_scanning_alert',
      'dependabot_alert',
      'deploy_key',
      'github_app_authorization',
      'installation',
      'member',
      'org_block',
      'repository_vulnerability_alert',
      'security_advisory',
    ]),
  },
  {
    id: 'ci-events',
    why: 'defaultTtl 30 days',
    defaultTtl: 30 * DAY,
    takes: startsWithOneOf(['check_', 'deployment', 'merge_group', 'page_build', 'push', 'status', 'workflow_']),
  },
  {
    id: 'chat',
    why: 'defaultTtl -1: ttl 7 days for what is over, 90 for comments, none for the rest',
    defaultTtl: -1,
    takes: startsWithOneOf(['commit_comment', 'discussion', 'issue', 'pull_request']),
    ttlOf: (event, action) => (OVER.has(action) ? 7 * DAY : event.includes('comment') ? 90 * DAY : undefined),
  },
  { id: 'activity', why: 'defaultTtl 365 days', defaultTtl: 365 * DAY, takes: () => true },
];

export interface Delivery {
  readonly container: ContainerPlan;
  readonly item: EventItem;
  /** The first, third, … of each kind arrive on day 0, the others on day 10. */
  readonly day: 0 | 10;
}

/** All payloads of the package, each with its container and its day. */
export function webhookDeliveries(): readonly Delivery[] {
  // The package is one JSON file. Its own types describe every property of every event, which is more than the tour needs.
  const definitions = createRequire(import.meta.url)('@octokit/webhooks-examples') as readonly {
    readonly name: string;
    readonly examples: readonly ({ readonly action?: string } & object)[];
  }[];
  return definitions.flatMap(({ name, examples }) => {
    const container = containers.find(({ takes }) => takes(name))!;
    return examples.map((payload, index) => {
      const action = payload.action ?? null;
      const ttl = container.ttlOf?.(name, action);
      const item = { id: `${name}-${index + 1}`, event: name, action, payload };
      return { container, item: ttl === undefined ? item : { ...item, ttl }, day: index % 2 === 0 ? 0 : 10 };
    });
  });
}
