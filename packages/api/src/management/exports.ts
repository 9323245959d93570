import { isoTime } from '@epitaph/core/clock.ts';
import type { Disappearance } from '../store/api/history-api.ts';
import { inChunks } from './send-stream.ts';
import { disappearanceShape } from './shapes.ts';

export type ExportFormat = 'text/csv' | 'application/x-ndjson';

/** The export format that an `Accept` header asks for; undefined if it asks for a page of JSON. */
export function exportFormat(accept: string | undefined): ExportFormat | undefined {
  const types = (accept ?? '').split(',').map((part) => part.split(';')[0]!.trim().toLowerCase());
  return types.find((type) => type === 'text/csv' || type === 'application/x-ndjson');
}

const COLUMNS = {
  position: (row: Disappearance) => row.position,
  id: (row: Disappearance) => row.id,
  partitionKey: (row: Disappearance) => row.partitionKey,
  life: (row: Disappearance) => row.life,
  cause: (row: Disappearance) => row.cause,
  at: (row: Disappearance) => isoTime(row.atMs),
  recordedAt: (row: Disappearance) => isoTime(row.recordedAtMs),
  purgedAt: (row: Disappearance) => (row.purgedAtMs === null ? '' : isoTime(row.purgedAtMs)),
  actor: (row: Disappearance) => row.actor ?? '',
  rule: (row: Disappearance) => row.rule ?? '',
  ttl: (row: Disappearance) => row.ttl ?? '',
  policyVersion: (row: Disappearance) => row.policyVersion ?? '',
} as const;

/** The rows of an export, a page at a time: CSV as in RFC 4180, or one JSON object a line. */
export async function* exportText(
  format: ExportFormat,
  pages: AsyncIterable<readonly Disappearance[]>,
): AsyncGenerator<string> {
  if (format === 'text/csv') yield csvLine(Object.keys(COLUMNS));
  for await (const rows of pages) {
    const lines = rows
      .values()
      .map((row) =>
        format === 'text/csv'
          ? csvLine(Object.values(COLUMNS).map((column) => String(column(row))))
          : `${JSON.stringify(disappearanceShape(row))}\n`,
      );
    yield* inChunks(lines);
  }
}

/** Quotes only the cells that need it and does not change their text: an export is evidence. */
function csvLine(cells: readonly string[]): string {
  return `${cells.map((cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell)).join(',')}\r\n`;
}
