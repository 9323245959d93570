/** What all of them come to. When one fails, that is thrown once none of the others is under way any more. */
export async function allDone<Promises extends readonly Promise<unknown>[]>(
  promises: Promises,
): Promise<{ -readonly [Index in keyof Promises]: Awaited<Promises[Index]> }> {
  await Promise.allSettled(promises);
  return Promise.all(promises);
}
