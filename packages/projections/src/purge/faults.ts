import { UnreadableEvent } from '@epitaph/core/upcast.ts';
import { UnreadableSecret } from '@epitaph/core/vault/key-vault.ts';
import { stepwise } from './stepwise.ts';

/** For how long lives at fault are left alone before they are tried again. */
export const FAULT_RETRY_MS = 60_000;

/**
 * A life whose end or erasure can't be carried out or can't be recorded. An operator must look at it. Nothing claims
 * that it ended or was erased.
 */
export class PurgeFault extends Error {
  override readonly name = 'PurgeFault';
}

/**
 * Like {@link stepwise}, but a life at fault does not keep others from their turn. A life is at fault if it meets a
 * {@link PurgeFault}, if its events can't be read, or if its name can't be computed.
 *
 * @param atFault called with each such life and its fault
 * @returns the first fault that was met, when all others are done
 */
export async function despiteFaults<Life>(
  lives: readonly Life[],
  work: (life: Life) => Promise<void>,
  atFault: (life: Life, fault: PurgeFault) => void = () => {},
): Promise<PurgeFault | undefined> {
  let fault: PurgeFault | undefined;
  await stepwise(lives, async (life) => {
    try {
      await work(life);
    } catch (error) {
      const isDamage = error instanceof UnreadableEvent || error instanceof UnreadableSecret;
      const met = isDamage ? new PurgeFault(error.message, { cause: error }) : error;
      if (!(met instanceof PurgeFault)) throw error;
      fault ??= met;
      atFault(life, met);
    }
  });
  return fault;
}
