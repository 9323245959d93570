import { createReadStream, existsSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { isoTime } from '@epitaph/core/clock.ts';
import { type DisposalCertificate, sameBytes, verifyCertificate } from '@epitaph/core/proof/certificate.ts';
import { fromBase64, openCheckpoint, readVerifierKey, type VerifierKey } from '@epitaph/core/proof/checkpoint.ts';
import { canonicalJson } from '@epitaph/core/proof/leaf.ts';
import { CompactTree, leafHash, rootsOfConsistency } from '@epitaph/core/proof/merkle-tree.ts';
import { checkpointCryptography } from '@epitaph/storage/crypto/proof-signer.ts';
import type { LogVerification } from '../store/store-api.ts';
import { textFlag, type Command, type FlagValues, type Invocation } from './command.ts';
import { exitCodes, UsageError } from './exit-codes.ts';
import { ServerRefused } from './management-client.ts';
import { Progress } from './progress.ts';

const { sha256 } = checkpointCryptography;

export const verify: Command = {
  summary: 'Checks a certificate of disposal, exported facts, or the log of a running server.',
  operands: 'certificate <file> | log [<facts file>]',
  operandCounts: [1, 2],
  flags: {
    'public-key': {
      type: 'string',
      placeholder: '<key or file>',
      description: 'The verifier key, or a file with it; from GET /_epitaph/proof/key, and kept apart from the server.',
    },
    checkpoint: {
      type: 'string',
      placeholder: '<file>',
      description: 'A checkpoint that was signed earlier: what it covers must still be there unchanged.',
    },
  },
  notes:
    'A certificate, and facts with a checkpoint, are checked without any server. Ends with 1 when something is not as it was.',
  run: (invocation) => {
    const [what, file] = invocation.operands;
    if (what === 'certificate' && file !== undefined) return verifyFile(invocation, file);
    if (what === 'log') return file === undefined ? verifyServer(invocation) : verifyFacts(invocation, file);
    throw new UsageError('verify takes certificate <file>, or log with or without a file of facts.');
  },
};

async function verifyFile({ flags, json, print }: Invocation, file: string): Promise<number> {
  const verdict = verifyCertificate(readJson(file) as DisposalCertificate, publicKey(flags), checkpointCryptography);
  if (json) print(JSON.stringify(verdict));
  else if (verdict.ok) {
    const { stream, life, cause, endedAtMs, erasedAtMs, erasedBy } = verdict.statement;
    print(
      `good: life ${life} of ${stream}, ${cause} at ${isoTime(endedAtMs)}, erased at ${isoTime(erasedAtMs)} by ${erasedBy}.`,
    );
    print(`Proven by a signed tree of ${verdict.treeSize} facts.`);
  } else print(`NOT good: ${verdict.reason}`);
  return verdict.ok ? exitCodes.ok : exitCodes.problem;
}

/** Makes the tree anew from exported facts, and compares it with a signed checkpoint. */
async function verifyFacts({ flags, json, print }: Invocation, file: string): Promise<number> {
  const given = textFlag(flags, 'checkpoint');
  if (given === undefined) throw new UsageError('Facts are checked against a --checkpoint.');
  const checkpoint = signedCheckpoint(given, publicKey(flags));
  const tree = new CompactTree(sha256);
  for await (const line of createInterface({ input: createReadStream(file), crlfDelay: Infinity })) {
    if (tree.size === checkpoint.size) break;
    if (line !== '') tree.append(leafHash(sha256, Buffer.from(canonicalJson(JSON.parse(line)))));
  }
  const ok = tree.size === checkpoint.size && sameBytes(tree.root(), checkpoint.root);
  if (json) print(JSON.stringify({ ok, facts: tree.size, checkpointSize: checkpoint.size }));
  else if (ok) print(`good: the first ${tree.size} facts are those that were signed.`);
  else if (tree.size < checkpoint.size) print(`NOT good: ${tree.size} facts, and ${checkpoint.size} were signed.`);
  else print(`NOT good: the first ${tree.size} facts are not those that were signed.`);
  return ok ? exitCodes.ok : exitCodes.problem;
}

async function verifyServer({ client, flags, json, print, stderr }: Invocation): Promise<number> {
  const progress = new Progress(stderr, 'verify');
  let report: LogVerification | undefined;
  for await (const { event, data } of client.events('POST', '/proof/verify')) {
    if (event === 'progress') {
      const { position, headPosition } = data as { position: number; headPosition: number };
      progress.update(position, headPosition);
    } else if (event === 'done') report = data as LogVerification;
    else {
      const { code, detail } = data as { code: string; detail: string };
      throw new ServerRefused(code, detail);
    }
  }
  progress.end();
  if (report === undefined) throw new ServerRefused('busy', 'The server stopped before the check was done.');
  const earlier = textFlag(flags, 'checkpoint');
  const since = earlier === undefined ? undefined : await grewFrom(earlier, publicKey(flags), report, { client });
  const ok = report.ok && since !== false;
  if (json) print(JSON.stringify({ ...report, ok, ...(since === undefined ? {} : { grewFromCheckpoint: since }) }));
  else {
    for (const { code, subject, message } of report.problems) print(`${code}: ${subject}: ${message}`);
    if (since === false) print('checkpoint-differs: the log is not a continuation of what was signed');
    const found = ok ? 'All is as it was recorded' : `${report.count + (since === false ? 1 : 0)} problems`;
    print(`${found}: ${report.facts} facts, root ${report.root}.`);
  }
  return ok ? exitCodes.ok : exitCodes.problem;
}

/** True when the server's tree of now begins with the tree that was signed earlier. */
async function grewFrom(
  file: string,
  key: VerifierKey,
  report: LogVerification,
  { client }: Pick<Invocation, 'client'>,
): Promise<boolean> {
  const before = signedCheckpoint(file, key);
  const now = openCheckpoint(report.checkpoint, key, checkpointCryptography);
  if (now === undefined || now.size < before.size) return false;
  if (before.size === 0) return true;
  const { hashes } = await client.call<{ readonly hashes: readonly string[] }>('GET', '/proof/consistency', {
    query: { from: String(before.size), to: String(now.size) },
  });
  const path = hashes.map((text) => fromBase64(text) ?? new Uint8Array());
  const roots = rootsOfConsistency(sha256, before.size, now.size, before.root, path);
  return roots !== undefined && sameBytes(roots.from, before.root) && sameBytes(roots.to, now.root);
}

function publicKey(flags: FlagValues): VerifierKey {
  const given = textFlag(flags, 'public-key');
  if (given === undefined) throw new UsageError('Signatures are checked with a --public-key.');
  const text = existsSync(given) ? readFileSync(given, 'utf8') : given;
  // As it is, or as the server's answer has it.
  const key = readVerifierKey(/"publicKey"\s*:\s*"([^"]+)"/.exec(text)?.[1] ?? text, checkpointCryptography);
  if (key === undefined) throw new UsageError('--public-key is no verifier key of the form name+hash+key.');
  return key;
}

function signedCheckpoint(file: string, key: VerifierKey): NonNullable<ReturnType<typeof openCheckpoint>> {
  const checkpoint = openCheckpoint(readText(file), key, checkpointCryptography);
  if (checkpoint === undefined)
    throw new ServerRefused('bad-signature', `${file}: the checkpoint is not signed by this key.`);
  return checkpoint;
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new UsageError(`${file} can't be read: ${(error as Error).message}`);
  }
}

function readJson(file: string): unknown {
  try {
    return JSON.parse(readText(file));
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(`${file} is not JSON.`);
  }
}
