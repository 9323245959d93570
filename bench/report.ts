/** Renders results as the markdown table of docs/benchmarks.md: `node bench/report.ts bench/results/….json`. */
import { readFileSync } from 'node:fs';
import type { Row, Target } from './support/bench.ts';

export interface Results {
  readonly date: string;
  readonly cpu: string;
  readonly memoryBytes: number;
  readonly platform: string;
  readonly node: string;
  readonly sqlite: string;
  readonly commit: string;
  /** Versions of the peers' packages. */
  readonly packages: Readonly<Record<string, string>>;
  readonly rounds: number;
  readonly seconds: number;
  readonly full: boolean;
  readonly loadBefore: number;
  readonly rows: readonly Row[];
}

const COLUMNS = ['#', 'work', 'ours', 'peer', 'ratio (min–max)', 'target', 'reached'] as const;

/** The table as a terminal shows it. */
export function textTable(results: Results): string {
  const lines = [[...COLUMNS], ...results.rows.map(cells)];
  const widths = COLUMNS.map((_, column) => Math.max(...lines.map((line) => line[column]!.length)));
  const table = lines.map((line) =>
    line
      .map((cell, column) => cell.padEnd(widths[column]!))
      .join('  ')
      .trimEnd(),
  );
  return ['', conditions(results), '', ...table, ...notes(results.rows), ''].join('\n');
}

/** The table for a page. */
export function markdownTable(results: Results): string {
  const line = (columns: readonly string[]) => `| ${columns.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [
    conditions(results),
    '',
    line(COLUMNS),
    line(COLUMNS.map(() => '---')),
    ...results.rows.map((row) => line(cells(row))),
    '',
    ...notes(results.rows).filter((note) => note !== ''),
    '',
  ].join('\n');
}

function conditions({
  date,
  cpu,
  memoryBytes,
  platform,
  node,
  sqlite,
  commit,
  packages,
  rounds,
  seconds,
  full,
  loadBefore,
}: Results) {
  const peers = Object.entries(packages).map(([name, version]) => `${name} ${version}`);
  return [
    `${date.slice(0, 16).replace('T', ' ')} UTC, ${cpu}, ${Math.round(memoryBytes / 2 ** 30)} GiB, ${platform}, Node.js ${node}, SQLite ${sqlite}, commit ${commit}.`,
    `${rounds} rounds of about ${seconds} s a side${full ? '' : ', small sizes'}; load average before: ${loadBefore.toFixed(1)}.`,
    peers.length === 0 ? '' : `Peers: ${peers.join(', ')}.`,
  ]
    .filter((sentence) => sentence !== '')
    .join(' ');
}

function cells({ bench, work, unit, ours, peer, ratio, target, reached }: Row): string[] {
  return [
    bench,
    work,
    ours === null ? '–' : figure(ours, unit),
    peer === null ? '–' : `${peer.name}: ${peer.value === null ? 'not measured' : figure(peer.value, unit)}`,
    ratio === null ? '–' : `${short(ratio.median)} × (${short(ratio.min)}–${short(ratio.max)})`,
    target === null ? '–' : targetText(target, unit),
    reached === null ? '–' : reached ? 'yes' : 'no',
  ];
}

function targetText({ of, is, limit }: Target, unit: string): string {
  return `${is === 'at-least' ? '≥' : '≤'} ${of === 'ratio' ? `${limit} ×` : figure(limit, unit)}`;
}

function figure(value: number, unit: string): string {
  const text = Math.abs(value) >= 1000 ? Math.round(value).toLocaleString('en') : short(value);
  return unit.startsWith('/') ? `${text}${unit}` : `${text} ${unit}`;
}

function short(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function notes(rows: readonly Row[]): string[] {
  const found = rows.filter((row) => row.note !== undefined);
  return found.length === 0
    ? []
    : [
        '',
        ...found.map(
          (row) => `- ${row.bench}, ${row.work}${row.peer === null ? '' : `, ${row.peer.name}`}: ${row.note}`,
        ),
      ];
}

if (import.meta.main) {
  const file = process.argv[2];
  if (file === undefined) throw new Error('Give the JSON file that a run has written: node bench/report.ts <file>');
  console.log(markdownTable(JSON.parse(readFileSync(file, 'utf8')) as Results));
}
