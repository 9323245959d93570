import { z } from 'zod';
import { throughputSchema } from '@epitaph/core/throughput/throughput.ts';
import { replayVerdicts } from '@epitaph/core/history/replay.ts';
import { CERTIFICATE_FORMAT, UNPROVEN_FORMAT } from '@epitaph/core/proof/certificate.ts';
import { RUN_CERTIFICATE_FORMAT } from '@epitaph/projections/proof/run-certificate.ts';
import { requestUnitKinds } from '../request-units/request-units.ts';
import { problemCodes } from './problems.ts';

/**
 * The schemas of the answers, from which the OpenAPI document is made. The answers themselves are made in shapes.ts. The tests of the
 * management plane check each answer against its schema here.
 */
export const namedAnswers = new Map<z.ZodType, string>();

function named<Schema extends z.ZodType>(id: string, schema: Schema): Schema {
  namedAnswers.set(schema, id);
  return schema;
}

const iso = z.string().meta({ format: 'date-time', examples: ['2026-11-21T10:00:00.000Z'] });
const milliseconds = z.int().meta({ description: 'Milliseconds since 1970.' });
const duration = z.string().meta({ format: 'duration', examples: ['PT1.5S'] });
const count = z.int().min(0);
/** A duration or an age in milliseconds. */
const span = z.number().min(0);

/** A time as two properties: `name` as ISO text and `nameMs` in milliseconds. */
const time = <Name extends string>(name: Name) => timeOf(name, iso, milliseconds);
const timeIfAny = <Name extends string>(name: Name) => timeOf(name, iso.optional(), milliseconds.optional());
const timeOrNull = <Name extends string>(name: Name) => timeOf(name, iso.nullable(), milliseconds.nullable());

function timeOf<Name extends string, Iso extends z.ZodType, Ms extends z.ZodType>(name: Name, text: Iso, number: Ms) {
  // TypeScript does not infer the names of computed properties.
  return { [name]: text, [`${name}Ms`]: number } as Record<Name, Iso> & Record<`${Name}Ms`, Ms>;
}

const cause = z.enum(['expired', 'deleted', 'container-deleted', 'erasure']);
const rule = z.enum(['container-default', 'item-ttl']);
const defaultTtl = z.int().nullable();
const holdScope = z.enum(['container', 'partition-key', 'items', 'query']);
/** The key's components, or a pseudonym if the container does not keep partition keys. */
const partitionKey = z.union([z.array(z.unknown()), z.string()]);

export const problem = named(
  'Problem',
  z.strictObject({
    type: z.string(),
    title: z.string(),
    status: z.int(),
    detail: z.string(),
    code: z.enum(problemCodes).meta({ description: 'Stable; docs/errors.md says what each means.' }),
    instance: z.string().meta({ description: "Finds the request in the server's log." }),
    errors: z.array(z.strictObject({ path: z.string(), message: z.string() })).optional(),
    holds: z
      .array(z.strictObject({ id: z.string(), reason: z.string(), placedBy: z.string(), placedAt: iso }))
      .optional()
      .meta({ description: 'With `held`: the holds that forbid the erasure.' }),
    floorUntil: iso.nullable().optional(),
    holdCount: count.optional(),
    possibleFrom: iso.nullable().optional(),
    erasedLives: count.optional(),
  }),
);

const container = named(
  'Container',
  z.strictObject({ rid: z.string(), name: z.string(), ...time('createdAt'), ...timeIfAny('deletedAt') }),
);

export const live = z.strictObject({ status: z.literal('live') });
export const ready = z.strictObject({ status: z.literal('ready') });
export const notReady = z.strictObject({ status: z.literal('not-ready'), reasons: z.array(z.string()) });

export const history = named(
  'History',
  z.strictObject({
    id: z.string().optional(),
    partitionKey: partitionKey.optional(),
    container,
    events: z.array(
      z.strictObject({
        life: count,
        revision: count.optional(),
        type: z.string(),
        ...time('occurredAt'),
        actor: z.string().optional(),
        position: count.optional(),
        eventId: z.string().optional(),
        correlationId: z.string().optional(),
        causationId: z.string().optional().meta({
          description: 'Id of the event that stored the script which made this change; absent if no script did.',
        }),
        data: z.record(z.string(), z.unknown()).meta({ description: "The event's facts; never content." }),
        fromLedger: z.boolean().optional(),
      }),
    ),
    continuation: z.string().optional(),
  }),
);

export const storeHistory = named(
  'StoreHistory',
  z.strictObject({
    events: z.array(
      z.strictObject({
        type: z.string(),
        ...time('occurredAt'),
        actor: z.string(),
        position: count,
        eventId: z.string(),
        correlationId: z.string(),
        data: z.record(z.string(), z.unknown()),
      }),
    ),
  }),
);

const remains = z.strictObject({
  sealedBytes: count.meta({
    description: 'Bytes of sealed bodies that the log still had; no key opens them any more.',
  }),
  removedBy: z.enum(['truncation', 'scavenge']),
});

export const explanation = named(
  'Explanation',
  z.strictObject({
    state: z.enum(['live', 'expired', 'purged', 'deleted', 'never-existed']),
    sentence: z.string(),
    id: z.string(),
    partitionKey,
    container,
    ...time('at'),
    life: count.optional(),
    lastWrite: z.strictObject({ ...time('at'), ts: z.int(), ttl: z.int().nullable() }).optional(),
    ...timeIfAny('expiredAt'),
    ...timeIfAny('expiresAt'),
    ...timeIfAny('deletedAt'),
    renamedTo: z.strictObject({ id: z.string(), life: count }).optional().meta({
      description:
        'For an item that was replaced under another id: what continues it. The id is a pseudonym if the container keeps no ids.',
    }),
    ...timeIfAny('containerDeletedAt'),
    rule: rule.optional(),
    arithmetic: z.string().optional(),
    policy: z
      .strictObject({
        version: z.int(),
        defaultTtl,
        ...time('since'),
        setBy: z.string(),
        reason: z.string().optional(),
      })
      .optional(),
    ...timeIfAny('recordedAt'),
    ...timeIfAny('purgedAt'),
    remains: remains.optional(),
    erasure: z.strictObject({ requestedBy: z.string(), reason: z.string(), ...time('requestedAt') }).optional(),
    ...timeIfAny('recoverableUntil'),
    lag: duration.optional(),
    lagMs: z.number().optional(),
    holds: z.array(z.string()),
    ...timeIfAny('contentKeptUntil'),
  }),
);

export const disappearance = named(
  'Disappearance',
  z.strictObject({
    id: z.string(),
    partitionKey,
    life: count,
    cause,
    ...time('at'),
    ...time('recordedAt'),
    ...timeOrNull('purgedAt'),
    actor: z.string().nullable(),
    rule: rule.nullable(),
    ttl: z.int().nullable(),
    policyVersion: z.int().nullable(),
    position: count,
  }),
);
export const disappearances = z.strictObject({
  container,
  disappearances: z.array(disappearance),
  continuation: z.string().optional(),
});

const consumption = z.strictObject({ operations: count, requestUnits: z.number(), throttled: count });
export const requestUnits = named(
  'RequestUnits',
  z.strictObject({
    container,
    budget: z.enum(['container', 'database', 'none']),
    serverless: z.boolean(),
    throughput: throughputSchema,
    available: z.number().nullable(),
    leftOver: z.number().nullable(),
    consumed: z.strictObject(Object.fromEntries(requestUnitKinds.map((kind) => [kind, consumption]))),
  }),
);

const policy = named(
  'Policy',
  z.strictObject({
    version: z.int(),
    defaultTtl,
    ...time('from'),
    setBy: z.string(),
    ...time('recordedAt'),
    reason: z.string().optional(),
  }),
);
const brake = z.strictObject({ maxItems: count.optional(), maxShare: z.number().optional() });
export const policies = named(
  'Policies',
  z.strictObject({
    container,
    current: policy,
    scheduled: policy.nullable(),
    past: z.array(policy),
    continuation: z.string().optional(),
    brake: brake.nullable(),
    policyGraceSeconds: count,
  }),
);
export const policyGrace = z.strictObject({ container, policyGraceSeconds: count });

export const preview = named(
  'Preview',
  z.strictObject({
    container,
    from: defaultTtl,
    to: defaultTtl,
    ...time('effectiveFrom'),
    items: count,
    atOnce: z.strictObject({
      items: count,
      oldestTs: z.int().nullable(),
      oldest: iso.nullable(),
      ...time('erasedFrom'),
      sample: z.array(z.strictObject({ id: z.string(), partitionKey, ts: z.int(), ttl: z.int().nullable() })),
    }),
    later: z.array(z.strictObject({ withinSeconds: count.nullable(), until: iso.nullable(), items: count })),
    never: count,
    kept: z.strictObject({
      floorSeconds: z.number(),
      byFloor: count,
      byHolds: z.strictObject({ atLeast: count, atMost: count }).meta({
        description: 'Both are equal, unless there are too many items, and too many names in holds, to look at.',
      }),
      holds: z.array(z.strictObject({ holdId: z.string(), scope: holdScope })),
      moreHolds: count
        .optional()
        .meta({ description: 'Number of further holds; absent if there are none. The list of holds has all.' }),
    }),
    inertTtls: count,
    unreadableTtls: count,
    brake: brake.nullable(),
  }),
);

export const hold = named(
  'Hold',
  z.strictObject({
    id: z.string(),
    state: z.enum(['standing', 'released']),
    scope: holdScope,
    covers: z
      .array(z.string())
      .optional()
      .meta({ description: 'Keyed hashes of items or lives, or the prefix of those of all items of a partition key.' }),
    count: count.optional(),
    reason: z.string(),
    tooLateFor: count.meta({ description: 'Lives in its scope that were erased before the hold was placed.' }),
    placedBy: z.string(),
    ...time('placedAt'),
    released: z.strictObject({ by: z.string(), reason: z.string(), ...time('at') }).optional(),
  }),
);
export const holds = z.strictObject({ container, holds: z.array(hold), continuation: z.string().optional() });
export const retention = named(
  'Retention',
  z.strictObject({ container, floorSeconds: count, recoveryWindowSeconds: count, policyGraceSeconds: count }),
);
export const erasure = named(
  'Erasure',
  z.strictObject({
    container,
    id: z.string(),
    partitionKey,
    position: count,
    erasedLives: count,
    alreadyErasedLives: count,
  }),
);
export const recovered = named(
  'RecoveredItem',
  z.strictObject({
    container,
    id: z.string(),
    partitionKey,
    life: count,
    fromLife: count,
    ts: z.int(),
    position: count,
    ...timeOrNull('expiresAt'),
  }),
);
export const recoveredPolicy = named(
  'RecoveredPolicy',
  z.strictObject({
    container,
    policyVersion: z.int(),
    recovered: count,
    writtenSince: count,
    uniqueKeyTaken: count,
    erased: count,
    unreadable: count,
  }),
);
export const recoveryProgress = z.strictObject({ done: count, total: count });

export const scanProgress = named('ScanProgress', z.strictObject({ position: count, headPosition: count }));

export const difference = named(
  'ReplayDifference',
  z.strictObject({
    id: z.string(),
    partitionKey,
    life: count,
    verdict: z.enum(replayVerdicts),
    ...timeOrNull('leftAt'),
    ...timeOrNull('wouldLeaveAt'),
  }),
);
export const replay = named(
  'Replay',
  z.strictObject({
    container,
    ...time('replayedUpTo'),
    lives: count,
    counts: z.strictObject(Object.fromEntries(replayVerdicts.map((verdict) => [verdict, count]))),
    sample: z.array(difference),
  }),
);
export const itemAsOf = named(
  'ItemAsOf',
  z.strictObject({
    id: z.string(),
    partitionKey,
    life: count,
    /** Absent, as is the time, if the life was erased and the record of its erasure had no room for this write. */
    ttl: z.int().nullable().optional(),
    ...timeIfAny('writtenAt'),
  }),
);
export const asOf = named('AsOf', z.strictObject({ container, ...time('at'), items: count }));
/** The last line of a scan that is answered as lines. */
export const summaryOf = (schema: z.ZodType) => z.strictObject({ summary: schema });

export const content = named(
  'PastContent',
  z.strictObject({
    container,
    id: z.string(),
    partitionKey,
    life: count,
    revision: count,
    etag: z.string(),
    ...time('writtenAt'),
    document: z.record(z.string(), z.unknown()),
  }),
);

export const proofKey = z.strictObject({
  publicKey: z.string().meta({ description: 'A verifier key in the format of C2SP signed-note.' }),
});
export const consistency = z.strictObject({ from: count, to: count, hashes: z.array(z.string()) });
export const fact = named(
  'Fact',
  z.strictObject({
    stream: z.string(),
    revision: count,
    id: z.string(),
    type: z.string(),
    version: z.int(),
    occurredAtMs: milliseconds,
    actor: z.string(),
    correlationId: z.string(),
    causationId: z.string(),
    data: z.record(z.string(), z.unknown()),
  }),
);
export const certificate = named(
  'DisposalCertificate',
  z.strictObject({
    format: z.literal(CERTIFICATE_FORMAT),
    statement: z.strictObject({
      containerRid: z.string(),
      stream: z.string(),
      life: count,
      writes: count,
      firstWriteAtMs: milliseconds,
      lastWriteAtMs: milliseconds,
      ledgerSha256: z.string(),
      cause,
      endedAtMs: milliseconds,
      endedBy: z.string(),
      renamedTo: z.string().optional().meta({
        description: 'For an item that was replaced under another id: the stream of the life that continues it.',
      }),
      expiry: z
        .strictObject({
          rule,
          ts: z.int(),
          ttl: z.int(),
          policyVersion: z.int(),
          byPolicyStart: z.boolean(),
        })
        .optional(),
      erasedAtMs: milliseconds,
      erasedBy: z.string(),
      erasedHow: z.literal('key-destroyed'),
      key: z.int(),
      recoverableUntilMs: milliseconds.nullable(),
      checks: z.strictObject({ holds: z.literal(0), floorSeconds: count, graceSeconds: count }).optional(),
      remains: remains.optional(),
    }),
    facts: z.array(z.strictObject({ fact, leaf: count, path: z.array(z.string()) })),
    checkpoint: z.string(),
  }),
);
export const unproven = named(
  'Unproven',
  z
    .strictObject({
      format: z.literal(UNPROVEN_FORMAT),
      stream: z.string(),
      erasedAtMs: milliseconds.optional(),
      revision: count.optional(),
      reason: z.string(),
    })
    .meta({ description: 'Stands in the place of a proof if the event log is damaged there.' }),
);
const purgeRunStatement = named(
  'PurgeRun',
  z.strictObject({
    id: z.string(),
    startedAtMs: milliseconds,
    effectiveNowMs: milliseconds,
    upToPosition: count,
    completedAtMs: milliseconds.nullable(),
    expired: count.nullable(),
    purged: count.nullable(),
    heldBack: count.nullable(),
  }),
);
export const purgeRuns = z.strictObject({
  runs: z.array(purgeRunStatement),
  unproven: z
    .array(unproven)
    .optional()
    .meta({ description: 'Runs whose record is damaged; absent if there are none.' }),
  next: count.optional().meta({ description: 'The value of `after` for the next page; absent on the last page.' }),
});
const certifiedFacts = z.array(z.strictObject({ fact, leaf: count, path: z.array(z.string()) }));
export const runCertificate = named(
  'PurgeRunCertificate',
  z.strictObject({
    format: z.literal(RUN_CERTIFICATE_FORMAT),
    statement: purgeRunStatement,
    facts: certifiedFacts,
    checkpoint: z.string(),
  }),
);
const found = z.array(z.strictObject({ code: z.string(), subject: z.string(), message: z.string() }));
export const logVerification = named(
  'LogVerification',
  z.strictObject({
    ok: z.boolean(),
    facts: count,
    root: z.string(),
    checkpoint: z.string(),
    count,
    problems: found,
  }),
);

export const purge = named(
  'Purge',
  z.strictObject({
    state: z.enum(['running', 'idle', 'paused', 'held-by-clock', 'waiting-for-request-units']),
    byThisNode: z.boolean().meta({
      description:
        'False on a node that leaves the purge to others. It does not know their rate and what they hold back.',
    }),
    overdueItems: count,
    waitingForRequestUnits: count,
    oldestOverdueMs: span.nullable(),
    oldestOverdue: duration.nullable(),
    awaitingErasure: count,
    inGrace: count,
    heldBack: count,
    itemsPerSecond: z.number(),
    millisecondsToDrain: span.nullable(),
    timeToDrain: duration.nullable(),
    purgedTotal: count,
    faults: count.meta({ description: 'Since the start of the server; its log has each of them.' }),
    run: z.strictObject({ id: z.string(), ...time('startedAt'), upToPosition: count }).nullable(),
    scavenge: z
      .strictObject({
        livesWaiting: count,
        last: z
          .strictObject({
            id: z.string(),
            state: z.enum(['running', 'done', 'failed', 'unknown']),
            ...time('startedAt'),
          })
          .nullable(),
        everySeconds: count.nullable(),
        ...timeOrNull('nextAt'),
      })
      .nullable(),
  }),
);
export const copyProgress = z.strictObject({
  phase: z.enum(['log', 'vault', 'digest']),
  done: count,
  total: count,
});
const ledgerPlace = z.string().meta({ description: 'Number of lines and hash of the last line: 12:<base64url>.' });
export const takenBackup = named(
  'TakenBackup',
  z.strictObject({
    id: z.string(),
    folder: z.string(),
    parts: z.array(z.enum(['log', 'vault'])).meta({
      description:
        'The folders in the backup. There is no log if the log is on a server: back it up with the tools of that server.',
    }),
    ...time('takenAt'),
    logPosition: count,
    ...time('vaultLapsesAt'),
    bytes: count,
    ledgerHead: ledgerPlace,
  }),
);
export const backups = z.strictObject({
  backups: z.array(
    z.strictObject({
      id: z.string(),
      ...time('startedAt'),
      by: z.string(),
      state: z.enum(['completed', 'failed', 'cancelled', 'unfinished']),
      ...time('vaultLapsesAt'),
      logPosition: count.nullable(),
      bytes: count.nullable(),
    }),
  ),
});
export const ledgerHead = z.strictObject({ head: ledgerPlace });
export const purgePass = z.strictObject({ expired: count, purged: count, heldBack: count, status: purge });

export const rebuild = named(
  'Rebuild',
  z.strictObject({
    state: z.enum(['running', 'comparing', 'done', 'cancelled', 'failed', 'interrupted']),
    version: z.int(),
    resumedFrom: count,
    position: count,
    headPosition: count,
    eventsPerSecond: z.number(),
    millisecondsLeft: span.nullable(),
    ...timeOrNull('startedAt'),
    differences: count.optional(),
    differing: z
      .array(
        z.discriminatedUnion('part', [
          z.strictObject({ part: z.literal('catalog'), itemsBefore: count, itemsRebuilt: count }),
          z.strictObject({
            part: z.literal('container'),
            database: z.string(),
            container: z.string(),
            rid: z.string(),
            itemsBefore: count,
            itemsRebuilt: count,
          }),
        ]),
      )
      .optional(),
    error: z.string().optional(),
  }),
);
export const projections = z.strictObject({
  projections: z.array(
    z.strictObject({
      name: z.string(),
      byThisNode: z
        .boolean()
        .meta({ description: 'False on a node that follows another one; request a rebuild from that node.' }),
      version: z.int(),
      position: count,
      headPosition: count,
      lagEvents: count,
      state: z.enum(['live', 'catching-up', 'failed']),
      error: z.string().optional(),
      rebuild: rebuild.nullable(),
    }),
  ),
});

export const fsckProgress = z.strictObject({ done: count, total: count });
export const fsck = named(
  'FsckReport',
  z.strictObject({
    ok: z.boolean(),
    events: count,
    items: count,
    lives: count,
    problems: found,
    durationMs: span,
  }),
);

export const clock = named(
  'Clock',
  z.strictObject({
    ...time('now'),
    kind: z.enum(['system', 'manual']),
    held: z.string().optional().meta({
      description:
        'Present while the clock is held, so that nothing is written, expires or is erased until the clock is right again or is confirmed: the reason.',
    }),
    standsStillFor: duration.optional().meta({
      description:
        'How long the time stands still, and nothing expires, until the system clock reaches the time shown. Absent if the time advances.',
    }),
    standsStillForMs: span.optional(),
  }),
);

/** The OpenAPI document. Its content has a specification of its own, so it is not described further. */
export const openApi = z.looseObject({ openapi: z.literal('3.1.0') });
