import { parseArgs } from 'node:util';
import { FailedRun, simulate } from './simulation.ts';

/** `npm run simulate -- --seed N --count M [--length L]`: M runs from seed N on. Ends with 1 at the first that fails. */
const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    count: { type: 'string', default: '200' },
    length: { type: 'string', default: '60' },
  },
});
const first = Number(values.seed);
const count = Number(values.count);
const startedMs = performance.now();
let [commands, crashes, faults, restores] = [0, 0, 0, 0];
for (let seed = first; seed < first + count; seed++) {
  try {
    const report = await simulate(seed, Number(values.length));
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
