import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { whyWithout } from '../support/programs.ts';
import { type Block, blocksOf, matchesShown, readPage, ROOT } from './markdown.ts';
import { startAsShown } from './store-process.ts';

const SHOWN_ENDPOINT = 'http://127.0.0.1:8081';
const BETWEEN = '@@@ end of a snippet @@@';
/** On this page, commands are run by npm itself, which takes almost half of a command's time. */
const THROUGH_NPM = 'README.md';
/** On all other pages, npm is replaced by what it would run, as its own options don't occur there. */
const WITHOUT_NPM = `npm() {
  [ "$1 $2 $3 $4" = 'run -s epitaph --' ] && shift 4 && sh scripts/epitaph.sh "$@"
}
`;

/**
 * Runs the marked snippets of a page in one shell, in order, against a server that is started as the page says.
 *
 * @returns what each printed, and what the page shows
 */
async function runSnippets(page: string): Promise<{ readonly printed: string; readonly shown: string | undefined }[]> {
  const blocks = blocksOf(readPage(page));
  const server = await startAsShown(blocks.find(({ mark }) => mark === 'server')!.text);
  try {
    const snippets = blocks.filter(({ mark }) => mark === 'runs');
    const script = snippets.map(({ text }) => `${text}\nprintf '\\n${BETWEEN}\\n'\n`).join('');
    const commands = (page === THROUGH_NPM ? '' : WITHOUT_NPM) + script.replaceAll(SHOWN_ENDPOINT, server.endpoint);
    const { stdout } = await promisify(execFile)('sh', ['-c', commands], {
      cwd: ROOT,
      env: server.environment,
    });
    const printed = stdout.split(`\n${BETWEEN}\n`);
    return snippets.map((snippet, index) => ({ printed: printed[index] ?? '', shown: shownAfter(blocks, snippet) }));
  } finally {
    await server.stop();
  }
}

function shownAfter(blocks: readonly Block[], snippet: Block): string | undefined {
  const next = blocks[blocks.indexOf(snippet) + 1];
  return next?.mark === 'prints' ? next.text : undefined;
}

// Pages show most calls with curl.
const skipped = whyWithout('curl');

describe.skipIf(skipped)(`snippets print what the page shows${skipped}`, { timeout: 240_000 }, () => {
  test.each([
    { page: 'README.md', least: 4 },
    { page: 'docs/operations.md', least: 6 },
    { page: 'docs/audit.md', least: 8 },
    { page: 'docs/monitoring.md', least: 2 },
    { page: 'docs/change-feed.md', least: 1 },
    { page: 'docs/backup-and-restore.md', least: 1 },
    { page: 'docs/changing-a-policy.md', least: 6 },
    { page: 'docs/holds-and-erasure.md', least: 8 },
    { page: 'docs/clear-paths.md', least: 1 },
    { page: 'docs/scripts.md', least: 2 },
  ])('$page', async ({ page, least }) => {
    const ran = await runSnippets(page);
    const dump = process.env['EPITAPH_DOCS_DUMP'];
    if (dump !== undefined) writeFileSync(`${dump}/${page.replaceAll('/', '-')}.json`, JSON.stringify(ran));
    expect(ran.length).toBeGreaterThanOrEqual(least);
    for (const { printed, shown } of ran) {
      if (shown === undefined || matchesShown(printed, shown)) continue;
      // They differ, because otherwise they would have matched. This shows where.
      expect(printed.trim()).toBe(shown.trim());
    }
  });
});
