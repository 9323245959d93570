import { decodeLedger } from '../item/ledger.ts';
import { itemDeletedSchema, itemExpiredSchema, type ItemPurged, itemPurgedSchema } from '../item/events.ts';
import { parseItemStream } from '../item/stream-name.ts';
import {
  openCheckpoint,
  fromBase64,
  hexOf,
  type Checkpoint,
  type CheckpointCryptography,
  type VerifierKey,
} from './checkpoint.ts';
import { canonicalJson } from '../canonical-json.ts';
import type { FactLeaf } from './leaf.ts';
import { leafHash, rootOfProof } from './merkle-tree.ts';

export const CERTIFICATE_FORMAT = 'epitaph.certificate-of-disposal/2';
/**
 * The first format: for a life that left with its partition key, the statement had the time and the actor of the life's
 * own record.
 */
const FIRST_FORMAT = 'epitaph.certificate-of-disposal/1';

// The schemas of facts of lives as they are in leaves, without names. Made once, because there are as many certificates as lives.
const purgedLeafSchema = itemPurgedSchema.omit({ id: true, partitionKey: true });
const expiredLeafSchema = itemExpiredSchema.omit({ id: true, partitionKey: true });
const deletedLeafSchema = itemDeletedSchema.pick({ withPartitionKey: true, renamedTo: true });

/** What a certificate states of a life whose content was erased. Everything follows from the facts. Times in milliseconds. */
export interface DisposalStatement {
  readonly containerRid: string;
  /** Identifies the item by a keyed hash. Contains no content, no id and no partition key. */
  readonly stream: string;
  readonly life: number;
  /** How many writes the life had. The next two are the times of the first and the last one. */
  readonly writes: number;
  readonly firstWriteAtMs: number;
  readonly lastWriteAtMs: number;
  /** SHA-256 of the ledger as canonical JSON, hexadecimal. Commits to what was written without revealing it. */
  readonly ledgerSha256: string;
  readonly cause: 'expired' | 'deleted' | 'container-deleted' | 'erasure';
  /** When the life ended: its deadline, or the request that deleted it. For any other cause, the erasure itself. */
  readonly endedAtMs: number;
  readonly endedBy: string;
  /**
   * For an item that was replaced under another id: the stream of the life that continues it, with content of its own.
   * Absent in older records.
   */
  readonly renamedTo?: string;
  /** For an expired life: the rule, the arithmetic and the policy. */
  readonly expiry?: {
    readonly rule: 'container-default' | 'item-ttl';
    readonly ts: number;
    readonly ttl: number;
    readonly policyVersion: number;
    readonly byPolicyStart: boolean;
  };
  readonly erasedAtMs: number;
  readonly erasedBy: string;
  readonly erasedHow: 'key-destroyed';
  readonly key: number;
  /** Until when an older copy of the key vault could still open the content. Null if there is no such copy. */
  readonly recoverableUntilMs: number | null;
  /** What was checked before the key was destroyed. Absent in older records. */
  readonly checks?: NonNullable<ItemPurged['checks']>;
  /** What was left in the log, unreadable, and what removes it. Absent in older records. */
  readonly remains?: NonNullable<ItemPurged['remains']>;
}

/** A fact with the proof that it is recorded. Hashes are base64. */
export interface CertifiedFact {
  readonly fact: FactLeaf;
  readonly leaf: number;
  readonly path: readonly string[];
}

/** A certificate of disposal. It has no content, and nothing that identifies a person to somebody who does not know the item. */
export interface DisposalCertificate {
  readonly format: typeof CERTIFICATE_FORMAT | typeof FIRST_FORMAT;
  readonly statement: DisposalStatement;
  /** The facts that the statement follows from, oldest first. The last one is the erasure. */
  readonly facts: readonly CertifiedFact[];
  /** A signed checkpoint of the tree that the facts are proven to be in. */
  readonly checkpoint: string;
}

export const UNPROVEN_FORMAT = 'epitaph.unproven/1';

/** Stands in a list in place of a proof that can't be made because the log is damaged, so that the list shows what it lacks. */
export interface Unproven {
  readonly format: typeof UNPROVEN_FORMAT;
  readonly stream: string;
  /** For an erasure: its time, in milliseconds. */
  readonly erasedAtMs?: number;
  /** For a fact of a container: its revision in the stream. */
  readonly revision?: number;
  readonly reason: string;
}

export const isUnproven = (line: unknown): line is Unproven =>
  (line as { readonly format?: unknown } | null)?.format === UNPROVEN_FORMAT;

/**
 * The statement that follows from the facts of one life. These must be all of the life's events besides its writes.
 *
 * @returns undefined if the facts are not the end and the erasure of a life
 */
export function disposalStatement(
  facts: readonly FactLeaf[],
  { sha256 }: Pick<CheckpointCryptography, 'sha256'>,
  format: DisposalCertificate['format'] = CERTIFICATE_FORMAT,
): DisposalStatement | undefined {
  const purge = facts.at(-1);
  const place = purge && parseItemStream(purge.stream);
  if (purge?.type !== 'ItemPurged' || place === undefined) return undefined;
  const data = purgedLeafSchema.safeParse(purge.data).data;
  if (data === undefined) return undefined;
  // All facts after the writes must be there. Without the fact of its end, a life would seem to have ended when it was erased.
  const { writes: written } = data.ledger;
  if (facts.some(({ stream, revision }, index) => stream !== purge.stream || revision !== written + index)) {
    return undefined;
  }
  const writes = decodeLedger(data.ledger);
  const end = facts.find(({ type }) => type === 'ItemExpired' || type === 'ItemDeleted');
  const expired = end?.type === 'ItemExpired' ? expiredLeafSchema.parse(end.data) : undefined;
  const deleted = end?.type === 'ItemDeleted' ? deletedLeafSchema.parse(end.data) : undefined;
  const request = format === FIRST_FORMAT ? undefined : deleted?.withPartitionKey;
  const ledger = new TextEncoder().encode(canonicalJson(data.ledger));
  return {
    containerRid: place.containerRid,
    stream: purge.stream,
    life: place.life,
    writes: data.ledger.writes,
    firstWriteAtMs: writes[0]?.atMs ?? 0,
    lastWriteAtMs: writes.at(-1)?.atMs ?? 0,
    ledgerSha256: hexOf(sha256(ledger)),
    cause: data.cause,
    endedAtMs: expired?.expiredAtMs ?? request?.atMs ?? end?.occurredAtMs ?? purge.occurredAtMs,
    endedBy: request?.by ?? (end ?? purge).actor,
    ...(deleted?.renamedTo === undefined ? {} : { renamedTo: deleted.renamedTo }),
    ...(expired === undefined
      ? {}
      : {
          expiry: {
            rule: expired.rule,
            ts: expired.ts,
            ttl: expired.ttl,
            policyVersion: expired.policyVersion,
            byPolicyStart: expired.byPolicyStart,
          },
        }),
    erasedAtMs: purge.occurredAtMs,
    erasedBy: purge.actor,
    erasedHow: data.erased,
    key: data.key,
    recoverableUntilMs: data.recoverableUntilMs,
    ...(data.checks === undefined ? {} : { checks: data.checks }),
    ...(data.remains === undefined ? {} : { remains: data.remains }),
  };
}

export type Verdict<Statement> =
  | { readonly ok: true; readonly statement: Statement; readonly treeSize: number }
  | { readonly ok: false; readonly reason: string };

/** Checks a certificate with nothing but a public key. */
export function verifyCertificate(
  certificate: DisposalCertificate,
  key: VerifierKey,
  cryptography: CheckpointCryptography,
): Verdict<DisposalStatement> {
  const { format } = certificate;
  if (format !== CERTIFICATE_FORMAT && format !== FIRST_FORMAT) {
    return { ok: false, reason: 'It is not a certificate of disposal of a known format.' };
  }
  return verifyStatement(certificate, key, cryptography, {
    derive: (facts) => disposalStatement(facts, cryptography, format),
    otherwise: 'Its facts are not exactly the end and the erasure of one life.',
  });
}

/** Checks that a statement follows from facts, and that these are in the tree that was signed. */
export function verifyStatement<Statement>(
  { statement, facts, checkpoint: note }: Pick<DisposalCertificate, 'facts' | 'checkpoint'> & { statement: Statement },
  key: VerifierKey,
  cryptography: CheckpointCryptography,
  from: {
    /** The statement that follows from the facts. Undefined if none does. */
    readonly derive: (facts: readonly FactLeaf[]) => Statement | undefined;
    /** The reason to give in that case. */
    readonly otherwise: string;
  },
): Verdict<Statement> {
  const no = (reason: string): Verdict<Statement> => ({ ok: false, reason });
  const checkpoint = openCheckpoint(note, key, cryptography);
  if (checkpoint === undefined) return no('The checkpoint is not signed by this key.');
  const stray = unprovenFact(facts, checkpoint, cryptography);
  if (stray !== undefined) return no(`The fact ${stray.type} of ${stray.stream} is not in the tree that was signed.`);
  const derived = from.derive(facts.map(({ fact }) => fact));
  if (derived === undefined) return no(from.otherwise);
  if (canonicalJson(derived) !== canonicalJson(statement)) return no('What it states does not follow from its facts.');
  return { ok: true, statement: derived, treeSize: checkpoint.size };
}

/** The first fact that is not proven to be in a tree. Undefined if all are. */
export function unprovenFact(
  facts: readonly CertifiedFact[],
  { size, root }: Pick<Checkpoint, 'size' | 'root'>,
  { sha256 }: Pick<CheckpointCryptography, 'sha256'>,
): FactLeaf | undefined {
  return facts.find(({ fact, leaf, path }) => {
    const hash = leafHash(sha256, new TextEncoder().encode(canonicalJson(fact)));
    const hashes = path.map(fromBase64);
    const found = hashes.every((part) => part !== undefined)
      ? rootOfProof(sha256, hash, leaf, size, hashes)
      : undefined;
    return found === undefined || !sameBytes(found, root);
  })?.fact;
}

export function sameBytes(left: Uint8Array, right: Uint8Array): boolean {
  return left.length === right.length && left.every((byte, index) => byte === right[index]);
}
