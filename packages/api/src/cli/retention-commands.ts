import { parsedJson } from '@epitaph/core/parsed-json.ts';
import type { Answer } from './answer.ts';
import { reasonFlag, textFlag, type Command, type Flags, type FlagValues } from './command.ts';
import { counted } from './counted.ts';
import { exitCodes, UsageError } from './exit-codes.ts';
import { follow } from './follow.ts';
import { containerPath, hintAtValues, partitionKey, partitionKeyFlag, ridFlag } from './history-commands.ts';
import { pagesOf } from './paged.ts';

export const hold: Command = {
  summary: 'Places, releases and lists legal holds: content that a hold covers is not erased.',
  operands: 'place|release|list <database> <container> [<hold>]',
  operandCounts: [3, 4],
  flags: {
    container: { type: 'boolean', description: 'Holds everything in the container.' },
    item: {
      type: 'string',
      multiple: true,
      placeholder: '<id>',
      description: 'Holds all lives of that item. Give it once for each item.',
    },
    query: { type: 'string', placeholder: '<sql>', description: 'Holds what the query finds now.' },
    parameter: {
      type: 'string',
      multiple: true,
      placeholder: '<@name>=<JSON>',
      description: 'A parameter of the query. Give it once for each parameter.',
    },
    ...partitionKeyFlag,
    ...reasonFlag,
    ...ridFlag,
  },
  notes:
    'place needs a --reason and one of --container, --query, --partition-key and --item. --partition-key without --item holds everything with that key, now and later; with --item it is the key of the items. release needs a --reason.',
  run: async (invocation) => {
    const { client, operands, flags, json, print } = invocation;
    const [action, database, container, id] = operands as [string, string, string, string | undefined];
    const path = `${containerPath([database, container])}/holds`;
    const query = { rid: textFlag(flags, 'rid') };
    if (action === 'list' && id === undefined) {
      const holds: Answer<'hold'>[] = [];
      let answer: Answer<'holds'> | undefined;
      for await (answer of pagesOf<Answer<'holds'>>(client, path, query)) holds.push(...answer.holds);
      if (json) print(JSON.stringify({ ...answer, holds }));
      else if (holds.length === 0) print('No hold was ever placed.');
      else holds.forEach((one) => print(lineOf(one)));
      return exitCodes.ok;
    }
    if ((action !== 'place' && action !== 'release') || id === undefined) {
      throw new UsageError('hold takes place or release with the id of a hold, or list.');
    }
    const one = `${path}/${encodeURIComponent(id)}`;
    const answer =
      action === 'place'
        ? await client.call<Answer<'hold'>>('PUT', one, { query, body: holdText(flags) })
        : await client.call<Answer<'hold'>>('DELETE', one, { query, body: { reason: reasonOf(flags) } });
    print(json ? JSON.stringify(answer) : lineOf(answer));
    if (!json && action === 'place' && answer.tooLateFor > 0) {
      const lives = counted(answer.tooLateFor, 'life', 'lives');
      print(`The hold came too late for ${lives}, whose content had been erased before.`);
    }
    // A hold on a text is accepted even if all keys are numbers, and then keeps nothing.
    if (action === 'place' && textsOf(flags, 'partition-key').length > 0) hintAtValues(flags, invocation.stderr);
    return exitCodes.ok;
  },
};

function lineOf({ id, state, scope, count, reason, placedBy, placedAt, released }: Answer<'hold'>): string {
  const covers = count === undefined ? scope : `${scope} (${count})`;
  const end = released === undefined ? '' : `, released ${released.at} by ${released.by}: ${released.reason}`;
  return `${id}  ${state}  ${covers}  placed ${placedAt} by ${placedBy}: ${reason}${end}`;
}

/** The scope of a hold, as JSON. Parameters are sent as they were typed, because parsing would round a long integer. */
function holdText(flags: FlagValues): string {
  const { query, ...scope } = scopeOf(flags);
  const rest = JSON.stringify({ ...scope, reason: reasonOf(flags) });
  if (query === undefined) return rest;
  const parameters = query.parameters.map(({ name, json }) => `{"name":${JSON.stringify(name)},"value":${json}}`);
  return `{"query":{"query":${JSON.stringify(query.sql)},"parameters":[${parameters.join(',')}]},${rest.slice(1)}`;
}

interface HoldScope {
  readonly container?: true;
  readonly query?: {
    readonly sql: string;
    readonly parameters: readonly { readonly name: string; readonly json: string }[];
  };
  readonly partitionKey?: unknown;
  readonly items?: readonly { readonly id: string; readonly partitionKey: unknown }[];
}

/** @throws UsageError for no scope and for several, because the user may have meant more than would be held */
function scopeOf(flags: FlagValues): HoldScope {
  const items = textsOf(flags, 'item');
  const parameters = textsOf(flags, 'parameter');
  const sql = textFlag(flags, 'query');
  const hasKey = textsOf(flags, 'partition-key').length > 0;
  const given = [flags['container'] === true, sql !== undefined, hasKey || items.length > 0];
  if (given.filter(Boolean).length !== 1) {
    throw new UsageError(
      'A hold needs one of --container, --query, --partition-key, or --item with its --partition-key.',
    );
  }
  if (parameters.length > 0 && sql === undefined) throw new UsageError('--parameter needs --query.');
  if (flags['container'] === true) return { container: true };
  if (sql !== undefined) return { query: { sql, parameters: parameters.map(parameterOf) } };
  const key = partitionKeyOf(flags);
  return items.length === 0 ? { partitionKey: key } : { items: items.map((id) => ({ id, partitionKey: key })) };
}

function parameterOf(text: string): { name: string; json: string } {
  const at = text.indexOf('=');
  const json = text.slice(at + 1);
  if (at > 0 && parsedJson(json) !== undefined) return { name: text.slice(0, at), json };
  throw new UsageError(`--parameter ${text}: expected <@name>=<JSON>; a string is in quotes.`);
}

export const floor: Command = setting({
  summary: 'For how long after its last write an item’s content is not erased (a retention floor).',
  path: 'retention-floor',
});

export const recoveryWindow: Command = setting({
  summary: 'For how long after its end an item of a container can be brought back.',
  path: 'recovery-window',
});

export const policyGrace: Command = setting({
  summary: 'How long the content of items that expired by a policy change is kept.',
  path: 'policy-grace',
  // The policy of a deleted container can't be changed.
  flags: {},
});

/** A command that shows a number of seconds of a container, or sets it with a reason. */
function setting({
  summary,
  path,
  flags: more = ridFlag,
}: {
  readonly summary: string;
  readonly path: string;
  readonly flags?: Flags;
}): Command {
  return {
    summary,
    operands: '<database> <container> [<seconds>]',
    operandCounts: [2, 3],
    flags: { ...reasonFlag, ...more },
    notes: 'Without <seconds> it shows the current setting. 0 means none.',
    run: async ({ client, operands, flags, json, print }) => {
      const query = { rid: textFlag(flags, 'rid') };
      const [, , seconds] = operands;
      if (seconds !== undefined && !/^\d{1,10}$/.test(seconds)) {
        throw new UsageError(`${JSON.stringify(seconds)} is not a number of seconds.`);
      }
      const base = containerPath(operands);
      if (seconds !== undefined) {
        const body = { seconds: Number(seconds), reason: reasonOf(flags) };
        await client.call('PUT', `${base}/${path}`, { query, body });
      }
      const answer = await client.call<Answer<'retention'>>('GET', `${base}/retention`, { query });
      if (json) print(JSON.stringify(answer));
      else {
        print(`retention floor: ${answer.floorSeconds} s`);
        print(`recovery window: ${answer.recoveryWindowSeconds} s`);
        print(`policy grace: ${answer.policyGraceSeconds} s`);
      }
      return exitCodes.ok;
    },
  };
}

export const erase: Command = {
  summary: 'Erases all lives of an item now, unless a hold or a retention floor forbids it.',
  operands: '<database> <container> <id>',
  operandCounts: [3, 3],
  flags: {
    ...partitionKeyFlag,
    ...reasonFlag,
    'requested-by': {
      type: 'string',
      placeholder: '<who>',
      description: 'Who requests the erasure; it stays on record.',
    },
    ...ridFlag,
  },
  notes: 'Exits with 1 if the erasure is refused. The request and the refusal stay on record.',
  run: async ({ client, operands, flags, json, print }) => {
    const requestedBy = textFlag(flags, 'requested-by');
    if (requestedBy === undefined) throw new UsageError('An erasure needs --requested-by.');
    const answer = await client.call<Answer<'erasure'>>('POST', `${containerPath(operands)}/erase`, {
      query: { rid: textFlag(flags, 'rid') },
      body: {
        id: operands[2],
        partitionKey: partitionKeyOf(flags),
        reason: reasonOf(flags),
        requestedBy,
      },
    });
    const { erasedLives, alreadyErasedLives } = answer;
    const before = alreadyErasedLives === 0 ? '' : `; erased before: ${alreadyErasedLives}`;
    print(json ? JSON.stringify(answer) : `Erased ${counted(erasedLives, 'life', 'lives')}${before}.`);
    return exitCodes.ok;
  },
};

export const recover: Command = {
  summary: 'Brings back an item that has ended but is not erased, or all items that expired when a policy took effect.',
  operands: '<database> <container> [<id>]',
  operandCounts: [2, 3],
  flags: {
    ...partitionKeyFlag,
    life: {
      type: 'string',
      placeholder: '<number>',
      description: 'Which life of the item; the last that has ended by default.',
    },
    policy: {
      type: 'string',
      placeholder: '<version>',
      description: 'Brings back all items that expired when this policy version took effect.',
    },
    ...reasonFlag,
  },
  notes: 'If a recovery with --policy is interrupted, run it again: it continues.',
  run: async (invocation) => {
    const { client, operands, flags, json, print } = invocation;
    const path = `${containerPath(operands)}/recover`;
    const id = operands[2];
    const reason = reasonOf(flags);
    const policyVersion = numberOf(flags, 'policy');
    if ((id === undefined) === (policyVersion === undefined)) {
      throw new UsageError('recover takes the id of an item, or --policy.');
    }
    if (policyVersion !== undefined) {
      const answer = await follow<Answer<'recoveredPolicy'>>(invocation, {
        method: 'POST',
        path,
        body: { policyVersion, reason },
        label: 'recover',
      });
      const { recovered, writtenSince, uniqueKeyTaken, erased, unreadable } = answer;
      const damaged = unreadable === 0 ? '' : `, damaged: ${unreadable} (epitaph fsck names them)`;
      print(
        json
          ? JSON.stringify(answer)
          : `Brought back ${counted(recovered, 'item')}; written again since: ${writtenSince}, unique key taken: ${uniqueKeyTaken}, erased: ${erased}${damaged}.`,
      );
      return exitCodes.ok;
    }
    const key = partitionKeyOf(flags);
    const body = { id, partitionKey: key, reason, life: numberOf(flags, 'life') };
    const answer = await client.call<Answer<'recovered'>>('POST', path, { body });
    const expires = answer.expiresAt === null ? 'it does not expire' : `it expires ${answer.expiresAt}`;
    print(
      json ? JSON.stringify(answer) : `Life ${answer.life} has the content of life ${answer.fromLife}; ${expires}.`,
    );
    return exitCodes.ok;
  },
};

/** The partition key for a request's body: an array, or a pseudonym. */
function partitionKeyOf(flags: FlagValues): unknown {
  const text = partitionKey(flags);
  return text.startsWith('[') ? (JSON.parse(text) as unknown) : text;
}

function reasonOf(flags: FlagValues): string {
  const reason = textFlag(flags, 'reason');
  if (reason === undefined) throw new UsageError('A --reason is needed: it stays on record.');
  return reason;
}

function numberOf(flags: FlagValues, name: string): number | undefined {
  const text = textFlag(flags, name);
  if (text === undefined) return undefined;
  if (/^\d{1,9}$/.test(text)) return Number(text);
  throw new UsageError(`--${name} ${text}: expected a whole number.`);
}

function textsOf(flags: FlagValues, name: string): string[] {
  const given = flags[name];
  return Array.isArray(given) ? given.map(String) : [];
}
