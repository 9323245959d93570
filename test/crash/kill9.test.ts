import { describe, expect, it } from 'vitest';
import { killRounds } from './kill-rounds.ts';

describe('a store that is killed under full load while its purge runs', () => {
  it('has everything it acknowledged, shows nothing that had ended, and is sound, after five kills', async () => {
    const report = await killRounds(5, Date.now() % 1_000_000);
    expect(report.acknowledged).toBeGreaterThan(100);
  }, 120_000);
});
