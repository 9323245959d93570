import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '..');

/** Which packages a package's sources may import besides itself. Nothing imports api. */
const ARROWS: Readonly<Record<string, readonly string[]>> = {
  core: [],
  query: [],
  scripts: [],
  projections: ['core'],
  storage: ['core', 'projections', 'query'],
  api: ['core', 'projections', 'query', 'scripts', 'storage'],
};

/** The folders of query, from the lowest to the highest. Each imports only those before it. */
const QUERY_FLOORS = ['values', 'regex', 'functions', 'language', 'run', 'compile', 'pages'];

/**
 * The folders of the store, from the lowest to the highest. Each imports only those before it, and the files beside them import none of
 * them. The store itself, which assembles them, imports all.
 */
const STORE_FLOORS = ['api', '', 'items', 'queries', 'operations', 'retention', 'change-feed', 'history', 'catalog'];
const STORE = 'packages/api/src/store/store.ts';

/** The files within api that may know which storage adapter is in use. */
const COMPOSITION = [
  /^packages\/api\/src\/cli\//,
  /^packages\/api\/src\/main\.ts$/,
  /^packages\/api\/src\/compose\.ts$/,
];

/** The files within api that use the store. Neither the store nor anything that it consists of may import them. */
const ASKERS = /^packages\/api\/src\/(?:cli|cosmos|http|management)\//;

/** The files that may read the time or set a timer, and why. All other code gets the time in a command. */
const MAY_KEEP_TIME = new Set([
  // The one source of time.
  'packages/core/src/clock.ts',
  // The one timer: it wakes the purge.
  'packages/projections/src/purge/runner.ts',
  // Polls progress, and bounds the time of a stop. Nothing that happens to items depends on it.
  'packages/api/src/wait.ts',
  // Measures the delay of the event loop, for monitoring.
  'packages/api/src/metrics/process-metrics.ts',
  // The instant by which a token is judged, in the form that the library needs. Its value comes from the clock.
  'packages/api/src/http/identities.ts',
  // Limits the time of a script. Apart from the end of the script, nothing in the store depends on it.
  'packages/scripts/src/engine.ts',
  'packages/scripts/src/prelude.ts',
  'packages/scripts/src/thread-pool.ts',
  // Waits for a remote server: for its answer, before another attempt, and to find out whether it is still there.
  'packages/storage/src/patience.ts',
  // The latest time for rows to go into their file. Readers see them before.
  'packages/storage/src/sqlite/write-behind.ts',
]);

interface Source {
  /** The path from the root, with slashes. */
  readonly file: string;
  /** The code without comments. */
  readonly code: string;
}

/** A comment, string or template, whichever begins first. Good enough for formatted sources, and it needs no parser. */
const TOKENS = /\/\*[\s\S]*?\*\/|\/\/[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`/g;

function withoutComments(text: string): string {
  return text.replaceAll(TOKENS, (token) => (token.startsWith('/') ? ' ' : token));
}

/** Keeps names only: strings are emptied, and expressions in templates stay. */
function withoutStrings(code: string): string {
  return code.replaceAll(TOKENS, (token) =>
    token.startsWith('`') ? [...token.matchAll(/\$\{([^}]*)\}/g)].map((part) => part[1]).join(' ') : "''",
  );
}

function importsOf(code: string): string[] {
  const statements = /^\s*(?:import|export)\b[^'"`;]*?\bfrom\s*['"]([^'"]+)['"]|^\s*import\s*['"]([^'"]+)['"]/gm;
  const calls = /\bimport\(\s*['"]([^'"]+)['"]/g;
  return [...code.matchAll(statements), ...code.matchAll(calls)].map((match) => match[1] ?? match[2] ?? '');
}

/** The file that an import refers to, as a path from the root; undefined for one outside the project. */
function resolveImport(from: string, specifier: string): string | undefined {
  if (specifier.startsWith('.')) return path.posix.join(path.posix.dirname(from), specifier);
  const [, name, rest] = /^@epitaph\/([^/]+)(?:\/(.+))?$/.exec(specifier) ?? [];
  return name === undefined ? undefined : `packages/${name}/src/${rest ?? 'index.ts'}`;
}

function packageOf(file: string): string | undefined {
  return /^packages\/([^/]+)\//.exec(file)?.[1];
}

function timeKeptIn(code: string): string[] {
  const names =
    /(?<![.\w])(?:globalThis\.)?(?:Date|performance|setTimeout|setInterval)\b|\bprocess\.(?:hrtime|uptime)\b/g;
  const modules = importsOf(code).filter((specifier) => /^(?:node:)?(?:timers|perf_hooks)(?:\/|$)/.test(specifier));
  return [...Array.from(withoutStrings(code).matchAll(names), (match) => match[0]), ...modules];
}

function read(pattern: string): Source[] {
  return globSync(pattern, { cwd: ROOT, exclude: (name) => name.includes('node_modules') }).map((file) => ({
    file: file.replaceAll(path.sep, '/'),
    code: withoutComments(readFileSync(path.join(ROOT, file), 'utf8')),
  }));
}

const sources = read('packages/*/src/**/*.ts');
const packageTests = read('packages/*/test/**/*.ts');
const others = read('{test,bench,examples}/**/*.ts');

/** Every import in some sources that breaks a rule, as lines that name both files. */
function complaints(
  of: readonly Source[],
  rule: (file: string, specifier: string, target: string | undefined) => boolean,
): string[] {
  return of.flatMap(({ file, code }) =>
    importsOf(code)
      .filter((specifier) => rule(file, specifier, resolveImport(file, specifier)))
      .map((specifier) => `${file} imports ${specifier}`),
  );
}

describe('the architecture', () => {
  it('covers all code: every package has sources', () => {
    for (const name of Object.keys(ARROWS)) {
      expect(sources.filter((source) => packageOf(source.file) === name).length, name).toBeGreaterThan(3);
    }
    expect(sources.flatMap((source) => importsOf(source.code)).length).toBeGreaterThan(200);
  });

  it('lets packages import along the arrows only', () => {
    expect(
      complaints(sources, (file, _, target) => {
        const [from, to] = [packageOf(file) ?? '', target === undefined ? undefined : packageOf(target)];
        return to !== undefined && to !== from && !(ARROWS[from] ?? []).includes(to);
      }),
    ).toEqual([]);
  });

  it('lets only tests, benches and examples import api', () => {
    expect(
      complaints([...sources, ...packageTests], (file, _, target) => {
        return target !== undefined && packageOf(target) === 'api' && packageOf(file) !== 'api';
      }),
    ).toEqual([]);
  });

  it('lets api name storage adapters only where the store is assembled', () => {
    expect(
      complaints(sources, (file, _, target) => {
        const adapter = target !== undefined && packageOf(target) === 'storage';
        return adapter && packageOf(file) === 'api' && !COMPOSITION.some((allowed) => allowed.test(file));
      }),
    ).toEqual([]);
  });

  it('lets nothing in the store import the protocols and commands that use it', () => {
    const parts = reached(graphOf(sources), (file) => file.startsWith('packages/api/src/store/'));
    expect(
      complaints(
        sources.filter(({ file }) => parts.has(file) && !ASKERS.test(file)),
        (_file, _specifier, target) => target !== undefined && ASKERS.test(target),
      ),
    ).toEqual([]);
  });

  it('keeps core pure: it imports zod and itself, and no node:*', () => {
    expect(
      complaints(
        sources.filter((source) => packageOf(source.file) === 'core'),
        (_, specifier, target) => specifier !== 'zod' && (target === undefined || packageOf(target) !== 'core'),
      ),
    ).toEqual([]);
  });

  it('keeps query free of everything but zod', () => {
    expect(
      complaints(
        sources.filter((source) => packageOf(source.file) === 'query'),
        (_, specifier, target) => specifier !== 'zod' && (target === undefined || packageOf(target) !== 'query'),
      ),
    ).toEqual([]);
  });

  it('lets the folders of query import only lower ones', () => {
    const floorOf = (file: string) => QUERY_FLOORS.indexOf(/^packages\/query\/src\/([^/]+)\//.exec(file)?.[1] ?? '');
    const inFolders = sources.filter(({ file }) => packageOf(file) === 'query' && !/src\/[^/]+$/.test(file));
    expect(inFolders.filter(({ file }) => floorOf(file) === -1)).toEqual([]);
    expect(complaints(inFolders, (file, _, target) => floorOf(target!) > floorOf(file))).toEqual([]);
  });

  it('lets the folders of the store import only lower ones', () => {
    const floorOf = (file: string) =>
      STORE_FLOORS.indexOf(/^packages\/api\/src\/store\/(?:([^/]+)\/)?[^/]+$/.exec(file)?.[1] ?? '');
    const inStore = sources.filter(({ file }) => file.startsWith('packages/api/src/store/') && file !== STORE);
    expect(inStore.filter(({ file }) => floorOf(file) === -1)).toEqual([]);
    const isOfStore = (target: string | undefined) => target?.startsWith('packages/api/src/store/') === true;
    expect(complaints(inStore, (file, _, target) => isOfStore(target) && floorOf(target!) > floorOf(file))).toEqual([]);
  });

  it('imports other packages only by their names', () => {
    expect(
      complaints([...sources, ...packageTests], (file, specifier, target) => {
        if (!specifier.startsWith('.') || target === undefined) return false;
        return packageOf(target) !== packageOf(file);
      }),
    ).toEqual([]);
  });

  it('exports no constant, function or class that no other file imports', () => {
    const importers = Map.groupBy(
      [...sources, ...packageTests, ...others].flatMap(({ file, code }) =>
        importsOf(code).map((specifier) => ({ target: resolveImport(file, specifier), code })),
      ),
      ({ target }) => target,
    );
    expect(
      sources.flatMap(({ file, code }) =>
        exportsOf(code)
          .filter((name) => !(importers.get(file) ?? []).some((importer) => hasWord(importer.code, name)))
          .map((name) => `${file} exports ${name}`),
      ),
    ).toEqual([]);
  });

  it('has no import cycles between files', () => {
    expect(cyclesIn(graphOf(sources))).toEqual([]);
  });

  it('imports TypeScript files by their own names', () => {
    expect(
      complaints([...sources, ...packageTests, ...others], (_, specifier, target) => {
        return specifier.startsWith('.') ? !/\.(?:ts|json)$/.test(specifier) : (target ?? '').endsWith('.js');
      }),
    ).toEqual([]);
  });

  it('reads the time and sets timers only where that is the purpose', () => {
    expect(
      sources
        .filter((source) => !MAY_KEEP_TIME.has(source.file))
        .flatMap(({ file, code }) => timeKeptIn(code).map((name) => `${file} uses ${name}`)),
    ).toEqual([]);
    for (const file of MAY_KEEP_TIME) {
      const source = sources.find((candidate) => candidate.file === file);
      expect(source === undefined ? [] : timeKeptIn(source.code), `${file} needs its permission`).not.toEqual([]);
    }
  });

  it('has no decorators', () => {
    expect(sources.filter(({ code }) => hasDecorator(code)).map((source) => source.file)).toEqual([]);
  });
});

/** The values that a file exports at their definitions. */
function exportsOf(code: string): string[] {
  const names = /^export (?:const|(?:async )?function\*?|(?:abstract )?class) ([\w$]+)/gm;
  return Array.from(code.matchAll(names), (match) => match[1]!);
}

function hasWord(code: string, word: string): boolean {
  return new RegExp(String.raw`(?<![\w$])${word.replaceAll('$', String.raw`\$`)}(?![\w$])`).test(code);
}

function hasDecorator(code: string): boolean {
  return /^\s*@[\w$]+/m.test(withoutStrings(code));
}

function graphOf(of: readonly Source[]): Map<string, readonly string[]> {
  const files = new Set(of.map((source) => source.file));
  return new Map(
    of.map(({ file, code }) => [
      file,
      importsOf(code)
        .map((specifier) => resolveImport(file, specifier))
        .filter((target) => target !== undefined && files.has(target)) as string[],
    ]),
  );
}

/** The files from which to begin, and everything that they import, directly or indirectly. */
function reached(graph: ReadonlyMap<string, readonly string[]>, begins: (file: string) => boolean): Set<string> {
  const files = new Set([...graph.keys()].filter(begins));
  // The set grows while it is iterated over.
  for (const file of files) for (const target of graph.get(file) ?? []) files.add(target);
  return files;
}

/** One line for each import cycle, with the files in it. */
function cyclesIn(graph: ReadonlyMap<string, readonly string[]>): string[] {
  const cycles: string[] = [];
  const done = new Set<string>();
  const trail: string[] = [];
  const visit = (file: string): void => {
    if (done.has(file)) return;
    const at = trail.indexOf(file);
    if (at >= 0) {
      cycles.push([...trail.slice(at), file].join(' → '));
      return;
    }
    trail.push(file);
    for (const target of graph.get(file) ?? []) visit(target);
    trail.pop();
    done.add(file);
  };
  for (const file of graph.keys()) visit(file);
  return cycles;
}

describe('these tests', () => {
  it('recognize every kind of import, and none in comments', () => {
    const code = withoutComments(`
      import { a } from './a.ts'; // import './not.ts'
      import type {
        b,
      } from "../b.ts";
      import './c.ts';
      /* import d from './not.ts' */
      export { e } from './e.ts';
      export * from '@epitaph/core/f.ts';
      const g = await import('./g.ts');
      type H = import('./h.ts').H;
      const url = 'http://not.a.comment/'; import { i } from './i.ts';
    `);
    expect(importsOf(code).toSorted()).toEqual(
      ['../b.ts', './a.ts', './c.ts', './e.ts', './g.ts', './h.ts', '@epitaph/core/f.ts'].toSorted(),
    );
    expect(resolveImport('packages/api/src/http/x.ts', '../b.ts')).toBe('packages/api/src/b.ts');
    expect(resolveImport('packages/api/src/x.ts', '@epitaph/core/a/f.ts')).toBe('packages/core/src/a/f.ts');
    expect(resolveImport('packages/api/src/x.ts', '@epitaph/query')).toBe('packages/query/src/index.ts');
    expect(resolveImport('packages/api/src/x.ts', 'node:fs')).toBe(undefined);
  });

  it('recognize clocks and timers in code, and none in strings, comments and parts of other names', () => {
    for (const code of [
      'const now = Date.now();',
      'new Date()',
      'const x = `${Date.now()}`;',
      'performance.now()',
      'globalThis.setTimeout(f, 1)',
      'setInterval(f, 1)',
      'process.hrtime.bigint()',
      "import { setTimeout as wait } from 'node:timers/promises';",
    ]) {
      expect(timeKeptIn(withoutComments(code)), code).not.toEqual([]);
    }
    for (const code of [
      '// Date.now()',
      "header('Date')",
      'const effectiveDate = 1',
      'row.Date',
      '`Date: now`',
      'updateDate()',
    ]) {
      expect(timeKeptIn(withoutComments(code)), code).toEqual([]);
    }
  });

  it('recognize every exported value', () => {
    const code = `
export const a = 1;
export function b() {}
export async function* c() {}
export abstract class D {}
export class E {}
export type F = string;
export { g };
const h = 'export const i';`;
    expect(exportsOf(code)).toEqual(['a', 'b', 'c', 'D', 'E']);
    expect([hasWord('import { ab, c } from', 'c'), hasWord('import { ab } from', 'a')]).toEqual([true, false]);
  });

  it('recognize indirect imports', () => {
    const graph = new Map([
      ['a', ['b']],
      ['b', ['c', 'a']],
      ['c', []],
      ['d', ['c']],
    ]);
    expect([...reached(graph, (file) => file === 'a')]).toEqual(['a', 'b', 'c']);
  });

  it('recognize cycles and decorators', () => {
    expect(
      cyclesIn(
        new Map([
          ['a', ['b']],
          ['b', ['c']],
          ['c', ['b']],
        ]),
      ),
    ).toEqual(['b → c → b']);
    expect(
      cyclesIn(
        new Map([
          ['a', ['b', 'c']],
          ['b', ['c']],
          ['c', []],
        ]),
      ),
    ).toEqual([]);
    expect(cyclesIn(new Map([['a', ['a']]]))).toEqual(['a → a']);
    expect([hasDecorator('@Entity()\nclass A {}'), hasDecorator("const a = '@b';")]).toEqual([true, false]);
  });
});
