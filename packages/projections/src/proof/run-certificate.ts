import { type CertifiedFact, type Verdict, verifyStatement } from '@epitaph/core/proof/certificate.ts';
import type { CheckpointCryptography, VerifierKey } from '@epitaph/core/proof/checkpoint.ts';
import type { FactLeaf } from '@epitaph/core/proof/leaf.ts';
import { purgeRunCompletedSchema, purgeRunStartedSchema, purgeRunStream, isPurgeRunStream } from '../purge/events.ts';

export const RUN_CERTIFICATE_FORMAT = 'epitaph.certificate-of-purge-run/1';

/** What is recorded of a purge run. Times in milliseconds. */
export interface PurgeRunStatement {
  readonly id: string;
  readonly startedAtMs: number;
  /** The time by which its candidates were overdue. */
  readonly effectiveNowMs: number;
  /** Only what was in the log up to this position was a candidate. */
  readonly upToPosition: number;
  /** Null for a run that is not completed. */
  readonly completedAtMs: number | null;
  /** As the run itself counted since its last start: a run that a crash interrupted counts from its resumption. */
  readonly expired: number | null;
  readonly purged: number | null;
  readonly heldBack: number | null;
}

/** A purge run with the proof that it is recorded. What it erased is certified separately for each life. */
export interface PurgeRunCertificate {
  readonly format: typeof RUN_CERTIFICATE_FORMAT;
  readonly statement: PurgeRunStatement;
  readonly facts: readonly CertifiedFact[];
  readonly checkpoint: string;
}

/** @returns undefined if the facts are not those of one run, from its start on */
export function purgeRunStatement(
  facts: readonly Pick<FactLeaf, 'stream' | 'type' | 'occurredAtMs' | 'data'>[],
): PurgeRunStatement | undefined {
  const [started, completed, ...others] = facts;
  if (others.length > 0) return undefined;
  if (started?.type !== 'PurgeRunStarted' || !isPurgeRunStream(started.stream)) return undefined;
  if (completed !== undefined && (completed.type !== 'PurgeRunCompleted' || completed.stream !== started.stream)) {
    return undefined;
  }
  const start = purgeRunStartedSchema.safeParse(started.data).data;
  const end = completed && purgeRunCompletedSchema.safeParse(completed.data).data;
  if (start === undefined || (completed !== undefined && end === undefined)) return undefined;
  return {
    id: started.stream.slice(purgeRunStream('').length),
    startedAtMs: started.occurredAtMs,
    effectiveNowMs: start.effectiveNowMs,
    upToPosition: start.upToPosition,
    completedAtMs: completed?.occurredAtMs ?? null,
    expired: end?.expired ?? null,
    purged: end?.purged ?? null,
    heldBack: end?.heldBack ?? null,
  };
}

/** Checks the certificate of a run with nothing but a public key. */
export function verifyRunCertificate(
  certificate: PurgeRunCertificate,
  key: VerifierKey,
  cryptography: CheckpointCryptography,
): Verdict<PurgeRunStatement> {
  return verifyStatement(certificate, key, cryptography, {
    derive: purgeRunStatement,
    otherwise: 'Its facts are not those of a purge run.',
  });
}
