/** The most bytes of a document, as JSON text; source: Cosmos DB, "Service quotas" (2 MB an item). */
export const MAX_DOCUMENT_BYTES = 2 * 1024 * 1024;

/** How deep a document's arrays and objects may nest; source: the same (128 levels). */
export const MAX_DOCUMENT_DEPTH = 128;

/** The most characters of JSON in the documents or rows of a page, unless the first alone has more. */
export const MAX_PAGE_CHARACTERS = 4 * 1024 * 1024;
