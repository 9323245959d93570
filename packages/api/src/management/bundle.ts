import type { ContainerState } from '@epitaph/core/container/state.ts';
import { isoTime } from '@epitaph/core/clock.ts';
import { BUNDLE_FORMAT, type BundleManifest } from '../archive/bundle-format.ts';
import type { ArchivedFile } from '../archive/tar.ts';
import type { Disappearance } from '../store/api/history-api.ts';
import type { TreeSnapshot } from '../store/api/proofs-api.ts';
import type { StoreApi } from '../store/store-api.ts';
import { exportText } from './exports.ts';
import { earlierContainers } from './routing.ts';
import { containerName, holdShape, policiesShape } from './shapes.ts';

/** An export is split into files of about this size, so that none has to be in memory as a whole. */
const PART_BYTES = 1024 * 1024;

/** Holds that are read at once. Each may name a hundred items. */
const HOLDS_AT_ONCE = 100;

export interface BundleRequest {
  readonly container: ContainerState;
  readonly fromMs?: number | undefined;
  readonly toMs?: number | undefined;
  readonly signal: AbortSignal;
}

/** Collects what can fail before the first byte is sent. After that, the answer can no longer be an error. */
export async function prepareBundle(
  store: StoreApi,
  { container, fromMs, toMs }: BundleRequest,
): Promise<{ readonly manifest: BundleManifest; readonly tree: TreeSnapshot; readonly checkpoint: string }> {
  const tree = await store.proofTree();
  const madeAt = isoTime(store.nowMs());
  return {
    tree,
    checkpoint: await store.proofCheckpoint(tree.size),
    manifest: {
      format: BUNDLE_FORMAT,
      container: containerName(container),
      earlierContainers: earlierContainers(store, container).map(containerName),
      from: fromMs === undefined ? null : isoTime(fromMs),
      to: toMs === undefined ? null : isoTime(toMs),
      unrecordedExpiries: await store.unrecordedExpiries(container, { fromMs, toMs }),
      madeAt,
      treeSize: tree.size,
    },
  };
}

/**
 * The files of an auditor's bundle, one at a time: everything that is on record of a container in a period, with proofs, and without
 * content. All proofs are of the same tree.
 *
 * @param pages reads the disappearances of the period, page by page
 */
export async function* bundleFiles(
  store: StoreApi,
  request: BundleRequest,
  { manifest, tree, checkpoint }: Awaited<ReturnType<typeof prepareBundle>>,
  pages: () => AsyncIterable<readonly Disappearance[]>,
): AsyncGenerator<ArchivedFile> {
  const { container, fromMs, toMs, signal } = request;
  yield textFile('README.md', readme(manifest));
  yield jsonFile('bundle.json', manifest);
  yield textFile('verifier-key.txt', `${store.proofKey()}\n`);
  yield textFile('checkpoint.txt', checkpoint);
  yield jsonFile('policies.json', policiesShape(container, store.nowMs()));
  const holds = async function* () {
    for (let after: number | undefined = 0; after !== undefined;) {
      const page = await store.holds(container, { after, limit: HOLDS_AT_ONCE });
      yield linesOf(page.map(holdShape));
      after = page.at(-1)?.position;
    }
  };
  yield* parts('holds', 'ndjson', holds(), signal);
  const facts = async function* () {
    for await (const page of store.containerFacts(container, tree, signal)) yield linesOf(page);
  };
  yield* parts('container-facts', 'ndjson', facts(), signal);
  yield* parts('disappearances', 'csv', exportText('text/csv', pages()), signal);
  const certificates = async function* () {
    for await (const page of store.certificates(container, { fromMs, toMs, tree }, signal)) yield linesOf(page);
  };
  yield* parts('certificates', 'ndjson', certificates(), signal);
}

/**
 * Splits text into files, `name/000001.extension` and so on. At least one file is written, even if it is empty, so that a reader does not
 * miss it.
 */
async function* parts(
  name: string,
  extension: string,
  text: AsyncIterable<string>,
  signal: AbortSignal,
): AsyncGenerator<ArchivedFile> {
  let number = 0;
  let chunks: Buffer[] = [];
  let bytes = 0;
  const file = (): ArchivedFile => {
    number += 1;
    const content = Buffer.concat(chunks);
    chunks = [];
    bytes = 0;
    return { name: `${name}/${String(number).padStart(6, '0')}.${extension}`, content };
  };
  for await (const chunk of text) {
    signal.throwIfAborted();
    const buffer = Buffer.from(chunk);
    chunks.push(buffer);
    bytes += buffer.length;
    if (bytes >= PART_BYTES) yield file();
  }
  if (bytes > 0 || number === 0) yield file();
}

const linesOf = (values: readonly unknown[]): string => values.map((value) => `${JSON.stringify(value)}\n`).join('');

const textFile = (name: string, text: string): ArchivedFile => ({ name, content: Buffer.from(text) });

const jsonFile = (name: string, value: unknown): ArchivedFile => textFile(name, `${JSON.stringify(value, null, 2)}\n`);

function readme(manifest: BundleManifest): string {
  const { container, earlierContainers: earlier = [], from, to, unrecordedExpiries = 0, madeAt, treeSize } = manifest;
  return `# What is on record of a container

Container ${JSON.stringify(container['name'])} (rid ${String(container['rid'])}), ${from ?? 'from its beginning'} to ${to ?? 'the end'}, made at ${madeAt}.
${
  earlier.length === 0
    ? ''
    : `\nDeleted containers had this name before. They are different containers: this bundle has nothing about them, and each has a bundle of its own, by its rid. bundle.json names them (\`earlierContainers\`).\n`
}${
    unrecordedExpiries === 0
      ? ''
      : `\nThis bundle lacks some items that left in the period: the expiry of ${unrecordedExpiries} was not recorded yet, because the purge was behind or paused (\`unrecordedExpiries\` in bundle.json). A later bundle has them.\n`
  }
| file | |
| --- | --- |
| bundle.json | container, period and contents of this bundle |
| policies.json | time-to-live policies: in force, scheduled, past |
| holds/*.ndjson | legal holds, released ones too, who placed them and why |
| container-facts/*.ndjson | every fact of the container itself, in order, each with its proof: creation, policies, holds and floors, and who set them and why |
| disappearances/*.csv | what left in the period, when, and by which rule or whom. Put the parts together in order; only the first has column names. Items are named by id and partition key |
| certificates/*.ndjson | a certificate of disposal for every life whose content was erased in the period, up to the time when this bundle was made. (A life of an id goes from its creation to its end.) Lives that were erased while this bundle was made may be in the tables without a certificate; a later bundle has it. Items are named only by keyed hashes |
| checkpoint.txt | the signed head of the tree of all ${treeSize} permanent facts of the store, to which all proofs lead |
| verifier-key.txt | the public key of the checkpoint's signature, according to this store |

The bundle has no content of items. Facts of the container and certificates have proofs; policies.json, holds and disappearances have none of their own.
If a line has the format \`epitaph.unproven/1\`, the event log is damaged there: the line stands in the place of a fact or a certificate, and says why
there is none.

## Checking it

With Epitaph's sources on any machine, without the store (\`epitaph\` stands for \`npm run -s epitaph --\` in their folder):

    epitaph verify bundle <this archive> --public-key <key>

Use the key that you have kept from earlier, not the one in this archive: whoever can forge the archive can forge the key in it.
If you kept a checkpoint earlier, compare it with the store itself: epitaph verify log --checkpoint <file> --public-key <key>.
`;
}
