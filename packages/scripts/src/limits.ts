/** The most UTF-16 code units of an operation's JSON text. The store limits its bytes, of which there are at least as many. */
export const MAX_BODY = 2 * 1024 * 1024;
/** The most UTF-16 code units of a response's body. It is not a document, so it may be larger. */
export const MAX_RESPONSE = 4 * 1024 * 1024;
export const MAX_LOG = 64 * 1024;
/** For links, entity tags and similar texts. */
export const MAX_NAME = 8 * 1024;
/** For queries and their continuations. */
export const MAX_QUERY = 512 * 1024;
export const MAX_PAGE = 10_000;
/** For the message of an error, with its stack trace. */
export const MAX_MESSAGE = 8 * 1024;
/** The most operations that one run may request. After that, further requests are refused, so that the script ends. */
export const MAX_OPERATIONS = 10_000;
/** The most UTF-16 code units of the results of all function calls in one evaluation, as JSON. */
export const MAX_RESULTS = 16 * 1024 * 1024;
/** The largest message of an engine: a response and a request as JSON in JSON, and the log; or the results of functions. */
export const MAX_SAID = 32 * 1024 * 1024;
