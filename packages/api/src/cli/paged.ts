import type { ManagementClient } from './management-client.ts';

/** The most entries of a page. */
const AT_ONCE = '1000';

/** The pages of a list, in order. */
export async function* pagesOf<Page extends { readonly continuation?: string | undefined }>(
  client: ManagementClient,
  path: string,
  query: Readonly<Record<string, string | undefined>>,
): AsyncGenerator<Page> {
  let page: Page | undefined;
  do {
    const asked = { ...query, limit: AT_ONCE, continuation: page?.continuation };
    page = await client.call<Page>('GET', path, { query: asked });
    yield page;
  } while (page.continuation !== undefined);
}
