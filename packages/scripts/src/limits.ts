/** What an operation may carry, in UTF-16 units of its JSON text. The store counts bytes, which are no fewer. */
export const MAX_BODY = 2 * 1024 * 1024;
/** Of a response, which is not a document. */
export const MAX_RESPONSE = 4 * 1024 * 1024;
export const MAX_LOG = 64 * 1024;
/** Links, entity tags, and the like. */
export const MAX_NAME = 8 * 1024;
/** A query, and a continuation of one. */
export const MAX_QUERY = 512 * 1024;
export const MAX_PAGE = 10_000;
/** Of an error, with its stack. */
export const MAX_MESSAGE = 8 * 1024;
/** Operations that one run may ask for. Then it is told to come to an end. */
export const MAX_OPERATIONS = 10_000;
/** What all calls of functions in one evaluation may give, in JSON. */
export const MAX_RESULTS = 16 * 1024 * 1024;
/** What an engine may say at once: a response and a request as JSON in JSON, and the log; or results of functions. */
export const MAX_SAID = 32 * 1024 * 1024;
