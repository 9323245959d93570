import { createReadStream, existsSync } from 'node:fs';
import { pipeline } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { isoTime } from '@epitaph/core/clock.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import {
  type CertifiedFact,
  type DisposalCertificate,
  type DisposalStatement,
  isUnproven,
  sameBytes,
  type Unproven,
  unprovenFact,
  type Verdict,
  verifyCertificate,
} from '@epitaph/core/proof/certificate.ts';
import {
  type Checkpoint,
  fromBase64,
  openCheckpoint,
  readVerifierKey,
  type VerifierKey,
} from '@epitaph/core/proof/checkpoint.ts';
import { canonicalJson } from '@epitaph/core/canonical-json.ts';
import { CompactTree, leafHash, rootsOfConsistency } from '@epitaph/core/proof/merkle-tree.ts';
import {
  type PurgeRunCertificate,
  type PurgeRunStatement,
  RUN_CERTIFICATE_FORMAT,
  verifyRunCertificate,
} from '@epitaph/projections/proof/run-certificate.ts';
import { checkpointCryptography } from '@epitaph/storage/crypto/proof-signer.ts';
import { readTar } from '../archive/tar.ts';
import { BUNDLE_FILE, BUNDLE_FORMATS, type BundleManifest } from '../archive/bundle-format.ts';
import type { LogVerification } from '../store/api/proofs-api.ts';
import { textFlag, type Command, type FlagValues, type Invocation } from './command.ts';
import { counted } from './counted.ts';
import { exitCodes, UsageError } from './exit-codes.ts';
import { follow } from './follow.ts';
import { linesIn } from './lines.ts';
import { ServerRefused } from './management-client.ts';
import { readText, unreadable } from './read-text.ts';

const { sha256 } = checkpointCryptography;
/** How many problems of a bundle are named. There may be more. */
const NAMED_PROBLEMS = 100;

export const verify: Command = {
  summary: 'Checks certificates of disposal, a bundle, exported facts, or the log of a running server.',
  operands: 'certificate <file> | bundle <file> | log [<facts file>]',
  operandCounts: [1, 2],
  flags: {
    'public-key': {
      type: 'string',
      placeholder: '<key or file>',
      description:
        'The verifier key, or a file with it. Get it once from GET /_epitaph/proof/key, and keep it apart from the server.',
    },
    checkpoint: {
      type: 'string',
      placeholder: '<file>',
      description: 'A checkpoint that was signed earlier. What it covers must still exist unchanged.',
    },
  },
  notes:
    'Certificates (one, or one a line), bundles, and facts with a checkpoint are checked without any server. Exits with 1 if a check fails.',
  run: (invocation) => {
    const [what, file] = invocation.operands;
    if (what === 'certificate' && file !== undefined) return verifyCertificates(invocation, file);
    if (what === 'bundle' && file !== undefined) return verifyBundle(invocation, file);
    if (what === 'log') return file === undefined ? verifyServer(invocation) : verifyFacts(invocation, file);
    throw new UsageError('verify takes certificate <file>, bundle <file>, or log with or without a file of facts.');
  },
};

async function verifyCertificates({ flags, json, print }: Invocation, file: string): Promise<number> {
  const key = publicKey(flags);
  let ok = true;
  for (const certificate of certificatesIn(file)) {
    const verdict = verdictOf(certificate, key);
    ok &&= verdict.ok;
    if (json) print(JSON.stringify(verdict));
    else if (!verdict.ok) print(`NOT good: ${verdict.reason}`);
    else {
      print(`good: ${inWords(verdict.statement, certificate as DisposalCertificate)}`);
      print(`Proven by a signed tree of ${verdict.treeSize} facts.`);
    }
  }
  return ok ? exitCodes.ok : exitCodes.problem;
}

/** The certificates in a file: a single one in any layout, or one per line. */
function certificatesIn(file: string): unknown[] {
  const text = readText(file);
  try {
    return [JSON.parse(text)];
  } catch {
    // There may be one certificate per line.
  }
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  // A failed download leaves an empty file, which must not pass for a valid one.
  if (lines.length === 0) throw new UsageError(`${file} contains no certificate.`);
  try {
    return lines.map((line) => JSON.parse(line) as unknown);
  } catch {
    throw new UsageError(`${file} is not JSON.`);
  }
}

function verdictOf(certificate: unknown, key: VerifierKey): Verdict<DisposalStatement> | Verdict<PurgeRunStatement> {
  if (isUnproven(certificate)) return { ok: false, reason: inPlaceOfProof(certificate) };
  try {
    return (certificate as { readonly format?: unknown } | null)?.format === RUN_CERTIFICATE_FORMAT
      ? verifyRunCertificate(certificate as PurgeRunCertificate, key, checkpointCryptography)
      : verifyCertificate(certificate as DisposalCertificate, key, checkpointCryptography);
  } catch {
    return { ok: false, reason: 'It lacks parts of a certificate.' };
  }
}

/** The store's own statement about something that it could not prove. */
const inPlaceOfProof = ({ stream, erasedAtMs, reason }: Unproven): string =>
  `${stream}${typeof erasedAtMs === 'number' ? `, erased at ${isoTime(erasedAtMs)},` : ''} is not proven: ${reason}`;

const endings: Readonly<Record<DisposalStatement['cause'], string>> = {
  expired: 'expired',
  deleted: 'deleted',
  'container-deleted': 'deleted with its container',
  erasure: 'ended by an erasure on request',
};

/** How a life ended before it was erased, from the facts of its certificate; undefined if it had not ended. */
function endIn(facts: DisposalCertificate['facts']): 'expired' | 'deleted' | undefined {
  const end = facts.find(({ fact: { type } }) => type === 'ItemExpired' || type === 'ItemDeleted');
  return end && (end.fact.type === 'ItemExpired' ? 'expired' : 'deleted');
}

/** @param facts the verified facts of a life's certificate */
function inWords(
  statement: DisposalStatement | PurgeRunStatement,
  { facts }: Pick<DisposalCertificate, 'facts'>,
): string {
  if ('stream' in statement) {
    const { stream, life, cause, endedAtMs, renamedTo, erasedAtMs, erasedBy } = statement;
    // A life that was erased on request may have ended before, and been kept since.
    const endedBy = cause === 'erasure' ? (endIn(facts) ?? cause) : cause;
    // The time at which the container was deleted is a fact of the container, and not in a life's certificate.
    const when = cause === 'container-deleted' ? '' : ` at ${isoTime(endedAtMs)}`;
    const erased = endedBy === cause ? 'erased' : 'erased on request';
    const ended = renamedTo === undefined ? endings[endedBy] : `continued under another id as ${renamedTo}`;
    return `life ${life} of ${stream}, ${ended}${when}, ${erased} at ${isoTime(erasedAtMs)} by ${erasedBy}.`;
  }
  const { id, startedAtMs, completedAtMs } = statement;
  return `purge run ${id}, ${isoTime(startedAtMs)} to ${completedAtMs === null ? 'now' : isoTime(completedAtMs)}.`;
}

/** Checks everything in a bundle that has proofs against the signed tree. Its tables have no proofs. */
async function verifyBundle({ flags, json, print }: Invocation, file: string): Promise<number> {
  const key = publicKey(flags);
  const { problems, facts, certificates } = await checkBundle(file, key);
  const ok = problems.length === 0;
  if (json) print(JSON.stringify({ ok, facts, certificates, problems }));
  else {
    for (const problem of problems) print(`NOT good: ${problem}`);
    if (ok)
      print(
        `good: ${counted(certificates, 'certificate')} and ${counted(facts, 'fact')} of the container, all in the tree that was signed.`,
      );
  }
  return ok ? exitCodes.ok : exitCodes.problem;
}

async function checkBundle(
  file: string,
  key: VerifierKey,
): Promise<{ readonly problems: string[]; readonly facts: number; readonly certificates: number }> {
  const found = { problems: [] as string[], facts: 0, certificates: 0 };
  const names = new Set<string>();
  /** The leaves of the certified erasures. */
  const erasures = new Set<number>();
  let manifest: BundleManifest | undefined;
  let note = '';
  let signed: Checkpoint | undefined;
  const report = (problem: string) => {
    if (found.problems.length < NAMED_PROBLEMS) found.problems.push(problem);
  };
  // If the file can't be read, the archive's reader ends with that error.
  const archive = pipeline(createReadStream(file), createGunzip(), () => {});
  try {
    for await (const { name, content } of readTar(archive)) {
      // Unpacking keeps the last file of a name, and there are several ways to write a name.
      if (!BUNDLE_FILE.test(name)) {
        report(`${name} is not a file of a bundle.`);
        continue;
      }
      if (names.has(name)) {
        report(`${name} is in the bundle twice.`);
        continue;
      }
      names.add(name);
      const lines = () => content.toString('utf8').split('\n').filter(Boolean);
      if (name === 'bundle.json') manifest = JSON.parse(content.toString('utf8')) as BundleManifest;
      else if (name === 'checkpoint.txt') {
        note = content.toString('utf8');
        signed = openCheckpoint(note, key, checkpointCryptography);
        if (signed === undefined) report('checkpoint.txt is not signed by this key.');
      } else if (/^container-facts[./]/.test(name)) {
        const facts = lines().map((line) => JSON.parse(line) as CertifiedFact | Unproven);
        for (const unproven of facts.filter(isUnproven)) report(`${name}: ${inPlaceOfProof(unproven)}`);
        const problem = problemWithFacts(facts, found.facts, signed, manifest);
        found.facts += facts.length;
        if (problem !== undefined) report(`${name}: ${problem}`);
      } else if (name.startsWith('certificates/')) {
        for (const line of lines()) {
          found.certificates += 1;
          const certificate = JSON.parse(line) as DisposalCertificate;
          const problem = problemWithCertificate(certificate, key, { manifest, note });
          if (problem !== undefined) {
            report(`${name}: ${problem}`);
            continue;
          }
          const { leaf } = certificate.facts.at(-1)!;
          if (erasures.has(leaf)) report(`${name}: ${certificate.statement.stream} has two certificates.`);
          erasures.add(leaf);
        }
      }
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).syscall !== undefined) throw unreadable(file, error);
    report(`The archive can't be read: ${(error as Error).message}`);
    return found;
  }
  if (!BUNDLE_FORMATS.includes(manifest?.format ?? '')) report('It is not a bundle of a known format.');
  for (const part of ['checkpoint', 'container-facts', 'certificates']) {
    if (![...names].some((name) => name.startsWith(part))) report(`${part} is missing.`);
  }
  if (signed !== undefined && signed.size !== manifest?.treeSize) {
    report('checkpoint.txt has another tree size than bundle.json.');
  }
  return found;
}

/**
 * Why facts of a container are not complete, from the first one or after `behind` earlier ones, or are not in the
 * signed tree.
 */
function problemWithFacts(
  lines: readonly (CertifiedFact | Unproven)[],
  behind: number,
  signed: Checkpoint | undefined,
  manifest: BundleManifest | undefined,
): string | undefined {
  if (signed === undefined) return 'there is no signed checkpoint before it.';
  const stray = unprovenFact(
    lines.filter((line): line is CertifiedFact => !isUnproven(line)),
    signed,
    checkpointCryptography,
  );
  if (stray !== undefined) return `the fact ${stray.type} is not in the tree that was signed.`;
  const stream = containerStream(String(manifest?.container['rid']));
  const places = lines.map((line) => (isUnproven(line) ? line : line.fact));
  if (
    places.length === 0 ||
    places.some((place, index) => place.stream !== stream || place.revision !== behind + index)
  ) {
    return 'facts of the container are missing, or are those of another container.';
  }
  const [line] = lines as readonly [CertifiedFact | Unproven];
  if (isUnproven(line)) return undefined;
  // Only bundle.json connects the rid with a name, and readers go by the name, so it is checked against the first fact.
  const { fact: first } = line;
  const { name, createdAt, createdAtMs } = manifest?.container ?? {};
  const isThat =
    first.data['name'] === name && first.occurredAtMs === createdAtMs && isoTime(first.occurredAtMs) === createdAt;
  if (behind === 0 && !isThat) {
    return `bundle.json names a container ${JSON.stringify(name)}, but its facts are those of a container with another name or another time of creation.`;
  }
  return undefined;
}

/** Why a certificate does not belong in a bundle. */
function problemWithCertificate(
  certificate: DisposalCertificate,
  key: VerifierKey,
  { manifest, note }: { readonly manifest: BundleManifest | undefined; readonly note: string },
): string | undefined {
  const verdict = verdictOf(certificate, key);
  if (!verdict.ok) return verdict.reason;
  const { containerRid, stream, erasedAtMs } = certificate.statement;
  const { container, from, to } = manifest ?? {};
  if (containerRid !== container?.['rid']) return `${stream} belongs to another container.`;
  const isWithin = (from ?? '') <= isoTime(erasedAtMs) && (to === null || isoTime(erasedAtMs) < to!);
  if (!isWithin) return `${stream} was erased outside of the period.`;
  return signedText(certificate.checkpoint) === signedText(note)
    ? undefined
    : `the certificate of ${stream} has another checkpoint than the bundle.`;
}

const signedText = (note: string): string => note.slice(0, note.indexOf('\n\n') + 1);

/** Computes the tree again from exported facts, and compares it with a signed checkpoint. */
async function verifyFacts({ flags, json, print }: Invocation, file: string): Promise<number> {
  const given = textFlag(flags, 'checkpoint');
  if (given === undefined) throw new UsageError('To verify exported facts, give a checkpoint: --checkpoint <file>.');
  const checkpoint = signedCheckpoint(given, publicKey(flags));
  const tree = new CompactTree(sha256);
  for await (const line of linesOf(file)) {
    if (tree.size === checkpoint.size) break;
    if (line.trim() !== '') tree.append(leafHash(sha256, Buffer.from(canonicalJson(factIn(line, file)))));
  }
  const ok = tree.size === checkpoint.size && sameBytes(tree.root(), checkpoint.root);
  if (json) print(JSON.stringify({ ok, facts: tree.size, checkpointSize: checkpoint.size }));
  else if (ok) print(`good: the first ${tree.size} facts are those that were signed.`);
  else if (tree.size < checkpoint.size)
    print(`NOT good: the file has ${tree.size} facts, but ${checkpoint.size} were signed.`);
  else print(`NOT good: the first ${tree.size} facts are not those that were signed.`);
  return ok ? exitCodes.ok : exitCodes.problem;
}

/** @throws UsageError when the file can't be read */
async function* linesOf(file: string): AsyncGenerator<string> {
  try {
    yield* linesIn(createReadStream(file, 'utf8') as AsyncIterable<string>);
  } catch (error) {
    throw unreadable(file, error);
  }
}

function factIn(line: string, file: string): unknown {
  try {
    return JSON.parse(line) as unknown;
  } catch {
    throw new UsageError(`${file} contains no facts: get them from GET /_epitaph/proof/facts, one line of JSON each.`);
  }
}

async function verifyServer(invocation: Invocation): Promise<number> {
  const { client, flags, json, print } = invocation;
  const file = textFlag(flags, 'checkpoint');
  // Read before the work, which may take long.
  const key = file === undefined ? undefined : publicKey(flags);
  const earlier = key === undefined ? undefined : { key, checkpoint: signedCheckpoint(file!, key) };
  const report = await follow<LogVerification>(invocation, { method: 'POST', path: '/proof/verify', label: 'verify' });
  const since = earlier === undefined ? undefined : await grewFrom(earlier, report, { client });
  const grew = since === undefined || since === 'grew';
  const ok = report.ok && grew;
  if (json) print(JSON.stringify({ ...report, ok, ...(since === undefined ? {} : { grewFromCheckpoint: grew }) }));
  else {
    for (const { code, subject, message } of report.problems) print(`${code}: ${subject}: ${message}`);
    if (!grew) print(`${since}: ${notGrown[since]}`);
    const found = ok ? 'All is as it was recorded' : counted(report.count + (grew ? 0 : 1), 'problem');
    print(`${found}: ${report.facts} facts, root ${report.root}.`);
  }
  return ok ? exitCodes.ok : exitCodes.problem;
}

const notGrown = {
  'checkpoint-differs': 'the log does not continue the signed facts',
  'other-key': "the server signs with another key now, so its log can't be compared with the earlier checkpoint",
} as const;

/** Whether the server's present tree begins with the tree that was signed earlier. */
async function grewFrom(
  { key, checkpoint: before }: { readonly key: VerifierKey; readonly checkpoint: Checkpoint },
  report: LogVerification,
  { client }: Pick<Invocation, 'client'>,
): Promise<'grew' | keyof typeof notGrown> {
  const now = openCheckpoint(report.checkpoint, key, checkpointCryptography);
  if (now === undefined) return 'other-key';
  if (now.size < before.size) return 'checkpoint-differs';
  if (before.size === 0) return 'grew';
  const { hashes } = await client.call<{ readonly hashes: readonly string[] }>('GET', '/proof/consistency', {
    query: { from: String(before.size), to: String(now.size) },
  });
  const path = hashes.map((text) => fromBase64(text) ?? new Uint8Array());
  const roots = rootsOfConsistency(sha256, before.size, now.size, before.root, path);
  const isSame = roots !== undefined && sameBytes(roots.from, before.root) && sameBytes(roots.to, now.root);
  return isSame ? 'grew' : 'checkpoint-differs';
}

function publicKey(flags: FlagValues): VerifierKey {
  const given = textFlag(flags, 'public-key');
  if (given === undefined) {
    throw new UsageError(
      '--public-key is needed to check signatures. Get the key from GET /_epitaph/proof/key once, and keep it apart from the server.',
    );
  }
  const isFile = existsSync(given);
  const text = isFile ? readText(given) : given;
  // The key alone, or inside the server's answer.
  const key = readVerifierKey(/"publicKey"\s*:\s*"([^"]+)"/.exec(text)?.[1] ?? text, checkpointCryptography);
  if (key === undefined) {
    throw new UsageError(
      isFile
        ? `--public-key ${given}: the file contains no verifier key of the form name+hash+key.`
        : `--public-key ${given}: neither a verifier key of the form name+hash+key, nor a file that this user can read.`,
    );
  }
  return key;
}

function signedCheckpoint(file: string, key: VerifierKey): Checkpoint {
  const checkpoint = openCheckpoint(readText(file), key, checkpointCryptography);
  if (checkpoint === undefined)
    throw new ServerRefused('bad-signature', `${file}: the checkpoint is not signed by this key.`);
  return checkpoint;
}
