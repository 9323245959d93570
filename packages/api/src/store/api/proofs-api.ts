import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { CertifiedFact, DisposalCertificate, Unproven } from '@epitaph/core/proof/certificate.ts';
import type { FactLeaf } from '@epitaph/core/proof/leaf.ts';
import type { PurgeRunCertificate, PurgeRunStatement } from '@epitaph/projections/proof/run-certificate.ts';
import type { ScanProgress } from './history-api.ts';

/** The tree of facts at a moment. */
export interface TreeSnapshot {
  /** The number of leaves. */
  readonly size: number;
  /** The log position up to which every fact is in the tree. */
  readonly position: number;
}

/** Erasures in a period, in milliseconds. It includes `fromMs` and excludes `toMs`. */
export interface CertifiedPeriod {
  readonly fromMs?: number | undefined;
  readonly toMs?: number | undefined;
  /** The tree in which they are proven; the present one by default. */
  readonly tree?: TreeSnapshot | undefined;
}

/** What the check of a whole log found. */
export interface LogVerification {
  readonly ok: boolean;
  /** The number of permanent facts that were read. */
  readonly facts: number;
  /** The root of the tree, base64, and a signed checkpoint of it. */
  readonly root: string;
  readonly checkpoint: string;
  /** The number of problems; `problems` has the first of them. */
  readonly count: number;
  readonly problems: readonly {
    readonly code: 'fact-differs' | 'facts-missing' | 'name-differs';
    readonly subject: string;
    readonly message: string;
  }[];
}

/**
 * Proofs of what is recorded.
 *
 * @throws Refusal not-supported from every method, for a store without a proof tree
 */
export interface ProofsApi {
  /** The public key that checkpoints are signed with, as a verifier key of C2SP's signed-note. */
  proofKey(): string;
  /** A signed checkpoint of the present tree, or of the tree when it had `size` leaves. */
  proofCheckpoint(size?: number): Promise<string>;
  /** Hashes, base64, which prove that the tree of one size is the beginning of the tree of another. */
  proofConsistency(from: number, to: number): Promise<string[]>;
  /** @throws Refusal item-not-found, not-erased */
  certificate(container: ContainerState, id: string, partitionKey: string, life?: number): Promise<DisposalCertificate>;
  /** The tree of facts as it is now, for proofs that must be of the same tree. */
  proofTree(): Promise<TreeSnapshot>;
  /**
   * The certificates of every life of a container that was erased in a period, in order of erasure, in pages. If the
   * record of an erasure is damaged, an entry says that there is no certificate.
   */
  certificates(
    container: ContainerState,
    period: CertifiedPeriod,
    signal?: AbortSignal,
  ): AsyncGenerator<readonly (DisposalCertificate | Unproven)[]>;
  /**
   * Everything recorded about a container itself, a few facts at a time. Each comes with its proof, or the reason why
   * it has none.
   */
  containerFacts(
    container: ContainerState,
    tree: TreeSnapshot,
    signal?: AbortSignal,
  ): AsyncGenerator<readonly (CertifiedFact | Unproven)[]>;
  /** Purge runs after a position of the log. `position` is where the next page begins, undefined after the last. */
  purgeRuns(
    after: number,
    limit: number,
    signal?: AbortSignal,
  ): Promise<{
    readonly runs: readonly PurgeRunStatement[];
    /** Those whose records in the log are damaged. */
    readonly unproven: readonly Unproven[];
    readonly position: number | undefined;
  }>;
  /**
   * The certificate of a purge run, followed by those of every life that it erased, in pages. If the record of an
   * erasure is damaged, an entry says that there is no certificate.
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
