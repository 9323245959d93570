import { MAX_TTL_SECONDS } from '@epitaph/core/ttl/ttl-value.ts';
import type { Answer } from './answer.ts';
import { reasonFlag, textFlag, type Command, type FlagValues, type Invocation } from './command.ts';
import { counted } from './counted.ts';
import { exitCodes, UsageError } from './exit-codes.ts';
import { follow } from './follow.ts';
import { containerPath, ridFlag } from './history-commands.ts';
import { pagesOf } from './paged.ts';

export const preview: Command = {
  summary: 'What a TTL policy would do, before it is applied.',
  operands: '<database> <container> <default-ttl>',
  operandCounts: [3, 3],
  flags: {
    from: { type: 'string', placeholder: '<time>', description: 'When it would take effect; now by default.' },
  },
  notes: '<default-ttl> is off, -1 or a number of seconds. For -1, put -- -1 at the end.',
  run: async ({ client, operands, flags, json, print }) => {
    const answer = await client.call<Answer<'preview'>>('POST', `${containerPath(operands)}/ttl/preview`, {
      body: { defaultTtl: defaultTtl(operands[2]!), effectiveFrom: textFlag(flags, 'from') },
    });
    if (json) {
      print(JSON.stringify(answer));
      return exitCodes.ok;
    }
    const { atOnce, later, kept } = answer;
    const oldest = atOnce.oldest === null ? '' : `, the oldest written ${atOnce.oldest}`;
    print(`${atOnce.items} of ${answer.items} items would expire at once, at ${answer.effectiveFrom}${oldest}.`);
    for (const { id, partitionKey } of atOnce.sample)
      print(`  ${JSON.stringify(id)} in ${JSON.stringify(partitionKey)}`);
    if (atOnce.items > 0) print(`Their content would be erased from ${atOnce.erasedFrom} on.`);
    for (const { until, items } of later) if (items > 0) print(`${items} by ${until ?? 'some later time'}`);
    print(`${answer.never} never`);
    if (kept.byFloor > 0) print(`The retention floor would keep the content of ${kept.byFloor}.`);
    const { atLeast, atMost } = kept.byHolds;
    if (atMost > 0) {
      const items = atLeast === atMost ? atLeast : `${atLeast} at least, ${atMost} at most`;
      const more = kept.moreHolds === undefined ? '' : ` and ${kept.moreHolds} more`;
      print(`Holds would keep the content of ${items}: ${kept.holds.map(({ holdId }) => holdId).join(', ')}${more}.`);
    }
    if (answer.inertTtls > 0)
      print(`${counted(answer.inertTtls, 'item has', 'items have')} a ttl, which would have no effect.`);
    if (answer.unreadableTtls > 0)
      print(`${counted(answer.unreadableTtls, 'item has', 'items have')} an invalid ttl, which counts as absent.`);
    return exitCodes.ok;
  },
};

export const ttl: Command = {
  summary: 'Shows the TTL policies of a container; with <default-ttl>, changes the policy, now or later.',
  operands: '<database> <container> [<default-ttl>]',
  operandCounts: [2, 3],
  flags: {
    from: { type: 'string', placeholder: '<time>', description: 'When the change takes effect; now by default.' },
    confirm: {
      type: 'boolean',
      description: 'Makes the change even if the brake forbids it. Needs a --reason.',
    },
    withdraw: { type: 'boolean', description: 'Withdraws the scheduled change.' },
    ...reasonFlag,
    ...ridFlag,
  },
  notes: '<default-ttl> is off, -1 or a number of seconds. For -1, put -- -1 at the end. Run epitaph preview first.',
  run: async (invocation) => {
    const { client, operands, flags } = invocation;
    const [database, container, policy] = operands as [string, string, string | undefined];
    const path = `${containerPath([database, container])}/ttl`;
    const reason = textFlag(flags, 'reason');
    const from = textFlag(flags, 'from');
    const withdraw = flags['withdraw'] === true;
    if (withdraw && policy !== undefined) throw new UsageError('ttl takes a <default-ttl> or --withdraw, not both.');
    const rid = textFlag(flags, 'rid');
    if (rid !== undefined && (withdraw || policy !== undefined)) {
      throw new UsageError('With --rid, ttl only shows policies, also of a deleted container; it can not change them.');
    }
    if (policy === undefined && (from !== undefined || flags['confirm'] === true)) {
      throw new UsageError('--from and --confirm need a <default-ttl>.');
    }
    if (policy !== undefined) {
      const body = {
        defaultTtl: defaultTtl(policy),
        effectiveFrom: from,
        confirm: flags['confirm'] === true ? true : undefined,
        reason,
      };
      return showPolicies(invocation, await client.call<Answer<'policies'>>('PUT', path, { body }));
    }
    if (withdraw) {
      const answer = await client.call<Answer<'policies'>>('DELETE', `${path}/scheduled`, { body: { reason } });
      return showPolicies(invocation, answer);
    }
    const past: Answer<'policies'>['current'][] = [];
    let answer: Answer<'policies'> | undefined;
    for await (answer of pagesOf<Answer<'policies'>>(client, path, { rid })) past.push(...answer.past);
    return showPolicies(invocation, { ...answer!, past });
  },
};

export const brake: Command = {
  summary: 'Limits how many items a TTL change may make expire at once without confirmation.',
  operands: '<database> <container> <items>|<share>%|off',
  operandCounts: [3, 3],
  flags: reasonFlag,
  notes: 'epitaph ttl shows the limit.',
  run: async (invocation) => {
    const { client, operands, flags } = invocation;
    const [, items, share] = /^(?:(\d{1,15})|(\d{1,3}(?:\.\d+)?)%)$/.exec(operands[2]!) ?? [];
    if ((items === undefined && share === undefined && operands[2] !== 'off') || Number(share ?? 0) > 100) {
      throw new UsageError('brake takes a whole number of items, a share of them such as 10%, or off.');
    }
    const limit = {
      ...(items === undefined ? {} : { maxItems: Number(items) }),
      ...(share === undefined ? {} : { maxShare: Number(share) / 100 }),
    };
    const body = { ...limit, reason: textFlag(flags, 'reason') };
    return showPolicies(
      invocation,
      await client.call<Answer<'policies'>>('PUT', `${containerPath(operands)}/ttl/brake`, { body }),
    );
  },
};

function showPolicies({ json, print }: Invocation, answer: Answer<'policies'>): number {
  if (json) {
    print(JSON.stringify(answer));
    return exitCodes.ok;
  }
  const { container, past, current, scheduled, brake: limits, policyGraceSeconds } = answer;
  const line = (
    { version, defaultTtl: seconds, from, setBy, reason }: Answer<'policies'>['current'],
    state: string,
  ): void => {
    const rule = seconds === null ? 'off' : seconds === -1 ? 'on, without a default' : `${seconds} s`;
    print(
      `version ${version}: ${rule} from ${from}, set by ${setBy}${reason === undefined ? '' : `: ${reason}`}${state}`,
    );
  };
  for (const policy of past) line(policy, '');
  const { deletedAt } = container;
  line(current, deletedAt === undefined ? ', in force' : `, in force until the container was deleted at ${deletedAt}`);
  if (scheduled !== null) line(scheduled, deletedAt === undefined ? ', scheduled' : ', scheduled, and never in force');
  const { maxItems, maxShare } = limits ?? {};
  const most = [
    ...(maxItems === undefined ? [] : [counted(maxItems, 'item')]),
    ...(maxShare === undefined ? [] : [`${Number((maxShare * 100).toFixed(6))} % of the items`]),
  ];
  print(`brake: ${most.length === 0 ? 'none' : most.join(' and ')}`);
  print(`policy grace: ${policyGraceSeconds} s`);
  return exitCodes.ok;
}

export const replay: Command = {
  summary: 'Which items would have left under other TTL policies, compared with what happened.',
  operands: '<database> <container>',
  operandCounts: [2, 2],
  flags: {
    policy: {
      type: 'string',
      multiple: true,
      placeholder: '<time>=<default-ttl>',
      description: 'A policy and its start. Give it once for each policy, in order of time.',
    },
    differences: { type: 'boolean', description: 'Prints every difference as a line of JSON.' },
    ...ridFlag,
  },
  notes:
    'The verdict on each life of an item: same, earlier or later, for when it would have left; never, if it left but would not have; also, if it did not leave but would have.',
  run: async (invocation) => {
    const { client, operands, flags, json, print } = invocation;
    const path = `${containerPath(operands)}/ttl/replay`;
    const sent = { query: { rid: textFlag(flags, 'rid') }, body: { timeline: timeline(flags) } };
    if (flags['differences'] === true) {
      for await (const line of client.lines('POST', path, { ...sent, accept: 'application/x-ndjson' })) print(line);
      return exitCodes.ok;
    }
    const { lives, counts } = await follow<Answer<'replay'>>(invocation, {
      method: 'POST',
      path,
      ...sent,
      label: 'read',
    });
    if (json) print(JSON.stringify({ lives, counts }));
    else
      print(
        `${counted(lives, 'life', 'lives')}: ${Object.entries(counts)
          .map(([verdict, count]) => `${count} ${verdict}`)
          .join(', ')}.`,
      );
    return exitCodes.ok;
  },
};

export const asOf: Command = {
  summary: 'How many items a container showed at an instant; with --list, which ones.',
  operands: '<database> <container> <time>',
  operandCounts: [3, 3],
  flags: { list: { type: 'boolean', description: 'Prints every item as a line of JSON.' }, ...ridFlag },
  run: async (invocation) => {
    const { client, operands, flags, json, print } = invocation;
    const path = `${containerPath(operands)}/as-of`;
    const query = { at: operands[2], rid: textFlag(flags, 'rid') };
    if (flags['list'] === true) {
      for await (const line of client.lines('GET', path, { query, accept: 'application/x-ndjson' })) print(line);
      return exitCodes.ok;
    }
    const answer = await follow<Answer<'asOf'>>(invocation, {
      method: 'GET',
      path,
      query,
      label: 'read',
    });
    print(json ? JSON.stringify(answer) : `${counted(answer.items, 'item')} at ${answer.at}.`);
    return exitCodes.ok;
  },
};

function timeline(flags: FlagValues): { from: string; defaultTtl: number | null }[] {
  const given = flags['policy'];
  const texts = Array.isArray(given) ? given.map(String) : [];
  if (texts.length === 0) throw new UsageError('A replay needs at least one --policy <time>=<default-ttl>.');
  return texts.map((text) => {
    const at = text.lastIndexOf('=');
    if (at < 0) throw new UsageError(`--policy ${text}: expected <time>=<default-ttl>.`);
    return { from: text.slice(0, at), defaultTtl: defaultTtl(text.slice(at + 1)) };
  });
}

function defaultTtl(text: string): number | null {
  if (text === 'off') return null;
  if (/^(-1|[1-9]\d{0,9})$/.test(text) && Number(text) <= MAX_TTL_SECONDS) return Number(text);
  throw new UsageError(
    `${JSON.stringify(text)} is not a default TTL: off, -1, or a whole number of seconds from 1 to ${MAX_TTL_SECONDS}.`,
  );
}
