import type { RequestListener } from 'node:http';
import cors from 'cors';

/** Seconds for which a browser may remember what it is allowed to send. */
const MAX_AGE_SECONDS = 7_200;

/**
 * Lets web pages of other origins read answers, as a Cosmos DB account with such a setting does. This wraps everything
 * that answers, so that a page can also read why it was refused.
 *
 * @param origins as browsers send them, or `*` for every page
 * @param isOpen whether a target may be read from other origins
 * @source WHATWG, Fetch, "CORS protocol"
 */
export function withOrigins(
  handler: RequestListener,
  origins: readonly string[],
  isOpen: (url: string) => boolean,
): RequestListener {
  const share = cors({
    origin: origins.includes('*') ? '*' : [...origins],
    methods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'],
    // Clients read a dozen of this server's headers. With cookies, `*` would mean a header of that name, but none are
    // used.
    exposedHeaders: '*',
    maxAge: MAX_AGE_SECONDS,
  });
  return (request, response) => {
    if (isOpen(request.url ?? '/')) share(request, response, () => handler(request, response));
    else handler(request, response);
  };
}
