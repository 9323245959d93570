import type { ContainerNumber, EndedRow, ReadModelStore } from '../read-model-store.ts';

/**
 * Ended lives of a container in order of their ends, also of ends in the future, in pages. The last page is not full,
 * and may be empty.
 *
 * @param store the version in use, called for each page
 * @param afterMs only lives that ended later, in milliseconds
 */
export async function* endedPages(
  store: () => ReadModelStore,
  container: ContainerNumber,
  {
    byPolicyStart,
    afterMs,
    limit,
  }: { readonly byPolicyStart: boolean; readonly afterMs?: number | undefined; readonly limit: number },
): AsyncGenerator<readonly EndedRow[], void> {
  let after = afterMs === undefined ? undefined : { endedAtMs: afterMs, position: Number.MAX_SAFE_INTEGER };
  for (;;) {
    const scan = { byPolicyStart, endedAtOrBeforeMs: Number.MAX_SAFE_INTEGER, after, limit };
    const rows = await store().endedLives(container, scan);
    yield rows;
    const last = rows.at(-1);
    if (last === undefined || rows.length < limit) return;
    after = { endedAtMs: last.endedAtMs, position: last.position };
  }
}
