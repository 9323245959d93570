import { fileURLToPath } from 'node:url';
import { join } from 'node:path';

const BENCH_FOLDER = fileURLToPath(new URL('..', import.meta.url));

/** Everything that benches leave on the disk, except for results. Not in version control, and safe to delete. */
export const PEERS_FOLDER = join(BENCH_FOLDER, '.peers');
/** Seeded data folders, which benches copy. */
export const DATA_FOLDER = join(PEERS_FOLDER, 'data');
/** The working folder of a run. It is on the project's disk: in a temporary folder in memory every fsync would be free. */
export const SCRATCH_FOLDER = join(PEERS_FOLDER, 'scratch');
export const RESULTS_FOLDER = join(BENCH_FOLDER, 'results');
