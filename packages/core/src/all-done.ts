/** Like `Promise.all`, but if one promise rejects, the error is thrown only when all others have settled. */
export async function allDone<Promises extends readonly Promise<unknown>[]>(
  promises: Promises,
): Promise<{ -readonly [Index in keyof Promises]: Awaited<Promises[Index]> }> {
  await Promise.allSettled(promises);
  return Promise.all(promises);
}
