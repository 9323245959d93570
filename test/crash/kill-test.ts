import { parseArgs } from 'node:util';
import { killRounds } from './kill-rounds.ts';

/** `npm run kill-test -- [--rounds 50] [--seed N]`: kills a store under load so many times. Ends with 1 when anything was lost. */
const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '50' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
  },
});
process.stdout.write(`seed ${values.seed}\n`);
try {
  const report = await killRounds(Number(values.rounds), Number(values.seed), (line) =>
    process.stdout.write(`${line}\n`),
  );
  process.stdout.write(
    `${report.rounds} kills: ${report.acknowledged} acknowledged writes, none lost; ${report.open} open, of which ${report.happened} had happened; ${report.held} held contents, all there; ${report.purged} lives purged after the kills; fsck clean each time\n`,
  );
} catch (error) {
  process.stderr.write(`${(error as Error).message}\n`);
  process.exit(1);
}
