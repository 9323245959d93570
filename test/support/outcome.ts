/** Whether some work ends without an error. For work that is repeated until it succeeds. */
export const succeeds = (work: Promise<unknown>): Promise<boolean> =>
  work.then(
    () => true,
    () => false,
  );

/** Whether some work ends with such an error. */
export const failsWith = (work: Promise<unknown>, message: RegExp): Promise<boolean> =>
  work.then(
    () => false,
    (error: Error) => message.test(error.message),
  );
