import { allDone } from '@epitaph/core/all-done.ts';
import { turn } from '@epitaph/core/turn.ts';

/** After this many rows other work on the event loop gets its turn. */
const STEP_SIZE = 8;

/** Works on a batch concurrently, so that its appends share transactions, but gives way to other work after every few rows. */
export async function stepwise<Row>(rows: readonly Row[], work: (row: Row) => Promise<void>): Promise<void> {
  const under: Promise<void>[] = [];
  for (let index = 0; index < rows.length; index++) {
    const one = work(rows[index]!);
    // Failures are thrown below, where all promises are awaited. Until then nobody handles them.
    one.catch(() => {});
    under.push(one);
    if (index % STEP_SIZE === STEP_SIZE - 1) await turn();
  }
  await allDone(under);
}
