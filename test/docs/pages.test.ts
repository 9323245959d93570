import { execFileSync } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { charge } from '@epitaph/api/request-units/charge.ts';
import { refusalShapes } from '@epitaph/api/cosmos/errors.ts';
import { managementCodes, Problem, problemDetails, type ProblemCode } from '@epitaph/api/management/problems.ts';
import { errorCodes, type ErrorCode } from '@epitaph/core/errors.ts';
import { expiryOf } from '@epitaph/core/ttl/expiry.ts';
import { anchorsOf, pages, prose, readPage, ROOT, tableAfter } from './markdown.ts';
import { MAIN } from '../../packages/api/test/cli/process.ts';

describe('the pages of the documentation', () => {
  test('link only to existing files and headings', () => {
    const broken: string[] = [];
    for (const page of pages()) {
      for (const [, target] of prose(readPage(page)).matchAll(/\]\(([^)\s]+)\)/g)) {
        if (/^[a-z]+:/.test(target!)) continue;
        const [file, anchor] = target!.split('#') as [string, string | undefined];
        const linked = file === '' ? page : path.posix.join(path.posix.dirname(page), file);
        const there = existsSync(path.join(ROOT, linked));
        if (!there || (anchor !== undefined && !anchorsOf(readPage(linked)).has(anchor))) {
          broken.push(`${page}: ${target}`);
        }
      }
    }
    expect(broken).toEqual([]);
  });

  test('exist if the program, its containers or its alerts name them', () => {
    const sources = globSync(
      ['packages/*/src/**/*.ts', 'bench/**/*.ts', 'deploy/*', 'docs/*.yaml', 'compose.yaml', 'Dockerfile'],
      { cwd: ROOT, exclude: ['**/node_modules'] },
    );
    const named = new Set(
      sources.flatMap((file) => readFileSync(path.join(ROOT, file), 'utf8').match(/\bdocs\/[\w./-]+\.md\b/g) ?? []),
    );
    expect(named.size).toBeGreaterThan(5);
    expect([...named].filter((page) => !existsSync(path.join(ROOT, page)))).toEqual([]);
  });

  test('are all reached from the README', () => {
    const reached = new Set<string>(['README.md', 'llms.txt']);
    for (const page of reached) {
      for (const [, target] of prose(readPage(page)).matchAll(/\]\(([^)\s#]+\.md)/g)) {
        if (!/^[a-z]+:/.test(target!)) reached.add(path.posix.join(path.posix.dirname(page), target!));
      }
    }
    expect([...reached].sort()).toEqual(pages().sort());
  });

  test('are all named in llms.txt', () => {
    const named = new Set([...readPage('llms.txt').matchAll(/\]\(([^)\s]+)\)/g)].map(([, target]) => target));
    const others = ['llms.txt', 'docs/adr/README.md'];
    expect(pages().filter((page) => !named.has(page) && !others.includes(page))).toEqual([]);
  });
});

describe('docs/errors.md', () => {
  test('has the codes of the catalogue with their meanings and numbers, and no others', () => {
    const rows = Object.entries(errorCodes).map(([code, meaning]) => {
      const { status, code: word, substatus } = refusalShapes[code as ErrorCode];
      const wire = substatus === undefined ? `${status} ${word}` : `${status} ${word}, substatus ${substatus}`;
      return [`\`${code}\``, meaning, wire, String(managementStatus(code as ErrorCode))];
    });
    expect(tableAfter(readPage('docs/errors.md'), 'checked: errors')).toEqual(rows);
  });

  test('has the additional codes of the management calls', () => {
    const rows = Object.entries(managementCodes).map(([code, meaning]) => [
      `\`${code}\``,
      meaning,
      String(managementStatus(code as ProblemCode)),
    ]);
    expect(tableAfter(readPage('docs/errors.md'), 'checked: management errors')).toEqual(rows);
  });
});

function managementStatus(code: ProblemCode): number {
  return problemDetails(new Problem(code), 'x').status;
}

describe('docs/operations.md', () => {
  const text = readPage('docs/operations.md');

  test('names every option of serve --help, and no others', () => {
    const help = execFileSync(process.execPath, [MAIN, 'serve', '--help'], { encoding: 'utf8' });
    const offered = Array.from(help.matchAll(/^ +--([a-z-]+)/gm), ([, name]) => name!);
    const shown = Array.from(text.matchAll(/^\| `--([a-z-]+)/gm), ([, name]) => name!);
    expect(shown).toEqual([...offered, 'help']);
  });
});

describe('docs/management.md', () => {
  const text = readPage('docs/management.md');

  test('names every command, and no others', () => {
    const help = execFileSync(process.execPath, [MAIN, '--help'], { encoding: 'utf8' });
    const offered = Array.from(help.matchAll(/^ {2}([a-z-]+)/gm), ([, name]) => name!);
    const table = text.slice(text.indexOf('| command | for |'), text.indexOf('Commands take `--endpoint`'));
    const shown = Array.from(table.matchAll(/^\| (`.*?) \|/gm), ([, names]) => names!.match(/[a-z-]+/g)!).flat();
    expect(shown.toSorted()).toEqual(offered.toSorted());
  });
});

describe('docs/troubleshooting.md', () => {
  const text = readPage('docs/troubleshooting.md');

  test('explains every problem code of fsck', () => {
    const source = readFileSync(path.join(ROOT, 'packages/projections/src/fsck/examination.ts'), 'utf8');
    const union = /readonly code:((?:\s*\| '[a-z-]+')+)/.exec(source)![1]!;
    const codes = Array.from(union.matchAll(/'([a-z-]+)'/g), ([, code]) => code!);
    expect(codes.length).toBeGreaterThan(5);
    expect(codes.filter((code) => !text.includes(`| \`${code}\` |`))).toEqual([]);
  });
});

describe('docs/architecture.md', () => {
  const text = readPage('docs/architecture.md');

  test('names every kind of event, and no others', () => {
    const sources = globSync('packages/{core,projections}/src/**/*.ts', { cwd: ROOT })
      .map((file) => readFileSync(path.join(ROOT, file), 'utf8'))
      .join('');
    const types = Array.from(
      sources.matchAll(/(?:[sS]chemas|Versions) = \{[^}]*\}|readonly type:(?:\s*\|?\s*'[A-Z]\w+')+;/g),
      ([list]) => list.match(/\b(?!Record)[A-Z]\w+(?:ed|en|Read)\b/g) ?? [],
    ).flat();
    const section = text.slice(text.indexOf('## Events'), text.indexOf('Every event carries'));
    const shown = Array.from(section.matchAll(/`([A-Z]\w+)`/g), ([, name]) => name!);
    expect(types.length).toBeGreaterThan(40);
    expect(types.filter((type) => !shown.includes(type))).toEqual([]);
    expect(shown.filter((type) => !sources.includes(`'${type}'`))).toEqual([]);
  });

  test('names only existing files', () => {
    const files = Array.from(text.matchAll(/`((?:api|core|projections|storage|test)\/[^`\s]+)`/g), ([, file]) => file!);
    expect(files.length).toBeGreaterThan(10);
    expect(files.filter((file) => globSync(`{.,packages}/${file}`, { cwd: ROOT }).length === 0)).toEqual([]);
  });
});

test('docs/request-units.md: operations cost what the page says', () => {
  const costs: Readonly<Record<string, (bytes: number) => number>> = {
    'point read': charge.pointRead,
    'create, upsert, replace, patch, 10 indexed values': (bytes) => charge.write(bytes, 10),
    'the same without an index': (bytes) => charge.write(bytes, 0),
    'delete, by a client or by TTL': charge.delete,
    'page of a query that looked at 1 document': (bytes) => charge.query(1, bytes),
    'page of a query that looked at 100 documents': (bytes) => charge.query(100, bytes),
    'page of the change feed with 10 changes': (bytes) => charge.changeFeed(10, bytes),
  };
  const rows = Object.entries(costs).map(([name, cost]) => [
    name,
    ...[1, 10, 100].map((kilobytes) => String(cost(kilobytes * 1024))),
  ]);
  const page = readPage('docs/request-units.md');
  expect(tableAfter(page, 'checked: charges')).toEqual(rows);
  expect(page).toContain(`${charge.refusedRead} for a read (also 304 and 404), ${charge.refusedWrite} for a write`);
  expect(page).toContain(`A 429 reports ${charge.throttled} `);
});

test('docs/request-units.md: operations of any size cost what its formulas give', () => {
  const costs: Readonly<Record<string, (bytes: number) => number>> = {
    'point read': charge.pointRead,
    'create, upsert, replace, patch': (bytes) => charge.write(bytes, 7),
    delete: charge.delete,
    'page of a query': (bytes) => charge.query(40, bytes),
    'page of the change feed': (bytes) => charge.changeFeed(3, bytes),
  };
  const counts = { 'indexed value': 7, 'document looked at': 40, change: 3 };
  /** Evaluates a formula such as `5.09 + 0.1 for each indexed value + 1/11 for each kilobyte beyond the first`. */
  const evaluate = (formula: string, kilobytes: number): number => {
    const each: Readonly<Record<string, number>> = { ...counts, 'kilobyte beyond the first': kilobytes - 1 };
    const terms = formula.split(' + ').map((term) => {
      const [factor, of] = term.split(' for each ');
      const [numerator, denominator = 1] = factor!.split('/').map(Number);
      return (numerator! / denominator) * (of === undefined ? 1 : each[of]!);
    });
    return terms.reduce((sum, term) => sum + term, 0);
  };
  const rows = tableAfter(readPage('docs/request-units.md'), 'checked: formulas');
  expect(rows.map(([name]) => name)).toEqual(Object.keys(costs));
  for (const [name, formula] of rows) {
    for (const kilobytes of [1, 2, 17, 300]) {
      // The last kilobyte has only begun.
      const bytes = (kilobytes - 1) * 1024 + 1;
      expect(costs[name!]!(bytes), `${name} of ${bytes} bytes`).toBeCloseTo(evaluate(formula!, kilobytes), 1);
    }
  }
});

test('docs/semantics.md: the item of every example ends when the page says, for the reason that it says', () => {
  const rows = tableAfter(readPage('docs/semantics.md'), 'checked: expiry').filter(([, written]) => written !== '');
  expect(rows.length).toBeGreaterThan(10);
  for (const [policies, written, ttl, leaves, because] of rows) {
    const timeline = policies!.split(', ').map((policy, index) => {
      const [from, value] = policy.split(' ');
      return { fromMs: timeOf(from!), defaultTtl: value === 'off' ? null : Number(value), version: index + 1 };
    });
    const ts = Math.floor(timeOf(written!) / 1000);
    const expiry = expiryOf({ ts, ttl: ttl === 'absent' ? null : Number(ttl) }, timeline);
    const row = `${policies} | ${written} | ${ttl}`;
    expect(expiry?.expiredAtMs, row).toBe(leaves === 'never' ? undefined : timeOf(leaves!));
    if (expiry === undefined) continue;
    expect(because, row).toContain(expiry.rule === 'item-ttl' ? 'its own ttl' : 'container default');
    expect(because!.includes("by the policy's start"), row).toBe(expiry.byPolicyStart);
  }
});

const timeOf = (text: string): number => Date.parse(`2026-03-01T${text}Z`);

test('docs/adr/0007-dependencies.md has a reason for every dependency', () => {
  const page = readPage('docs/adr/0007-dependencies.md');
  const files = ['package.json', ...globSync('{packages/*,test,bench,examples}/package.json', { cwd: ROOT })];
  const names = files.flatMap((file) => {
    const { dependencies, devDependencies } = JSON.parse(readFileSync(path.join(ROOT, file), 'utf8')) as Record<
      string,
      Record<string, string> | undefined
    >;
    return Object.keys({ ...dependencies, ...devDependencies }).filter((name) => !name.startsWith('@epitaph/'));
  });
  expect([...new Set(names)].filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
});
