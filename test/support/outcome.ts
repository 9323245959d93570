/** Whether some work ends without an error: for what is tried until it does. */
export const succeeds = (work: Promise<unknown>): Promise<boolean> =>
  work.then(
    () => true,
    () => false,
  );

/** Whether it ends with an error that says so. */
export const failsWith = (work: Promise<unknown>, message: RegExp): Promise<boolean> =>
  work.then(
    () => false,
    (error: Error) => message.test(error.message),
  );
