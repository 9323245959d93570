import type { RequestListener } from 'node:http';
import cors from 'cors';

/** Seconds for which a browser may remember what it may send. */
const MAX_AGE_SECONDS = 7_200;

/**
 * Lets web pages of other origins read answers, as a Cosmos DB account with such a setting does. Around everything that
 * answers, so that a page can read why it was refused, too.
 *
 * @param origins as browsers send them, or `*` for every page there is
 * @param isOpen whether a target is to be read from other origins at all
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
    // Clients read a dozen headers of ours. No cookies are involved, with which this would mean a header of that name.
    exposedHeaders: '*',
    maxAge: MAX_AGE_SECONDS,
  });
  return (request, response) => {
    if (isOpen(request.url ?? '/')) share(request, response, () => handler(request, response));
    else handler(request, response);
  };
}
