/** Lets everything else that waits go first: between the steps of long work, so that it holds no request. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
