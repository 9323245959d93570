import { isoTime } from '@epitaph/core/clock.ts';
import { isPartitionPseudonym } from '@epitaph/core/item/pseudonym.ts';
import { isKeyText } from '@epitaph/core/partition-key/key-text.ts';
import type { Answer } from './answer.ts';
import { textFlag, type Command, type Flags, type FlagValues, type Invocation } from './command.ts';
import { exitCodes, UsageError } from './exit-codes.ts';
import type { ManagementClient } from './management-client.ts';
import { pagesOf } from './paged.ts';

export const ridFlag: Flags = {
  rid: {
    type: 'string',
    placeholder: '<rid>',
    description: 'The container with this resource id, which may be a deleted one.',
  },
};

export const partitionKeyFlag: Flags = {
  'partition-key': {
    type: 'string',
    multiple: true,
    placeholder: '<value>',
    description:
      'The item’s partition key: a text, or a JSON array such as [5] or ["a",null]. Give it once for each level of a hierarchical key. Or the pseudonym of the key.',
  },
};

const itemFlags: Flags = { ...partitionKeyFlag, ...ridFlag };

export const periodFlags: Flags = {
  from: { type: 'string', placeholder: '<time>', description: 'From this instant on.' },
  to: { type: 'string', placeholder: '<time>', description: 'Before this instant.' },
};

const at: Flags = {
  at: { type: 'string', placeholder: '<time>', description: 'The instant to explain; now by default.' },
};

export const history: Command = {
  summary: 'Every recorded fact of an item, or of a container, oldest first.',
  operands: '[<database> <container> [<id>]]',
  operandCounts: [0, 3],
  flags: itemFlags,
  notes: 'Without operands: what was done to the store as a whole, when and by whom.',
  run: async ({ client, operands, flags, json, print }) => {
    const [database, container, id] = operands;
    if (database !== undefined && container === undefined)
      throw new UsageError('history takes a database and a container, or nothing.');
    const answer = await historyOf(client, operands, flags);
    if (json) {
      print(JSON.stringify(answer));
      return exitCodes.ok;
    }
    if (answer.events.length === 0) print('Nothing is on record.');
    for (const { occurredAt, life, type, actor, fromLedger, data } of answer.events) {
      const who = fromLedger === true ? 'known from the ledger' : `by ${actor}`;
      print(
        `${occurredAt}  ${id === undefined ? '' : `life ${life}  `}${type.padEnd(20)} ${who}  ${factsOf(data).join(' ')}`.trimEnd(),
      );
    }
    return exitCodes.ok;
  },
};

type HistoryAnswer = Pick<Answer<'history'>, 'events' | 'continuation'>;

async function historyOf(
  client: ManagementClient,
  operands: readonly string[],
  flags: FlagValues,
): Promise<HistoryAnswer> {
  const [database, , id] = operands;
  const rid = textFlag(flags, 'rid');
  if (database === undefined) return client.call<HistoryAnswer>('GET', '/history', { query: { rid } });
  const path = `${containerPath(operands)}/history`;
  const item = id === undefined ? {} : { id, partitionKey: partitionKey(flags) };
  const events: HistoryAnswer['events'][number][] = [];
  let answer: HistoryAnswer | undefined;
  for await (answer of pagesOf<HistoryAnswer>(client, path, { rid, ...item })) events.push(...answer.events);
  return { ...answer, events };
}

/** Not printed: named by the user, useless without the store, too long, or, for the ledger, printed as its writes. */
const UNTOLD: ReadonlySet<string> = new Set(['id', 'partitionKey', 'key', 'definition', 'ledger']);
/** In events, `null` means that time to live is off. */
const OFF: ReadonlySet<string> = new Set(['from', 'to', 'defaultTtl']);
/** Longer lists are only in the output of --json. */
const LISTED = 5;

/** An event's data in short form, with times as text. */
function factsOf(data: Readonly<Record<string, unknown>>, prefix = ''): string[] {
  return Object.entries(data).flatMap(([name, value]) => {
    if (UNTOLD.has(name)) return [];
    if (value === null) return OFF.has(name) ? [`${prefix}${name}=off`] : [];
    if (Array.isArray(value)) {
      const isShort = value.length <= LISTED && value.every((part) => typeof part === 'string');
      return isShort && value.length > 0 ? [`${prefix}${name}=${value.join(',')}`] : [];
    }
    if (typeof value === 'object') return factsOf(value as Readonly<Record<string, unknown>>, `${prefix}${name}.`);
    const isTime = typeof value === 'number' && name.endsWith('Ms');
    return [isTime ? `${prefix}${name.slice(0, -2)}=${isoTime(value)}` : `${prefix}${name}=${String(value)}`];
  });
}

export const explain: Command = {
  summary: 'Why an item is or is not there, at any instant.',
  operands: '<database> <container> <id>',
  operandCounts: [3, 3],
  flags: { ...itemFlags, ...at },
  run: async ({ client, operands, flags, json, print, stderr }) => {
    const answer = await client.call<Answer<'explanation'>>('GET', `${containerPath(operands)}/explain`, {
      query: {
        id: operands[2],
        partitionKey: partitionKey(flags),
        at: textFlag(flags, 'at'),
        rid: textFlag(flags, 'rid'),
      },
    });
    if (json) {
      print(JSON.stringify(answer));
      return exitCodes.ok;
    }
    print(answer.sentence);
    print(`state: ${answer.state}`);
    const ends = ['expiredAt', 'expiresAt', 'deletedAt', 'rule', 'arithmetic', 'recordedAt', 'lag'] as const;
    for (const name of [...ends, 'purgedAt', 'recoverableUntil'] as const) {
      const fact = answer[name];
      if (fact !== undefined) print(`${name}: ${fact}`);
    }
    const mayBeHeld = answer.state !== 'purged' && answer.state !== 'never-existed';
    if (mayBeHeld && answer.holds.length > 0) print(`holds: ${answer.holds.join(', ')}`);
    if (answer.state === 'never-existed') hintAtValues(flags, stderr);
    return exitCodes.ok;
  },
};

export const disappearances: Command = {
  summary: 'What left a container, when and why.',
  operands: '<database> <container>',
  operandCounts: [2, 2],
  flags: {
    ...periodFlags,
    cause: {
      type: 'string',
      placeholder: '<cause>',
      description: 'One of expired, deleted, container-deleted, erasure.',
    },
    format: {
      type: 'string',
      placeholder: '<format>',
      description: 'csv or ndjson: prints all rows in that format.',
    },
    limit: { type: 'string', placeholder: '<rows>', description: 'With --json: rows in a page, 100 by default.' },
    continuation: {
      type: 'string',
      placeholder: '<text>',
      description: 'With --json: continues after an earlier page; its continuation.',
    },
    ...ridFlag,
  },
  run: async (invocation) => {
    const { client, operands, flags, json, print, printExactly } = invocation;
    const path = `${containerPath(operands)}/disappearances`;
    const format = textFlag(flags, 'format');
    const query = Object.fromEntries(
      ['from', 'to', 'cause', 'continuation', 'rid'].map((name) => [name, textFlag(flags, name)]),
    );
    if (!json && (flags['limit'] !== undefined || flags['continuation'] !== undefined)) {
      throw new UsageError('--limit and --continuation need --json; without --json all rows are printed.');
    }
    if (format !== undefined) {
      const type = { csv: 'text/csv', ndjson: 'application/x-ndjson' }[format];
      if (type === undefined) throw new UsageError('--format is csv or ndjson.');
      for await (const line of client.lines('GET', path, { query, accept: type })) printExactly(line);
      return exitCodes.ok;
    }
    if (json) {
      print(JSON.stringify(await client.call('GET', path, { query: { ...query, limit: textFlag(flags, 'limit') } })));
      return exitCodes.ok;
    }
    return printRows(invocation, path, query);
  },
};

export const certificate: Command = {
  summary:
    'A certificate of disposal for an item whose content was erased; without an id, one line for each erased item.',
  operands: '<database> <container> [<id>]',
  operandCounts: [2, 3],
  flags: {
    ...itemFlags,
    life: {
      type: 'string',
      placeholder: '<number>',
      description: 'Which life of the item; the last one erased by default.',
    },
    ...periodFlags,
  },
  notes: 'Certificates are JSON: keep them in a file. Check one with epitaph verify certificate.',
  run: async ({ client, operands, flags, print }) => {
    const [, , id] = operands;
    const rid = textFlag(flags, 'rid');
    const [from, to, life] = ['from', 'to', 'life'].map((name) => textFlag(flags, name));
    if (id !== undefined) {
      if (from !== undefined || to !== undefined)
        throw new UsageError("--from and --to can't be used with the id of an item.");
      const query = { id, partitionKey: partitionKey(flags), life, rid };
      print(JSON.stringify(await client.call('GET', `${containerPath(operands)}/certificate`, { query })));
      return exitCodes.ok;
    }
    if (life !== undefined || flags['partition-key'] !== undefined) {
      throw new UsageError('--partition-key and --life need the id of an item.');
    }
    const sent = { query: { from, to, rid }, accept: 'application/x-ndjson' };
    for await (const line of client.lines('GET', `${containerPath(operands)}/certificates`, sent)) print(line);
    return exitCodes.ok;
  },
};

async function printRows(
  { client, print }: Invocation,
  path: string,
  query: Readonly<Record<string, string | undefined>>,
): Promise<number> {
  let rows = 0;
  for await (const line of client.lines('GET', path, { query, accept: 'application/x-ndjson' })) {
    const row = JSON.parse(line) as Answer<'disappearance'>;
    const content = row.purgedAt === null ? 'content not erased yet' : `erased ${row.purgedAt}`;
    const by = row.rule ?? row.actor;
    const why = by === null ? row.cause : `${row.cause} by ${by}`;
    print(
      `${row.at}  ${why}  ${JSON.stringify(row.id)} in ${JSON.stringify(row.partitionKey)}, life ${row.life}  ${content}`,
    );
    rows += 1;
  }
  if (rows === 0) print('Nothing is on record.');
  return exitCodes.ok;
}

export function containerPath([database, container]: readonly string[]): string {
  return `/dbs/${encodeURIComponent(database!)}/colls/${encodeURIComponent(container!)}`;
}

/** The partition key as the server expects it: a JSON array, or a pseudonym as in its answers. */
export function partitionKey(flags: FlagValues): string {
  const given = flags['partition-key'];
  const texts = Array.isArray(given) ? given.map(String) : [];
  if (texts.length === 0) throw new UsageError('Give the partition key of the item as well: --partition-key <value>.');
  const [only] = texts;
  return texts.length === 1 && (isKeyText(only!) || isPartitionPseudonym(only!)) ? only! : JSON.stringify(texts);
}

/** Warns when a key that is a number was given as text by mistake, because nothing would be found or held then. */
export function hintAtValues(flags: FlagValues, stderr: Invocation['stderr']): void {
  const key = partitionKey(flags);
  if (isPartitionPseudonym(key)) return;
  const texts = JSON.parse(key) as readonly unknown[];
  const scalars = texts.filter((text) => typeof text === 'string' && /^(-?\d+(\.\d+)?|true|false|null)$/.test(text));
  if (scalars.length === 0) return;
  const values = texts.map((text) => (scalars.includes(text) ? String(text) : JSON.stringify(text))).join(',');
  stderr.write(`The partition key was taken as a string. If it is not a string: --partition-key '[${values}]'\n`);
}
