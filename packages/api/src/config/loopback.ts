import { lookup } from 'node:dns/promises';
import { BlockList, isIP } from 'node:net';

const loopback = new BlockList();
// BlockList also matches these IPv4 addresses when they are written as IPv6.
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');

/** True for an address that only this machine can reach. */
function isLoopbackAddress(address: string): boolean {
  const family = isIP(address);
  return family !== 0 && loopback.check(address, family === 4 ? 'ipv4' : 'ipv6');
}

/** True if all addresses of a host are loopback. False if the host can't be resolved: listening on it then fails with the reason. */
export async function isLoopbackHost(host: string): Promise<boolean> {
  if (isIP(host) !== 0) return isLoopbackAddress(host);
  try {
    const addresses = await lookup(host, { all: true });
    return addresses.length > 0 && addresses.every(({ address }) => isLoopbackAddress(address));
  } catch {
    return false;
  }
}

/**
 * True for a `Host` header that names this machine as the machine itself does. In DNS rebinding, a web page from elsewhere lets its own
 * name resolve to 127.0.0.1; the browser then sends that name, which is refused here.
 */
export function isLoopbackHostHeader(header: string | undefined): boolean {
  if (header === undefined) return true;
  const name = header.replace(/:\d*$/, '').toLowerCase();
  if (name === 'localhost' || name.endsWith('.localhost')) return true;
  return isLoopbackAddress(name.startsWith('[') && name.endsWith(']') ? name.slice(1, -1) : name);
}
