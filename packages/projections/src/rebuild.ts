import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { Catalog } from './catalog/catalog.ts';
import { changesOf } from './changes.ts';
import type { ReadModelStore, ReadModelVersions } from './read-model-store.ts';

const PAGE_SIZE = 2_000;
/** Above this many rows the versions are compared by their counts alone: a digest would hold the event loop. */
const DIGEST_LIMIT = 100_000;

export interface RebuildProgress {
  readonly phase: 'reading' | 'comparing';
  readonly version: number;
  readonly position: number;
  readonly headPosition: number;
}

export interface RebuildOptions {
  readonly log: EventLog;
  readonly versions: ReadModelVersions;
  readonly signal: AbortSignal;
  readonly onProgress: (progress: RebuildProgress) => void;
  /**
   * Runs a step while the live projector stands still, so that old and new can be compared and swapped at the same
   * position. Reads go on meanwhile, and writes wait for the moment.
   */
  readonly whileProjectorStops: (step: () => Promise<void>) => Promise<void>;
}

export interface RebuildResult {
  readonly version: number;
  /** What was found different from the version that was in use; empty when equal. */
  readonly differences: readonly string[];
}

/**
 * Builds a new version of the read models from the log, beside the one in use, and swaps them when it has caught
 * up. A crash before the swap leaves the old version in use; the half-built one is thrown away at the next start.
 *
 * @throws the signal's reason when it is aborted; the half-built version is discarded.
 */
export async function rebuild(options: RebuildOptions): Promise<RebuildResult> {
  const { log, versions, signal, onProgress } = options;
  const next = await versions.createNext();
  let swapped = false;
  try {
    const catalog = await Catalog.load(next.store);
    let position = 0;
    const readOn = async () => {
      for (;;) {
        signal.throwIfAborted();
        const events = await log.readAll(position, PAGE_SIZE, { withBodies: false });
        if (events.length === 0) return;
        position = events.at(-1)!.position;
        await next.store.apply(changesOf(events, catalog), position);
        onProgress({ phase: 'reading', version: next.version, position, headPosition: await log.head() });
        // Requests come first: a rebuild gives way after each page.
        await new Promise((resolve) => setImmediate(resolve));
      }
    };
    await readOn();
    let differences: string[] = [];
    await options.whileProjectorStops(async () => {
      const liveCheckpoint = await versions.current.store.checkpoint();
      await readOn();
      onProgress({ phase: 'comparing', version: next.version, position, headPosition: await log.head() });
      // If the live one stands behind (it had a fault), only the new one is complete: there is nothing to compare.
      if (liveCheckpoint === (await next.store.checkpoint())) {
        differences = await compare(versions.current.store, next.store);
      }
      signal.throwIfAborted();
      await versions.swapTo(next.version);
      swapped = true;
    });
    return { version: next.version, differences };
  } finally {
    if (!swapped) await versions.discard(next.version);
  }
}

async function compare(live: ReadModelStore, built: ReadModelStore): Promise<string[]> {
  const differences: string[] = [];
  let rows = 0;
  for (const { number, state } of await live.containers()) {
    const [before, after] = [await live.countItems(number), await built.countItems(number)];
    rows += before;
    if (before !== after) {
      differences.push(`container ${state.name}: ${before} items before, ${after} rebuilt`);
    }
  }
  if (differences.length === 0 && rows <= DIGEST_LIMIT && (await live.digest()) !== (await built.digest())) {
    differences.push('the contents differ in a row that both have');
  }
  return differences;
}
