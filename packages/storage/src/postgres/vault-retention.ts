import { parseItemStream } from '@epitaph/core/item/stream-name.ts';
import {
  type ContainerFloors,
  destroyedUnder,
  type DestroyOutcome,
  type DestroyRequest,
  type FloorKind,
  floorUntil,
  type HoldScope,
  isFloorToSet,
  isOfAnother,
  LONGEST_FLOOR_SECONDS,
  prefixesOf,
  type SetFloorOptions,
  type VaultHold,
} from '@epitaph/core/vault/key-vault.ts';
import { parsedJson } from '@epitaph/core/parsed-json.ts';
import type { Statements } from './database.ts';

// Holds and floors in the vault. A caller that changes them, or decides by them, must hold the vault's lock.

/** @returns false if the hold must be new, but there is another one with its id */
export async function putHold(sql: Statements, hold: VaultHold, isNew: boolean): Promise<boolean> {
  const { holdId, containerRid, scope, placedAtMs } = hold;
  if (isNew) {
    const [standing] = await readHoldRows(sql, 'hold_id = $1', [holdId]);
    if (standing !== undefined && isOfAnother(standing, hold)) return false;
  }
  // Each held life has its own row, so that a hold on a million lives costs a look-up, not a scan.
  const kept: HoldScope = scope.kind === 'lives' ? { kind: 'lives', streams: [] } : scope;
  await sql.query('DELETE FROM epitaph_vault.held_lives WHERE hold_id = $1', [holdId]);
  await sql.query(
    `INSERT INTO epitaph_vault.holds (hold_id, container, scope, placed_at) VALUES ($1, $2, $3, $4)
     ON CONFLICT (hold_id) DO UPDATE
     SET container = excluded.container, scope = excluded.scope, placed_at = excluded.placed_at`,
    [holdId, containerRid, JSON.stringify(kept), placedAtMs],
  );
  if (scope.kind !== 'lives') return true;
  await sql.query(
    `INSERT INTO epitaph_vault.held_lives (stream, hold_id)
     SELECT DISTINCT stream, $2 FROM unnest($1::text[]) AS lives (stream)`,
    [scope.streams, holdId],
  );
  return true;
}

/** @param placedAtMs if given, the hold is only removed if it was placed at this time */
export async function removeHold(sql: Statements, holdId: string, placedAtMs: number | undefined): Promise<void> {
  const removed = await sql.query(
    'DELETE FROM epitaph_vault.holds WHERE hold_id = $1 AND ($2::bigint IS NULL OR placed_at = $2) RETURNING hold_id',
    [holdId, placedAtMs ?? null],
  );
  if (removed.length > 0) await sql.query('DELETE FROM epitaph_vault.held_lives WHERE hold_id = $1', [holdId]);
}

/** All holds, or those of a container. */
export function readAllHolds(sql: Statements, containerRid?: string): Promise<VaultHold[]> {
  return containerRid === undefined
    ? readHoldRows(sql, 'true', [])
    : readHoldRows(sql, 'container = $1', [containerRid]);
}

async function readHoldRows(sql: Statements, where: string, values: readonly string[]): Promise<VaultHold[]> {
  const rows = await sql.query<{
    hold_id: string;
    container: string;
    scope: string;
    placed_at: number;
    streams: string[];
  }>(
    `SELECT hold_id, container, scope, placed_at,
            ARRAY(SELECT stream FROM epitaph_vault.held_lives l WHERE l.hold_id = h.hold_id ORDER BY stream) AS streams
     FROM epitaph_vault.holds h WHERE ${where} ORDER BY placed_at, hold_id`,
    values,
  );
  return rows.map(({ hold_id, container, scope, placed_at, streams }) => {
    const kept = readScope(scope);
    const hold = { holdId: hold_id, containerRid: container, placedAtMs: placed_at };
    if (kept === undefined) return { ...hold, scope: wholeContainer(container), isDamaged: true };
    return { ...hold, scope: kept.kind === 'lives' ? { kind: 'lives', streams } : kept };
  });
}

/** The scope of a hold whose own scope is unreadable because of damage: it covers its whole container. */
const wholeContainer = (containerRid: string): HoldScope => ({ kind: 'container', containerRid });

/** The scope of a hold; undefined if it is unreadable because of damage. */
function readScope(stored: string): HoldScope | undefined {
  const scope = (parsedJson(stored) ?? {}) as Readonly<Record<string, unknown>>;
  const { kind, prefix, prefixes } = scope;
  const isReadable =
    kind === 'lives' ||
    (kind === 'container' && typeof scope['containerRid'] === 'string') ||
    (kind === 'stream-prefix' && typeof prefix === 'string') ||
    (kind === 'stream-prefixes' && Array.isArray(prefixes) && prefixes.every((each) => typeof each === 'string'));
  return isReadable ? (scope as unknown as HoldScope) : undefined;
}

interface PutFloor {
  readonly containerRid: string;
  readonly kind: FloorKind;
  /** 0 for no floor of that kind. */
  readonly seconds: number;
}

export async function putFloor(
  sql: Statements,
  { containerRid, kind, seconds }: PutFloor,
  options: SetFloorOptions,
): Promise<void> {
  const now = (await readFloors(sql)).get(containerRid)?.[kind] ?? 0;
  if (!isFloorToSet(now, seconds, options)) return;
  await sql.query('DELETE FROM epitaph_vault.floors WHERE container = $1 AND kind = $2', [containerRid, kind]);
  if (seconds === 0) return;
  await sql.query('INSERT INTO epitaph_vault.floors (container, kind, seconds) VALUES ($1, $2, $3)', [
    containerRid,
    kind,
    seconds,
  ]);
}

export async function readFloors(sql: Statements): Promise<ReadonlyMap<string, ContainerFloors>> {
  const rows = await sql.query<{ container: string; kind: FloorKind; seconds: number }>(
    `SELECT container, kind, least(seconds, ${LONGEST_FLOOR_SECONDS}) AS seconds FROM epitaph_vault.floors`,
  );
  const floors = new Map<string, ContainerFloors>();
  for (const { container, kind, seconds } of rows) {
    floors.set(container, { ...floors.get(container), [kind]: seconds });
  }
  return floors;
}

/** Returns a function that finds the holds on a life. All holds on the lives' containers are read once for it. */
export async function readHolds(sql: Statements, streams: readonly string[]): Promise<(stream: string) => string[]> {
  const containers = new Set(streams.map((stream) => stream.slice('item-'.length, stream.indexOf('.'))));
  const byPrefix = new Map<string, Set<string>>();
  const byLife = new Map<string, string[]>();
  const lengths = new Set<number>();
  for (const { hold_id, container, scope } of await sql.query<{ hold_id: string; container: string; scope: string }>(
    // A hold's id also begins with its container. So if one of the two is damaged, the hold is still found.
    `SELECT hold_id, container, scope FROM epitaph_vault.holds
     WHERE container = ANY ($1::text[]) OR split_part(hold_id, ' ', 1) = ANY ($1::text[])`,
    [[...containers]],
  )) {
    for (const prefix of prefixesOf(readScope(scope) ?? wholeContainer(container))) {
      lengths.add(prefix.length);
      byPrefix.set(prefix, (byPrefix.get(prefix) ?? new Set()).add(hold_id));
    }
  }
  for (const { stream, hold_id } of await sql.query<{ stream: string; hold_id: string }>(
    'SELECT stream, hold_id FROM epitaph_vault.held_lives WHERE stream = ANY ($1::text[])',
    [streams],
  )) {
    byLife.set(stream, [...(byLife.get(stream) ?? []), hold_id]);
  }
  return (stream) => {
    const found = new Set(byLife.get(stream));
    for (const length of lengths) {
      for (const holdId of byPrefix.get(stream.slice(0, length)) ?? []) found.add(holdId);
    }
    return [...found].toSorted();
  };
}

/** Returns a function that decides about the key of a life: refused if a hold or a floor covers it, in the state of this transaction. */
export async function readVerdicts(
  sql: Statements,
  requests: readonly DestroyRequest[],
): Promise<(request: DestroyRequest) => DestroyOutcome & { readonly kind: 'refused' | 'destroyed' }> {
  const holdsOn = await readHolds(
    sql,
    requests.map(({ stream }) => stream),
  );
  const floorsOf = await readFloors(sql);
  return (request) => {
    const { stream } = request;
    const holds = holdsOn(stream);
    const floors = floorsOf.get(parseItemStream(stream)?.containerRid ?? '') ?? {};
    const floorUntilMs = floorUntil(floors, request);
    const isKept = holds.length > 0 || floorUntilMs !== null;
    return isKept ? { kind: 'refused', holds, floorUntilMs } : destroyedUnder(floors);
  };
}
