import { numberFlags } from '../support/number-flags.ts';
import { killRounds } from './kill-rounds.ts';

const USAGE =
  'npm run kill-test -- [--rounds 50] [--seed <number>]\n\nKills a store under load so many times. Ends with 1 when anything was lost.';
const { rounds, seed } = numberFlags(USAGE, { rounds: 50, seed: Date.now() % 1_000_000 });
process.stdout.write(`seed ${seed}\n`);
try {
  const report = await killRounds(rounds, seed, (line) => process.stdout.write(`${line}\n`));
  process.stdout.write(
    `${report.rounds} kills: ${report.acknowledged} acknowledged writes, none lost; ${report.open} open, of which ${report.happened} had happened; ${report.held} held contents, all there; ${report.purged} lives purged after the kills; fsck clean each time\n`,
  );
} catch (error) {
  process.stderr.write(`${(error as Error).message}\n`);
  process.exit(1);
}
