import { REPLICAS } from '../direct/answer.ts';
import { charge } from '../request-units/charge.ts';
import { badRequest } from './errors.ts';
import { rangeById } from './ranges.ts';
import { containerOf, methodNotAllowed, owner, type Answer, type CosmosRequest } from './request.ts';
import { parseTarget, type Target } from './target.ts';

/**
 * The request for the addresses of ranges, which clients in direct mode send first. It becomes a target below the
 * container of the ranges, and is signed like a request for the container's items.
 *
 * @source `GatewayAddressCache` of the .NET client's public source
 * @throws WireError 400 for a request that does not say for what
 */
export function addressesTarget(raw: string, maxCharacters: number): Target {
  const query = new URLSearchParams(raw.slice(raw.indexOf('?') + 1));
  const of = query.get('$resolveFor');
  if (of === null) throw badRequest("The query lacks '$resolveFor'.");
  // The .NET client escapes the link twice.
  const target = parseTarget(`/${of.replace(/%2f/gi, '/')}`, maxCharacters);
  const owners = target.segments.slice(0, 4);
  const ranges = query.get('$partitionKeyRangeIds') ?? '';
  return { ...target, segments: owners.length === 4 ? [...owners, 'addresses', ranges] : ['addresses'] };
}

/** Advice for clients that can't use direct mode. */
export const GATEWAY_MODE =
  'Or use gateway mode: set ConnectionMode.Gateway in the CosmosClientOptions (.NET), or call gatewayMode() of the CosmosClientBuilder (Java).';

/** The port of a host header without one. */
const HTTPS_PORT = 443;

/**
 * The addresses of the ranges that exist, or of the place where databases and users are kept. All are this server's,
 * with the host and port that the client has used.
 *
 * @throws WireError 400 if the host is an IPv6 address: clients never write to an address with a bracket in it, and
 *   look for another one for half a minute
 * @source `PerProtocolPartitionAddressInformation` of the .NET client's public source
 */
export function answerAddresses(request: CosmosRequest): Answer {
  const { method, segments } = request;
  if (method !== 'GET') throw methodNotAllowed();
  const endpoint = URL.parse(request.endpoint());
  if (endpoint === null) throw badRequest("The header 'Host' does not name a host and its port.");
  const { hostname, port } = endpoint;
  if (hostname.startsWith('[')) {
    throw badRequest(
      `The client is in direct mode, the default of the .NET and the Java client, which can't write to a server at an IPv6 address: use a host name. ${GATEWAY_MODE}`,
    );
  }
  const container = segments.length === 1 ? undefined : owner(containerOf, request);
  const ids = container === undefined ? [''] : segments[5]!.split(',').filter((id) => rangeById(container, id));
  const addresses = ids.flatMap((id) => {
    const place = `rntbd://${hostname}:${port || HTTPS_PORT}/apps/epitaph/services/${container?.rid ?? 'master'}/partitions/${id}/replicas/`;
    return Array.from({ length: REPLICAS }, (_, index) => ({
      isPrimary: index === 0,
      protocol: 'rntbd',
      physcialUri: `${place}${index}${index === 0 ? 'p' : 's'}/`,
      partitionKeyRangeId: id,
    }));
  });
  const body = { _rid: container?.rid ?? '', Addresss: addresses, _count: addresses.length };
  return { status: 200, body: JSON.stringify(body), charge: charge.metadata };
}
