import { invariant } from '../invariant.ts';

/** The stream of one life of an item: `item-<container rid>.<keyed hash>.<life>`. */
export function itemStream(prefix: string, life: number): string {
  return `${prefix}.${life}`;
}

/** The common beginning of the names of all item streams of a container. */
export const containerPrefix = (containerRid: string): string => `item-${containerRid}.`;

/** The parts of an item's stream name, or undefined for a stream of another kind. */
export function parseItemStream(
  stream: string,
): { readonly prefix: string; readonly containerRid: string; readonly life: number } | undefined {
  if (!stream.startsWith('item-')) return undefined;
  const first = stream.indexOf('.');
  const last = stream.lastIndexOf('.');
  invariant(first > 0 && last > first, `an item stream has three parts: ${stream}`);
  return {
    prefix: stream.slice(0, last),
    containerRid: stream.slice('item-'.length, first),
    life: Number(stream.slice(last + 1)),
  };
}
