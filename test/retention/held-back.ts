/**
 * Delays calls of a method until the test lets them go on: the next call alone, or all from now on.
 *
 * @returns functions that tell whether a call has come, let the waiting calls go on, and restore the method
 */
export function holdBack<Name extends string, Method extends (...args: never[]) => Promise<unknown>>(
  of: Record<Name, Method>,
  name: Name,
  calls: 'next' | 'all',
): { readonly hasCome: () => boolean; readonly goOn: () => void; readonly restore: () => void } {
  const method = of[name];
  const { promise, resolve } = Promise.withResolvers<void>();
  let come = false;
  const restore = () => void (of[name] = method);
  of[name] = async function (this: unknown, ...args: never[]) {
    come = true;
    if (calls === 'next') restore();
    await promise;
    return method.apply(this, args);
  } as Method;
  return { hasCome: () => come, goOn: resolve, restore };
}
