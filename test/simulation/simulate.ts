import { numberFlags } from '../support/number-flags.ts';
import { FailedRun, simulate } from './simulation.ts';

const USAGE =
  'npm run simulate -- [--seed 1] [--count 200] [--length 60]\n\nThat many runs from the seed on, each of so many commands. Ends with 1 at the first that fails, and says how to replay it.';
const { seed: first, count, length } = numberFlags(USAGE, { seed: 1, count: 200, length: 60 });
const startedMs = performance.now();
let [commands, crashes, faults, restores] = [0, 0, 0, 0];
for (let seed = first; seed < first + count; seed++) {
  try {
    const report = await simulate(seed, length);
    commands += report.commands;
    crashes += report.crashes;
    faults += report.faults;
    restores += report.restores;
  } catch (error) {
    process.stderr.write(`${error instanceof FailedRun ? error.message : String((error as Error).stack)}\n`);
    process.exit(1);
  }
  if ((seed - first + 1) % 100 === 0) process.stdout.write(`${seed - first + 1} of ${count}\n`);
}
const seconds = (performance.now() - startedMs) / 1000;
process.stdout.write(
  `${count} runs from seed ${first}: ${commands} commands, ${crashes} crashes, ${faults} faults, ${restores} restores, no divergence, ${seconds.toFixed(1)} s\n`,
);
process.exit(0);
