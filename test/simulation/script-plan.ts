import { nameOf, type ScriptStep, type Told } from './commands.ts';
import type { Document } from './documents.ts';
import { isValidTtl, type ModelContainer, policyInForce, uniqueValue, visibleLife } from './model.ts';

/** The expected outcome of a script, if no other writer changes the items that it writes meanwhile. */
export interface ScriptPlan {
  readonly told: readonly Told[];
  /** A write without a document is a delete. */
  readonly writes: readonly { readonly item: string; readonly document?: Document }[];
  /** For each item that the script writes, the etag that it found; undefined if the item did not exist. */
  readonly found: ReadonlyMap<string, string | undefined>;
}

/** The items of a partition when a script was called. */
export interface EarlierItems {
  readonly items: StandingItems;
  /** Whether the script read the items in that state. */
  readonly isRead: boolean;
  /** How many of its steps were checked against the unique keys of that state: they are checked when a step is done. */
  readonly keptUnique: number;
}

type StandingItems = ReadonlyMap<string, Seen & { readonly etag: string }>;

interface Seen {
  readonly document: Document;
  /** Identifies the life among those of the item: the etag with which it began, or the index of a step. */
  readonly birth: string | number;
}

export function standingItems(container: ModelContainer, partition: string, nowMs: number): StandingItems {
  const standing = new Map<string, Seen & { readonly etag: string }>();
  for (const item of container.items.keys()) {
    const life = nameOf(item).partition === partition ? visibleLife(container, item, nowMs) : undefined;
    if (life === undefined) continue;
    const { document, etag } = life.writes.at(-1)!;
    standing.set(item, { document, etag, birth: life.writes[0]!.etag });
  }
  return standing;
}

/** Executes a script's steps on the model's documents. */
export function planOf(
  container: ModelContainer,
  {
    partition,
    steps,
    earlier,
  }: { partition: string; steps: readonly ScriptStep[]; earlier?: EarlierItems | undefined },
  nowMs: number,
): ScriptPlan {
  const now = standingItems(container, partition, nowMs);
  const atCall = earlier?.items ?? now;
  const standing = earlier?.isRead === true ? atCall : now;
  let unique = now;
  const written = new Map<string, Seen | undefined>();
  const writes: { item: string; document?: Document }[] = [];
  const found = new Map<string, string | undefined>();
  const hasTtl = policyInForce(container, nowMs) !== null;
  const seen = (item: string) => (written.has(item) ? written.get(item) : standing.get(item));
  const namesIn = (items: StandingItems) => [...new Set([...items.keys(), ...written.keys()])];
  const write = (item: string, as: Seen | undefined) => {
    if (!written.has(item)) found.set(item, standing.get(item)?.etag);
    written.set(item, as);
    writes.push(as === undefined ? { item } : { item, document: as.document });
  };
  const isTaken = (document: Document, item: string) =>
    container.hasUniqueKey &&
    namesIn(unique).some((other) => {
      const standingThere = other === item ? undefined : written.has(other) ? written.get(other) : unique.get(other);
      return standingThere !== undefined && uniqueValue(standingThere.document) === uniqueValue(document);
    });
  const put = (item: string, document: Document, birth: Seen['birth']): Told => {
    if (isTaken(document, item)) return 409;
    write(item, { document, birth });
    return [document['v']];
  };
  const many = (least: number) =>
    namesIn(standing)
      .flatMap((item) => seen(item)?.document['v'] ?? [])
      .filter((v) => Number(v) >= least)
      .toSorted((left, right) => Number(left) - Number(right));
  const perform = (step: ScriptStep, index: number): Told => {
    unique = index < (earlier?.keptUnique ?? 0) ? atCall : now;
    if (step.kind === 'list') return many(0);
    if (step.kind === 'query') return many(step.least);
    const document = 'document' in step ? step.document : undefined;
    const item = document === undefined ? undefined : `${String(document['pk'])}/${String(document['id'])}`;
    const ttl = document?.['ttl'];
    const isMisplaced = document !== undefined && document['pk'] !== partition;
    const isRefused = isMisplaced || (hasTtl && ttl !== undefined && !isValidTtl(ttl));
    if (!('item' in step)) {
      if (isRefused) return 400;
      const before = seen(item!);
      if (step.kind === 'create' && before !== undefined) return 409;
      return put(item!, document!, before?.birth ?? index);
    }
    // A link by rid to a deleted item does not lead to a new item with the same name.
    const linked = step.bySelf ? atCall.get(step.item) : undefined;
    if (linked !== undefined && seen(step.item)?.birth !== linked.birth) return 404;
    if (isRefused) return 400;
    const current = seen(step.item);
    if (current === undefined) return 404;
    if (step.kind === 'read') return [current.document['v']];
    if (step.guard === 'unknown') return 412;
    if (item === step.item) return put(item, document!, current.birth);
    if (item !== undefined && seen(item) !== undefined) return 409;
    if (document !== undefined && isTaken(document, step.item)) return 409;
    write(step.item, undefined);
    return item === undefined ? 200 : put(item, document!, index);
  };
  const told = steps.map(perform);
  return { told, writes, found };
}
