/**
 * Runs benches and prints their table; `--help` says how it is called.
 *
 * Each side of a comparison is a process of its own. The sides take turns in short slices, so that other load on the machine
 * affects all of them. Ratios are ratios of the medians over the rounds.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, loadavg, totalmem } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { type Bench, type BenchContext, type Row, Unavailable } from './support/bench.ts';
import { RunningContender } from './support/contender.ts';
import { RESULTS_FOLDER, SCRATCH_FOLDER } from './support/folders.ts';
import { peerVersions } from './support/peers.ts';
import { printProfiles, readProfiles } from './support/profile.ts';
import { type Results, textTable } from './report.ts';

const FILES = [
  'p01-durable-upserts',
  'p02-point-reads',
  'p03-through-the-client',
  'p04-over-http',
  'p05-queries',
  'p06-policy-change',
  'p07-purge',
  'p08-rebuild',
  'p09-memory',
  'p10-explain',
  'p11-disk',
  'p12-event-store-appends',
];

/** `P1` for `p01-durable-upserts`. */
const idOf = (file: string): string => `P${Number(file.slice(1, 3))}`;

const USAGE = `npm run bench -- [P1 P2 …] [options]

  --rounds <number>    rounds of each comparison; 5
  --seconds <number>   about how long each side is measured in a round; 2
  --full               the sizes of the targets: a million items; takes minutes, and gigabytes in bench/.peers
  --fill               only writes the data that benches start with; it is kept for later runs
  --profile            only our side, under V8's CPU profiler: where each thread spends its time
  --top <number>       with --profile: the number of functions for each thread; 25
  --json <file>        the file for the results; bench/results/<time>.json
  --help               prints this`;

const { values, positionals } = flags();

function flags() {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        rounds: { type: 'string', default: '5' },
        seconds: { type: 'string', default: '2' },
        json: { type: 'string' },
        full: { type: 'boolean', default: false },
        fill: { type: 'boolean', default: false },
        profile: { type: 'boolean', default: false },
        top: { type: 'string', default: '25' },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
    if (values.help) {
      console.log(USAGE);
      process.exit(0);
    }
    for (const name of ['rounds', 'seconds', 'top'] as const) {
      if (!(Number(values[name]) > 0)) throw new Error(`--${name} is a number above 0.`);
    }
    const unknown = positionals.filter((id) => !FILES.some((file) => idOf(file) === id.toUpperCase()));
    if (unknown.length > 0) {
      throw new Error(`There is no bench ${unknown.join(', ')}; there are ${FILES.map(idOf).join(', ')}.`);
    }
    return { values, positionals };
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n\n${USAGE}\n`);
    process.exit(2);
  }
}

const run = join(SCRATCH_FOLDER, String(process.pid));
const profiled: { contender: RunningContender; folder: string }[] = [];
const running = new Set<RunningContender>();
const cleanUps: (() => void)[] = [];
let folders = 0;

const context: BenchContext = {
  rounds: Number(values.rounds),
  seconds: Number(values.seconds),
  full: values.full,
  profiling: values.profile,
  scratch: (name) => {
    const folder = join(run, `${++folders}-${name}`);
    mkdirSync(folder, { recursive: true });
    return folder;
  },
  ours: async (module, factory, options = {}) => {
    if (!values.profile) return start(module, factory, options, []);
    const folder = context.scratch('profile');
    const contender = await start(module, factory, options, ['--cpu-prof', `--cpu-prof-dir=${folder}`]);
    profiled.push({ contender, folder });
    return contender;
  },
  peer: async (module, factory, options = {}) => {
    if (values.profile) return new Unavailable('left out while profiling');
    try {
      return await start(module, factory, options, []);
    } catch (error) {
      return new Unavailable((error as Error).message.split('\n')[0]!);
    }
  },
  atEnd: (cleanUp) => {
    cleanUps.push(cleanUp);
  },
  say: (text) => {
    process.stderr.write(`${text}\n`);
  },
};

async function start(
  module: string,
  factory: string,
  options: Parameters<BenchContext['ours']>[2] & object,
  execArgv: readonly string[],
): Promise<RunningContender> {
  const contender = await RunningContender.start({ module, factory, options, execArgv });
  running.add(contender);
  return contender;
}

async function chosenBenches(): Promise<Bench[]> {
  const wanted = new Set(positionals.map((id) => id.toUpperCase()));
  const chosen: Bench[] = [];
  for (const file of FILES) {
    if (wanted.size > 0 && !wanted.has(idOf(file))) continue;
    chosen.push(((await import(`./${file}.ts`)) as { bench: Bench }).bench);
  }
  return chosen;
}

function commit(): string {
  try {
    const git = (...args: string[]) =>
      execFileSync('git', args, { cwd: import.meta.dirname })
        .toString()
        .trim();
    return `${git('rev-parse', '--short', 'HEAD')}${git('status', '--porcelain', '--', '../packages') === '' ? '' : ' with changes'}`;
  } catch {
    return 'unknown';
  }
}

async function main(): Promise<void> {
  const date = new Date().toISOString();
  const rows: Row[] = [];
  const loadBefore = loadavg()[0]!;
  for (const bench of await chosenBenches()) {
    context.say(`${bench.id}: ${bench.title}`);
    for (const items of bench.seeds?.(context.full) ?? []) {
      const seeder = await start(import.meta.resolve('./support/epitaph.ts'), 'seeder', { items }, []);
      await seeder.close();
    }
    if (values.fill) continue;
    rows.push(...(await bench.run(context)));
    for (const contender of running) await contender.close();
    running.clear();
    for (const { contender, folder } of profiled.splice(0)) {
      console.log(`\n${bench.id}, process ${contender.pid}`);
      console.log(printProfiles(readProfiles(folder, contender.windows), Number(values.top)));
    }
    cleanUp();
  }
  if (values.fill) return;
  const results: Results = {
    date,
    cpu: `${cpus().length} × ${cpus()[0]!.model}`,
    memoryBytes: totalmem(),
    platform: `${process.platform} ${process.arch}`,
    node: process.version,
    sqlite: process.versions['sqlite'] ?? 'unknown',
    commit: commit(),
    packages: peerVersions(),
    rounds: context.rounds,
    seconds: context.seconds,
    full: context.full,
    // Shows other work on the machine: on an idle one it is near 0.
    loadBefore,
    rows,
  };
  console.log(textTable(results));
  if (values.profile) return;
  mkdirSync(RESULTS_FOLDER, { recursive: true });
  const file = values.json ?? join(RESULTS_FOLDER, `${date.replaceAll(':', '-')}.json`);
  writeFileSync(file, `${JSON.stringify(results, null, 2)}\n`);
  console.log(`written to ${file}`);
}

function cleanUp(): void {
  for (const end of cleanUps.splice(0)) end();
  rmSync(run, { recursive: true, force: true });
}

try {
  await main();
} finally {
  for (const contender of running) await contender.close();
  cleanUp();
}
