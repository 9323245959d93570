import { fileURLToPath } from 'node:url';
import { join } from 'node:path';

const BENCH_FOLDER = fileURLToPath(new URL('..', import.meta.url));

/** Everything that benches leave on the disk besides results; not in version control, and safe to delete. */
export const PEERS_FOLDER = join(BENCH_FOLDER, '.peers');
/** Seeded data folders, to be copied. */
export const DATA_FOLDER = join(PEERS_FOLDER, 'data');
/** What a run works in; on the project's disk, because a temporary folder in memory would make every fsync free. */
export const SCRATCH_FOLDER = join(PEERS_FOLDER, 'scratch');
export const RESULTS_FOLDER = join(BENCH_FOLDER, 'results');
