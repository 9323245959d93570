import type { FunctionsOutcome, ScriptOutcome } from '@epitaph/scripts';
import { badRequest, overloaded, WireError, wrappedErrors } from '../errors.ts';

type Failed = Exclude<ScriptOutcome | FunctionsOutcome, { readonly kind: 'done' }>;

/**
 * The error to throw for a script or function that did not complete.
 *
 * @param subject names the script or function in the message
 */
export function failureOf(subject: string, outcome: Failed): unknown {
  switch (outcome.kind) {
    case 'threw': {
      const { message, number } = outcome;
      const what = 'name' in outcome ? `'udf.${outcome.name}'` : 'Javascript';
      // The number that the script gave its error becomes the substatus, by which clients tell errors apart.
      const substatus = number !== undefined && number > 0 && number < 2 ** 31 ? number : undefined;
      const told = wrappedErrors(`Encountered exception while executing ${what}. ${message}`);
      return new WireError('badRequest', told, { substatus });
    }
    case 'out-of-time':
      return new WireError('requestTimeout', wrappedErrors(`${subject} did not finish in time.`));
    case 'out-of-memory':
      return badRequest(wrappedErrors(`${subject} used more memory than a script may use.`));
    case 'stopped':
      return outcome.error;
    case 'busy':
      return overloaded(1_000);
    default:
      return outcome satisfies never;
  }
}
