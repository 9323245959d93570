import type { ContainerState } from '@epitaph/core/container/state.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { assertEndNotLost, eventsLost, lifeTail } from '@epitaph/core/item/read-life.ts';
import { itemStream, parseItemStream } from '@epitaph/core/item/stream-name.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { streamPages } from '@epitaph/core/log/stream-pages.ts';
import {
  CERTIFICATE_FORMAT,
  type CertifiedFact,
  type DisposalCertificate,
  disposalStatement,
  sameBytes,
  type Unproven,
  UNPROVEN_FORMAT,
} from '@epitaph/core/proof/certificate.ts';
import {
  base64,
  type CheckpointCryptography,
  type CheckpointSigner,
  checkpointText,
  signedCheckpoint,
  verifierKeyText,
} from '@epitaph/core/proof/checkpoint.ts';
import { type FactLeaf, factLeaf, isPermanentFact } from '@epitaph/core/proof/leaf.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { Pace } from '@epitaph/core/turn.ts';
import { UnreadableEvent, unlessDamaged, WHEN_DAMAGED, whyUnreadable } from '@epitaph/core/upcast.ts';
import { UnreadableSecret } from '@epitaph/core/vault/key-vault.ts';
import type { ProofStore } from '@epitaph/projections/proof/proof-store.ts';
import { TILE_HASHES } from '@epitaph/projections/proof/proof-store.ts';
import { factHash } from '@epitaph/projections/proof/proof-tree.ts';
import { Prover } from '@epitaph/projections/proof/prover.ts';
import {
  type PurgeRunCertificate,
  type PurgeRunStatement,
  purgeRunStatement,
  RUN_CERTIFICATE_FORMAT,
} from '@epitaph/projections/proof/run-certificate.ts';
import { purgeRunStream } from '@epitaph/projections/purge/events.ts';
import { namesLost } from '@epitaph/projections/purge/vault-copies.ts';
import type { ScanProgress } from '../api/history-api.ts';
import type { CertifiedPeriod, LogVerification, ProofsApi, TreeSnapshot } from '../api/proofs-api.ts';
import { isDamage } from '../damage.ts';
import { assertNoneBehind, isPurged, itemLife, lastErasedLife } from '../items/item-lives.ts';
import type { StoreParts } from '../parts.ts';

const PAGE_EVENTS = 1_000;
const PAGE_ROWS = 1_000;
/** How many problems a report names. There may be more. */
const NAMED_PROBLEMS = 100;

/** What a store needs to prove what is recorded. */
export interface ProofParts {
  readonly store: ProofStore;
  readonly signer: CheckpointSigner;
  readonly cryptography: CheckpointCryptography;
}

/** Proofs over the permanent facts: signed checkpoints, certificates of disposal, and the check of the whole log. */
export class Proofs {
  readonly #parts: StoreParts;
  readonly #proof: ProofParts | undefined;
  readonly #prover: Prover | undefined;
  /** The last checkpoint. It is kept because the signature of one text is always the same. */
  #signed: { readonly size: number; readonly text: string } | undefined;

  constructor(parts: StoreParts, proof: ProofParts | undefined, onFault: (error: unknown) => void) {
    this.#parts = parts;
    this.#proof = proof;
    this.#prover = proof && new Prover(parts.ports.log, proof.store, onFault);
  }

  async prepare(): Promise<void> {
    await this.#prover?.prepare();
  }

  start(): void {
    this.#prover?.start();
  }

  async stop(): Promise<void> {
    await this.#prover?.stop();
  }

  /** The public key as a verifier key of C2SP's signed-note. */
  publicKey(): string {
    const { signer, cryptography } = this.#use();
    return verifierKeyText(signer.key, cryptography);
  }

  /** A signed checkpoint over every fact up to now, or over the tree when it had `size` leaves. */
  async checkpoint(size?: number): Promise<string> {
    const { prover } = this.#use();
    await prover.reached(await this.#parts.ports.log.head());
    if (size !== undefined && size > prover.tree.size) throw noSuchSize(prover.tree.size);
    return this.#sign(size ?? prover.tree.size);
  }

  /** Hashes, base64, which prove that the tree of one size is the beginning of the tree of another. RFC 6962, 2.1.2. */
  async consistency(from: number, to: number): Promise<string[]> {
    const { prover } = this.#use();
    // The checkpoint of this size may come from another node.
    await prover.reached(await this.#parts.ports.log.head());
    if (from < 1 || from > to || to > prover.tree.size) throw noSuchSize(prover.tree.size);
    return prover.tree.consistency(from, to).map(base64);
  }

  /** @throws Refusal item-not-found for a life that never existed, not-erased while its content exists */
  readonly certificate: ProofsApi['certificate'] = async (container, id, partitionKey, life) => {
    const { prover } = this.#use();
    const { log, naming } = this.#parts.ports;
    const name = await this.#parts.recordedName(container, { id, partitionKey });
    const prefix = await naming.itemStreamPrefix(container.rid, name.partitionKey, name.id);
    const found = life === undefined ? await lastErasedLife(log, prefix) : await itemLife(log, prefix, life);
    if (found === undefined) {
      const within = this.#parts.catalog.containerByRid(container.rid);
      if (within !== undefined) await assertNoneBehind(this.#parts, within.number, name, prefix, life ?? 0);
      throw new Refusal('item-not-found', 'No such life of the item is on record.');
    }
    if (!isPurged(found)) throw new Refusal('not-erased');
    await prover.reached(found.events.at(-1)!.position);
    return this.#certificateOf(found.events, prover.tree.size);
  };

  /** Certificates of every life of a container that was erased in a period, in order of erasure. */
  async *certificates(
    container: ContainerState,
    { fromMs = 0, toMs = Number.POSITIVE_INFINITY, tree }: CertifiedPeriod,
    signal?: AbortSignal,
  ): AsyncGenerator<readonly (DisposalCertificate | Unproven)[]> {
    const { catalog, ports } = this.#parts;
    const found = catalog.containerByRid(container.rid);
    if (found === undefined) throw new Refusal('container-not-found');
    const { number } = found;
    const within = tree ?? (await this.treeNow());
    // The read model says where to look, and the log what happened there. So the cost depends only on the number of
    // certificates.
    await this.#parts.projected(within.position);
    const pace = new Pace();
    for (let after: { readonly purgedAtMs: number; readonly position: number } | undefined; ;) {
      const period = { fromMs, toMs: Math.min(toMs, Number.MAX_SAFE_INTEGER), after, limit: PAGE_ROWS };
      const rows = await this.#parts.readModel.erasures(number, period);
      for (const { partitionKey, id, life, purgedAtMs } of rows) {
        signal?.throwIfAborted();
        const stream = itemStream(await ports.naming.itemStreamPrefix(container.rid, partitionKey, id), life);
        const certified = await orUnproven({ stream, erasedAtMs: purgedAtMs! }, async () => {
          const events = await lifeTail(ports.log, stream);
          const last = events.at(-1);
          if (last?.type !== 'ItemPurged') {
            throw new UnreadableEvent(`the event log has lost the record of the erasure of ${stream}. ${WHEN_DAMAGED}`);
          }
          return last.position > within.position ? undefined : this.#certificateOf(events, within.size);
        });
        if (certified !== undefined) yield [certified];
        await pace.step();
      }
      const last = rows.at(-1);
      if (last === undefined || rows.length < PAGE_ROWS) return;
      after = { purgedAtMs: last.purgedAtMs!, position: last.position };
    }
  }

  /** The tree with every fact recorded by now. */
  async treeNow(): Promise<TreeSnapshot> {
    const { prover } = this.#use();
    await prover.reached(await this.#parts.ports.log.head());
    const { size, position } = prover.tree;
    return { size, position };
  }

  /** Every recorded fact of a container itself, such as its policies, holds and floors, each with its proof. */
  async *containerFacts(
    { rid }: ContainerState,
    tree: TreeSnapshot,
    signal?: AbortSignal,
  ): AsyncGenerator<readonly (CertifiedFact | Unproven)[]> {
    for await (const page of streamPages(this.#parts.ports.log, containerStream(rid), signal)) {
      const facts = page.filter(({ position }) => position <= tree.position);
      if (facts.length === 0) return;
      const proven: (CertifiedFact | Unproven)[] = [];
      for (const fact of facts) {
        const { stream, revision } = fact;
        proven.push(await orUnproven({ stream, revision }, () => this.#prove([fact], tree.size)[0]!));
      }
      yield proven;
    }
  }

  /** Purge runs in the order of the log, after a position; `position` is where the next page goes on. */
  async purgeRuns(after: number, limit: number, signal?: AbortSignal): ReturnType<ProofsApi['purgeRuns']> {
    const { log } = this.#parts.ports;
    // The read model says where the runs are, and the log what they are. So the cost depends only on the number of runs
    // on the page.
    await this.#parts.seen('head');
    const found = await this.#parts.readModel.purgeRuns(after, limit + 1);
    const page = found.slice(0, limit);
    const runs: PurgeRunStatement[] = [];
    const unproven: Unproven[] = [];
    for (const { stream } of page) {
      signal?.throwIfAborted();
      const run = await orUnproven({ stream }, async () => statementOfRun(stream, await log.readStream(stream)));
      if ('format' in run) unproven.push(run);
      else runs.push(run);
    }
    return { runs, unproven, position: found.length > limit ? page.at(-1)!.position : undefined };
  }

  /**
   * The certificate of a purge run, followed by those of every life that it erased between its start and its end.
   *
   * @throws Refusal purge-run-not-found
   */
  async *runCertificates(
    id: string,
    signal?: AbortSignal,
  ): AsyncGenerator<readonly (PurgeRunCertificate | DisposalCertificate | Unproven)[]> {
    const { log } = this.#parts.ports;
    const stream = purgeRunStream(id);
    const events = await log.readStream(stream);
    const [started] = events;
    if (started === undefined) {
      await assertEndNotLost(log, stream);
      throw new Refusal('purge-run-not-found');
    }
    const { size, position: readTo } = await this.treeNow();
    const certified = await orUnproven({ stream }, (): PurgeRunCertificate => {
      const statement = statementOfRun(stream, events);
      return {
        format: RUN_CERTIFICATE_FORMAT,
        statement,
        facts: this.#prove(events, size),
        checkpoint: this.#sign(size),
      };
    });
    yield [certified];
    // If the start of the run is lost, so is the position from which it erased. What came after its end is not its own.
    if (started.revision > 0) return;
    // A run that is not over is read up to the tree's position: it goes on erasing.
    const end = events[1]?.position ?? readTo + 1;
    const pace = new Pace();
    for (let { position } = started; position < end;) {
      signal?.throwIfAborted();
      const page = await log.readAll(position, PAGE_EVENTS, { withBodies: false });
      if (page.length === 0) return;
      position = page.at(-1)!.position;
      const erasures = page.filter(
        (event) => event.type === 'ItemPurged' && event.actor === 'system:purge' && event.position < end,
      );
      for (const { stream, occurredAtMs } of erasures) {
        signal?.throwIfAborted();
        const ofLife = { stream, erasedAtMs: occurredAtMs };
        yield [await orUnproven(ofLife, async () => this.#certificateOf(await lifeTail(log, stream), size))];
        await pace.step();
      }
    }
  }

  #certificateOf(events: readonly RecordedEvent[], size: number): DisposalCertificate {
    const facts = events.filter(isPermanentFact);
    // Reading each event reports the damage in it.
    for (const fact of facts) readItemEvent(fact);
    const statement = disposalStatement(facts.map(factLeaf), this.#use().cryptography);
    if (statement === undefined) throw eventsLost(events.at(-1)!);
    return { format: CERTIFICATE_FORMAT, statement, facts: this.#prove(facts, size), checkpoint: this.#sign(size) };
  }

  #prove(facts: readonly RecordedEvent[], size: number): CertifiedFact[] {
    const proven = this.#use().prover.prove(facts, size);
    return proven.map(({ event, leaf, path }) => ({ fact: factLeaf(event), leaf, path: path.map(base64) }));
  }

  /** Every permanent fact as it is in the tree, in order. */
  async *facts(signal?: AbortSignal): AsyncGenerator<readonly FactLeaf[]> {
    this.#use();
    for await (const events of this.#pages(() => {}, signal)) yield events.filter(isPermanentFact).map(factLeaf);
  }

  /**
   * Reads the log from end to end, computes the tree's leaves again and compares them with those made when the facts
   * were recorded. Compares each item's stream name with its id and partition key too.
   */
  async verifyLog(onProgress: (progress: ScanProgress) => void, signal?: AbortSignal): Promise<LogVerification> {
    const { prover, proof } = this.#use();
    const { naming } = this.#parts.ports;
    await prover.reached(await this.#parts.ports.log.head());
    const { size } = prover.tree;
    const problems: LogVerification['problems'][number][] = [];
    let count = 0;
    let facts = 0;
    const report = (code: LogVerification['problems'][number]['code'], subject: string, message: string) => {
      count += 1;
      if (problems.length < NAMED_PROBLEMS) problems.push({ code, subject, message });
    };
    const unnamed = new Set<string>();
    const prefixOf = async (rid: string, partitionKey: string, id: string): Promise<string | undefined> => {
      if (unnamed.has(rid)) return undefined;
      try {
        return await naming.itemStreamPrefix(rid, partitionKey, id);
      } catch (error) {
        if (!(error instanceof UnreadableSecret)) throw error;
        unnamed.add(rid);
        report('name-differs', containerStream(rid), error.message);
        return undefined;
      }
    };
    const pace = new Pace();
    // If it can't be read which containers' names are lost, names prove nothing. The scan itself reports that damage.
    const lost = await namesLost(this.#parts.ports.log).catch(unlessDamaged);
    for await (const events of this.#pages(onProgress, signal, pace)) {
      for (const event of events) {
        await pace.step();
        const unreadable = whyUnreadable(event);
        if (unreadable !== undefined) {
          report('fact-differs', event.stream, unreadable);
          if (isPermanentFact(event) && facts < size) facts += 1;
          continue;
        }
        const place = parseItemStream(event.stream);
        if (place !== undefined && lost !== undefined && event.position > (lost.get(place.containerRid) ?? 0)) {
          // Both are strings unless the event is damaged, and then they are no item's name.
          const [id, partitionKey] = [String(event.data['id']), String(event.data['partitionKey'])];
          const prefix = await prefixOf(place.containerRid, partitionKey, id);
          if (prefix !== undefined && prefix !== place.prefix) {
            report('name-differs', event.stream, `the event at ${event.position} names another item than its stream`);
          }
        }
        if (!isPermanentFact(event) || facts >= size) continue;
        const tile = proof.store.tile(0, Math.floor(facts / TILE_HASHES));
        const at = (facts % TILE_HASHES) * 32;
        if (tile === undefined || !sameBytes(tile.hashes.subarray(at, at + 32), factHash(event))) {
          report(
            'fact-differs',
            event.stream,
            `the fact at ${event.position} is not the one that was recorded as leaf ${facts}`,
          );
        }
        facts += 1;
      }
    }
    if (facts < size)
      report('facts-missing', 'log', `${size - facts} facts that were recorded are not in the log any more`);
    return {
      ok: count === 0,
      facts,
      root: base64(prover.tree.root(size)),
      checkpoint: this.#sign(size),
      count,
      problems,
    };
  }

  async *#pages(
    onProgress: (progress: ScanProgress) => void,
    signal: AbortSignal | undefined,
    pace = new Pace(),
  ): AsyncGenerator<RecordedEvent[]> {
    const { log } = this.#parts.ports;
    const headPosition = await log.head();
    for (let position = 0; position < headPosition;) {
      signal?.throwIfAborted();
      const events = await log.readAll(position, PAGE_EVENTS, { withBodies: false });
      if (events.length === 0) return;
      position = events.at(-1)!.position;
      yield events;
      onProgress({ position: Math.min(position, headPosition), headPosition });
      await pace.step();
    }
  }

  #sign(size: number): string {
    const { prover, signer, cryptography } = this.#use();
    // Certificates that are made together share one tree.
    if (this.#signed?.size === size) return this.#signed.text;
    const checkpoint = { origin: signer.key.name, size, root: prover.tree.root(size) };
    const text = signedCheckpoint(checkpoint, signer.key, signer.sign(checkpointText(checkpoint)), cryptography);
    this.#signed = { size, text };
    return text;
  }

  #use(): ProofParts & { readonly proof: ProofParts; readonly prover: Prover } {
    if (this.#proof === undefined || this.#prover === undefined) {
      throw new Refusal('not-supported', 'This store has no proof tree.');
    }
    return { ...this.#proof, proof: this.#proof, prover: this.#prover };
  }
}

/** A proof, or an entry in its place when the log is damaged, so that the other proofs can still be returned. */
async function orUnproven<Proof>(
  of: Omit<Unproven, 'format' | 'reason'>,
  prove: () => MaybePromise<Proof>,
): Promise<Proof | Unproven> {
  try {
    return await prove();
  } catch (error) {
    if (!isDamage(error)) throw error;
    return { format: UNPROVEN_FORMAT, ...of, reason: error.message };
  }
}

/** @throws {UnreadableEvent} when the run's record in the log is damaged */
function statementOfRun(stream: string, events: readonly RecordedEvent[]): PurgeRunStatement {
  const statement = purgeRunStatement(events);
  if (statement !== undefined) return statement;
  throw new UnreadableEvent(`the event log has no complete record of ${stream}. ${WHEN_DAMAGED}`);
}

function noSuchSize(size: number): Refusal {
  return new Refusal(
    'bad-request',
    `The tree has ${size} leaves: sizes must be from 1 to ${size}, with the smaller one first.`,
  );
}
