/** Called before each step that changes a file; a test's crash is an exception thrown from here. */
export type StepHook = (step: string) => void;

/** Thrown by a {@link StepHook} to simulate a crash at this step. The writer never catches it. */
export class PlacedCrash extends Error {
  override readonly name = 'PlacedCrash';
}
