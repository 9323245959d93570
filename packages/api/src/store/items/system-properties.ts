import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import type { Document, ShownItem } from '../api/items-api.ts';
import { itemRid } from '../rids.ts';

/** Properties that the server adds to a document, and removes from one that a client sends. */
export const itemSystemProperties = ['_rid', '_self', '_etag', '_attachments', '_ts', '_lsn'] as const;

export function withoutSystemProperties(document: Document): Document {
  if (!itemSystemProperties.some((name) => Object.hasOwn(document, name))) return document;
  // Deleting them from a copy would turn it into a dictionary object, which is slower to read.
  const { _rid, _self, _etag, _attachments, _ts, _lsn, ...own } = document;
  return own;
}

export const databaseSelf = (database: Pick<DatabaseState, 'rid'>): string => `dbs/${database.rid}/`;
export const containerSelf = (container: Pick<ContainerState, 'rid' | 'databaseRid'>): string =>
  `dbs/${container.databaseRid}/colls/${container.rid}/`;

/** What the system properties of an item are computed from. */
export type ItemStamp = Pick<ShownItem, 'birth' | 'ts' | 'etag'>;
type Home = Pick<ContainerState, 'rid' | 'databaseRid'>;

/** The document as clients get it: its own text, with the system properties inserted before the last brace. */
export function withSystemProperties(container: Home, item: ItemStamp & Pick<ShownItem, 'json'>): string {
  const rid = itemRid(container.rid, item.birth);
  const comma = item.json.length > 2 ? ',' : '';
  // An etag is in quotes, and contains nothing else that JSON escapes.
  const etag = `\\"${item.etag.slice(1, -1)}\\"`;
  return `${item.json.slice(0, -1)}${comma}"_rid":"${rid}","_self":"${containerSelf(container)}docs/${rid}/","_etag":"${etag}","_attachments":"attachments/","_ts":${item.ts}}`;
}

/** The system properties of an item as values, for queries. */
export function systemPropertiesOf(
  container: Home,
  item: ItemStamp,
): {
  readonly _rid: string;
  readonly _self: string;
  readonly _etag: string;
  readonly _attachments: string;
  readonly _ts: number;
} {
  const rid = itemRid(container.rid, item.birth);
  return {
    _rid: rid,
    _self: `${containerSelf(container)}docs/${rid}/`,
    _etag: item.etag,
    _attachments: 'attachments/',
    _ts: item.ts,
  };
}
