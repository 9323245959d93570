import { isRid } from '../store/rids.ts';
import { badRequest, WireError } from './errors.ts';

/** The parts of a request's target. */
export interface Target {
  /** The decoded segments: `['dbs', 'shop', 'colls', 'orders', 'docs', 'o?1']`. */
  readonly segments: readonly string[];
  /** What the client has signed: the kind of resource and its link. For a feed it is the link of the parent. */
  readonly resourceType: string;
  readonly resourceLink: string;
}

/**
 * Parses the raw target of a request.
 *
 * Clients encode item ids with `encodeURI`, which leaves `? & = + , ; @ $` as they are. So below `docs` a `?` is part
 * of the id, and the HTTP framework's router, which would cut the target there, must not get these targets.
 */
export function parseTarget(raw: string, maxCharacters: number): Target {
  if (raw.length > maxCharacters) throw new WireError('targetTooLong', 'The request target is too long.');
  let path = raw;
  if (!path.startsWith('/')) {
    // The absolute form that proxies receive: http://host/path.
    const authority = path.indexOf('://');
    const slash = authority < 0 ? -1 : path.indexOf('/', authority + 3);
    path = slash < 0 ? '/' : path.slice(slash);
  }
  let parts = path.split('/');
  const question = path.indexOf('?');
  const idStart = parts[1] === 'dbs' && parts[3] === 'colls' && parts[5] === 'docs' ? startOfPart(parts, 6) : -1;
  if (question >= 0 && (idStart < 0 || question < idStart)) parts = path.slice(0, question).split('/');
  const segments: string[] = [];
  for (const part of parts) if (part !== '') segments.push(decode(part));
  return { segments, ...signedResource(segments) };
}

function startOfPart(parts: readonly string[], index: number): number {
  let start = index;
  for (let at = 0; at < index; at += 1) start += parts[at]!.length;
  return start;
}

function decode(part: string): string {
  if (!part.includes('%')) return part;
  try {
    return decodeURIComponent(part);
  } catch {
    throw badRequest('The request target is not a valid URI.');
  }
}

function signedResource(segments: readonly string[]): { readonly resourceType: string; readonly resourceLink: string } {
  const { length } = segments;
  if (length === 0) return { resourceType: '', resourceLink: '' };
  if (segments[length - 1] === 'partitionkeydelete' && segments[length - 2] === 'operations') {
    return { resourceType: 'colls', resourceLink: segments.slice(0, -2).join('/') };
  }
  if (length % 2 === 1) return { resourceType: segments[length - 1]!, resourceLink: segments.slice(0, -1).join('/') };
  return { resourceType: segments[length - 2]!, resourceLink: segments.join('/') };
}

/**
 * The other links that a client may have signed: for a resource addressed by rid, its rid alone in lower case; for an
 * offer, its id in lower case. There is none for names, so that a signature is valid for one resource only.
 */
export function otherSignedLinks({ resourceType, resourceLink }: Target): readonly string[] {
  const last = resourceLink.slice(resourceLink.lastIndexOf('/') + 1);
  if (resourceType === 'offers') return [last, last.toLowerCase(), resourceLink.toLowerCase()];
  return isRid(last) ? [last.toLowerCase(), last] : [];
}
