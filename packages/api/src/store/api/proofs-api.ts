import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { CertifiedFact, DisposalCertificate, Unproven } from '@epitaph/core/proof/certificate.ts';
import type { FactLeaf } from '@epitaph/core/proof/leaf.ts';
import type { PurgeRunCertificate, PurgeRunStatement } from '@epitaph/projections/proof/run-certificate.ts';
import type { ScanProgress } from './history-api.ts';

/** The tree of facts at a moment. */
export interface TreeSnapshot {
  /** Leaves. */
  readonly size: number;
  /** The place in the log up to which every fact is in it. */
  readonly position: number;
}

/** Erasures from one instant on and before another, in milliseconds. */
export interface CertifiedPeriod {
  readonly fromMs?: number | undefined;
  readonly toMs?: number | undefined;
  /** The tree that they are proven in; that of now by default. */
  readonly tree?: TreeSnapshot | undefined;
}

/** What the check of a whole log found. */
export interface LogVerification {
  readonly ok: boolean;
  /** Permanent facts that were read. */
  readonly facts: number;
  /** Root of the tree, base64, and a signed checkpoint of it. */
  readonly root: string;
  readonly checkpoint: string;
  /** How many problems there are; `problems` has the first of them. */
  readonly count: number;
  readonly problems: readonly {
    readonly code: 'fact-differs' | 'facts-missing' | 'name-differs';
    readonly subject: string;
    readonly message: string;
  }[];
}

/**
 * Proofs of what is on record.
 *
 * @throws Refusal not-supported from all of it, for a store that keeps no proof tree
 */
export interface ProofsApi {
  /** The public key that checkpoints are signed with, as a verifier key of C2SP's signed-note. */
  proofKey(): string;
  /** A signed checkpoint, of the tree as it is or as it was with so many leaves. */
  proofCheckpoint(size?: number): Promise<string>;
  /** Hashes, base64, that prove the tree of one size to be the beginning of that of another. */
  proofConsistency(from: number, to: number): Promise<string[]>;
  /** @throws Refusal item-not-found, not-erased */
  certificate(container: ContainerState, id: string, partitionKey: string, life?: number): Promise<DisposalCertificate>;
  /** The tree of facts as it is now, for proofs that are to go together. */
  proofTree(): Promise<TreeSnapshot>;
  /**
   * The certificates of every life of a container that was erased in a period, in order of erasure, in pages. Of one whose
   * record is damaged it says that there is none.
   */
  certificates(
    container: ContainerState,
    period: CertifiedPeriod,
    signal?: AbortSignal,
  ): AsyncGenerator<readonly (DisposalCertificate | Unproven)[]>;
  /** Everything on record of a container itself, each fact with its proof, or why it has none, a few at a time. */
  containerFacts(
    container: ContainerState,
    tree: TreeSnapshot,
    signal?: AbortSignal,
  ): AsyncGenerator<readonly (CertifiedFact | Unproven)[]>;
  /** Purge runs after a position of the log; `position` is where the next page goes on, undefined after the last. */
  purgeRuns(
    after: number,
    limit: number,
    signal?: AbortSignal,
  ): Promise<{
    readonly runs: readonly PurgeRunStatement[];
    /** Those of which the log has a record that is damaged. */
    readonly unproven: readonly Unproven[];
    readonly position: number | undefined;
  }>;
  /**
   * The certificate of a purge run, and then those of every life that it erased, in pages. Of one whose record is damaged it
   * says that there is none.
   *
   * @throws Refusal purge-run-not-found, from the first page
   */
  runCertificates(
    runId: string,
    signal?: AbortSignal,
  ): AsyncGenerator<readonly (PurgeRunCertificate | DisposalCertificate | Unproven)[]>;
  /** Every permanent fact as it is in the tree, in order, in pages. */
  facts(signal?: AbortSignal): AsyncGenerator<readonly FactLeaf[]>;
  verifyLog(onProgress?: (progress: ScanProgress) => void, signal?: AbortSignal): Promise<LogVerification>;
}
