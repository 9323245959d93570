// node scripts/build.ts <folder>: bundles the program's hundreds of modules into a few files there (docs/adr/0030).
import { existsSync, globSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { type Plugin, rolldown } from 'rolldown';

const ROOT = path.resolve(import.meta.dirname, '..');
const SOURCES = path.join(ROOT, 'packages');

const folder = path.resolve(process.argv[2]!);

/** Rewrites paths that are relative to a module, so that they are right in the bundled files. */
const places: Plugin = {
  name: 'places',
  transform(code, id) {
    if (!id.startsWith(SOURCES)) return undefined;
    const from = path.dirname(id);
    return code
      .replaceAll('import.meta.dirname', `(import.meta.dirname + ${JSON.stringify(`/${path.relative(folder, from)}`)})`)
      .replaceAll(/new URL\('\.\/([\w-]+)\.ts', import\.meta\.url\)/g, (_, thread: string) => {
        this.emitFile({ type: 'chunk', id: path.join(from, `${thread}.ts`), fileName: `${thread}.mjs` });
        return `new URL('./${thread}.mjs', import.meta.url)`;
      })
      .replaceAll(/import\.meta\.resolve\('([^']+)'\)/g, (_, specifier: string) => {
        const file = createRequire(id).resolve(specifier);
        const fileName = path.basename(file);
        this.emitFile({ type: 'asset', fileName, source: readFileSync(file) });
        return `new URL('./${fileName}', import.meta.url).href`;
      });
  },
};

/** Adds the licenses of the bundled packages, which must accompany every copy. */
const licenses: Plugin = {
  name: 'licenses',
  generateBundle() {
    const packages = [...this.getModuleIds()].flatMap((id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id) ?? []);
    const texts = Array.from(new Set(packages), (place) => {
      const manifest: unknown = JSON.parse(readFileSync(`${place}/package.json`, 'utf8'));
      const { name, version, license } = manifest as Readonly<Record<string, string>>;
      const files = globSync(`${place}/{LICEN[CS]E,licen[cs]e,NOTICE}*`);
      return [`${name} ${version} (${license})`, ...files.map((file) => readFileSync(file, 'utf8'))].join('\n\n');
    });
    const source = `${texts.toSorted().join(`\n${'-'.repeat(80)}\n`)}\n`;
    this.emitFile({ type: 'asset', fileName: 'LICENSES.txt', source });
  },
};

// Built in a folder beside the final one, and renamed when complete: another process may build it, too, and a build may be interrupted.
const unfinished = `${folder}.${process.pid}`;
mkdirSync(unfinished, { recursive: true });
try {
  const program = await rolldown({
    input: { main: path.join(SOURCES, 'api/src/cli/main.ts') },
    platform: 'node',
    plugins: [places, licenses],
    // Warnings about other people's packages are left out.
    onLog: (level, log, handle) => {
      if (level !== 'warn' || log.id?.startsWith(SOURCES)) handle(level, log);
    },
  });
  await program.write({ dir: unfinished, entryFileNames: '[name].mjs', chunkFileNames: '[name]-[hash].mjs' });
  renameSync(unfinished, folder);
} catch (error) {
  // If the folder exists, another process was faster, with the same sources.
  if (!existsSync(folder)) throw error;
} finally {
  rmSync(unfinished, { recursive: true, force: true });
}
