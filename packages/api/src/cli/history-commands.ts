import { isPartitionPseudonym } from '@epitaph/core/item/pseudonym.ts';
import { textFlag, type Command, type Flags, type FlagValues, type Invocation } from './command.ts';
import { exitCodes, UsageError } from './exit-codes.ts';

export const ridFlag: Flags = {
  rid: { type: 'string', placeholder: '<rid>', description: 'The container of that resource id, deleted ones too.' },
};

export const partitionKeyFlag: Flags = {
  'partition-key': {
    type: 'string',
    multiple: true,
    placeholder: '<value>',
    description:
      'The item’s partition key: a text, or a JSON array such as [5] or ["a",null]; once a level. Or its pseudonym.',
  },
};

const itemFlags: Flags = { ...partitionKeyFlag, ...ridFlag };

export const periodFlags: Flags = {
  from: { type: 'string', placeholder: '<time>', description: 'From that instant on.' },
  to: { type: 'string', placeholder: '<time>', description: 'Before that instant.' },
};

const at: Flags = {
  at: { type: 'string', placeholder: '<time>', description: 'The instant asked about, ISO text; now by default.' },
};

interface HistoryAnswer {
  readonly events: readonly {
    readonly occurredAt: string;
    readonly life: number;
    readonly type: string;
    readonly actor?: string;
    readonly fromLedger?: boolean;
    readonly data: Readonly<Record<string, unknown>>;
  }[];
}

export const history: Command = {
  summary: 'Every recorded fact of an item, or of a container, oldest first.',
  operands: '[<database> <container> [<id>]]',
  operandCounts: [0, 3],
  flags: itemFlags,
  notes: 'Without operands: what was asked of the store as a whole, by whom.',
  run: async ({ client, operands, flags, json, print }) => {
    const [database, container, id] = operands;
    if (database !== undefined && container === undefined)
      throw new UsageError('history takes a database and a container, or nothing.');
    const answer = await client.call<HistoryAnswer>(
      'GET',
      database === undefined ? '/history' : `${containerPath(operands)}/history`,
      {
        query: { rid: textFlag(flags, 'rid'), ...(id === undefined ? {} : { id, partitionKey: partitionKey(flags) }) },
      },
    );
    if (json) {
      print(JSON.stringify(answer));
      return exitCodes.ok;
    }
    if (answer.events.length === 0) print('Nothing is on record.');
    for (const { occurredAt, life, type, actor, fromLedger, data } of answer.events) {
      const facts = Object.entries(data)
        .filter(
          ([name, value]) => name !== 'id' && name !== 'partitionKey' && name !== 'key' && typeof value !== 'object',
        )
        .map(([name, value]) => `${name}=${String(value)}`);
      const who = fromLedger === true ? 'known from the ledger' : `by ${actor}`;
      print(
        `${occurredAt}  ${id === undefined ? '' : `life ${life}  `}${type.padEnd(20)} ${who}  ${facts.join(' ')}`.trimEnd(),
      );
    }
    return exitCodes.ok;
  },
};

interface ExplainAnswer {
  readonly state: string;
  readonly sentence: string;
  readonly holds: readonly string[];
  readonly [fact: string]: string | readonly string[] | undefined;
}

export const explain: Command = {
  summary: 'Why an item is or is not there, at any instant.',
  operands: '<database> <container> <id>',
  operandCounts: [3, 3],
  flags: { ...itemFlags, ...at },
  run: async ({ client, operands, flags, json, print }) => {
    const answer = await client.call<ExplainAnswer>('GET', `${containerPath(operands)}/explain`, {
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
    const ends = ['expiredAt', 'expiresAt', 'deletedAt', 'rule', 'arithmetic', 'recordedAt', 'lag'];
    for (const name of [...ends, 'purgedAt', 'recoverableUntil']) {
      const fact = answer[name];
      if (typeof fact === 'string') print(`${name}: ${fact}`);
    }
    if (answer.holds.length > 0) print(`holds: ${answer.holds.join(', ')}`);
    return exitCodes.ok;
  },
};

interface DisappearanceAnswer {
  readonly id: string;
  readonly partitionKey: unknown;
  readonly life: number;
  readonly cause: string;
  readonly at: string;
  readonly purgedAt: string | null;
  readonly actor: string | null;
  readonly rule: string | null;
}

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
      description: 'csv or ndjson: all rows, to be kept.',
    },
    limit: { type: 'string', placeholder: '<rows>', description: 'With --json: rows of a page, 100 by default.' },
    continuation: { type: 'string', placeholder: '<text>', description: 'Goes on where a page ended.' },
    ...ridFlag,
  },
  run: async (invocation) => {
    const { client, operands, flags, json, print } = invocation;
    const path = `${containerPath(operands)}/disappearances`;
    const format = textFlag(flags, 'format');
    const query = Object.fromEntries(
      ['from', 'to', 'cause', 'continuation', 'rid'].map((name) => [name, textFlag(flags, name)]),
    );
    if (format !== undefined) {
      const type = { csv: 'text/csv', ndjson: 'application/x-ndjson' }[format];
      if (type === undefined) throw new UsageError('--format is csv or ndjson.');
      for await (const line of client.lines('GET', path, { query, accept: type })) print(line);
      return exitCodes.ok;
    }
    if (json) {
      print(JSON.stringify(await client.call('GET', path, { query: { ...query, limit: textFlag(flags, 'limit') } })));
      return exitCodes.ok;
    }
    return printRows(invocation, path, query);
  },
};

async function printRows(
  { client, print }: Invocation,
  path: string,
  query: Readonly<Record<string, string | undefined>>,
): Promise<number> {
  let rows = 0;
  for await (const line of client.lines('GET', path, { query, accept: 'application/x-ndjson' })) {
    const row = JSON.parse(line) as DisappearanceAnswer;
    const content = row.purgedAt === null ? 'content not erased yet' : `erased ${row.purgedAt}`;
    const by = row.rule ?? row.actor;
    const why = by === null ? row.cause : `${row.cause} by ${by}`;
    print(
      `${row.at}  ${why}  ${JSON.stringify(row.id)} in ${JSON.stringify(row.partitionKey)}, life ${row.life}  ${content}`,
    );
    rows += 1;
  }
  if (rows === 0) print('Nothing left.');
  return exitCodes.ok;
}

export function containerPath([database, container]: readonly string[]): string {
  return `/dbs/${encodeURIComponent(database!)}/colls/${encodeURIComponent(container!)}`;
}

/** The partition key as the server wants it: a JSON array, or a pseudonym as its answers show it. */
export function partitionKey(flags: FlagValues): string {
  const given = flags['partition-key'];
  const texts = Array.isArray(given) ? given.map(String) : [];
  if (texts.length === 0) throw new UsageError('An item is named by its id and --partition-key.');
  const [only] = texts;
  return texts.length === 1 && (isJsonArray(only!) || isPartitionPseudonym(only!)) ? only! : JSON.stringify(texts);
}

function isJsonArray(text: string): boolean {
  try {
    return Array.isArray(JSON.parse(text));
  } catch {
    return false;
  }
}
