/** Called before each step that changes a file; a test's crash is an exception thrown from here. */
export type StepHook = (step: string) => void;

/** Raised by a {@link StepHook} to stop the process where it is; never caught by the writer. */
export class PlacedCrash extends Error {
  override readonly name = 'PlacedCrash';
}
