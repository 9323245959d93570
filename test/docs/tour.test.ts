import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { blocksOf, readPage, ROOT } from './markdown.ts';

test(
  'the webhook tour accounts for all 329 events, and prints what the README shows of it',
  { timeout: 60_000 },
  async () => {
    // It exits with 0 only if the sums are right and fsck finds nothing.
    const { stdout } = await promisify(execFile)(process.execPath, [path.join(ROOT, 'examples/webhook-tour/tour.ts')], {
      cwd: ROOT,
    });
    expect(stdout).toContain('142 visible + 187 gone = 329 of 329 events');
    expect(stdout).toMatch(/^fsck: +ok, 329 lives by the log, 142 of them visible, 0 problems$/m);
    expect(stdout).toMatch(/purged: "issues-5" expired at 2026-01-08T00:00:00\.000Z by its own ttl of 604800 s/);
    expect(stdout).toMatch(/live: "check_run-2" is visible: time to live is off in its container/);
    expect(stdout).toMatch(/purged: "issue_comment-1" was deleted at 2026-01-04T00:00:00\.000Z by key:primary/);

    const lines = new Set(stdout.split('\n'));
    const shown = blocksOf(readPage('README.md'))
      .find(({ mark }) => mark === 'tour')!
      .text.trim()
      .split('\n');
    expect(shown.filter((line) => line !== '…' && !lines.has(line))).toEqual([]);
  },
);
