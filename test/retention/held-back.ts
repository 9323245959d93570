/**
 * Has calls of a method wait until they are told to go on: the next one alone, or all from here on.
 *
 * @returns whether one has come, what lets go of those that wait, and what has the method be as it was
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
