import { allDone } from '@epitaph/core/all-done.ts';
import { turn } from '@epitaph/core/turn.ts';

/** Rows after which the event loop is given free. */
const STEP_SIZE = 8;

/** Works a batch off concurrently, so that its appends share transactions, but gives way after every few rows. */
export async function stepwise<Row>(rows: readonly Row[], work: (row: Row) => Promise<void>): Promise<void> {
  const under: Promise<void>[] = [];
  for (let index = 0; index < rows.length; index++) {
    const one = work(rows[index]!);
    // Failures are reported to whoever waits for all of them, below; until then nobody waits.
    one.catch(() => {});
    under.push(one);
    if (index % STEP_SIZE === STEP_SIZE - 1) await turn();
  }
  await allDone(under);
}
