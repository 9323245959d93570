import { LifeUnreadable } from '@epitaph/core/item/handle.ts';
import { UnreadableEvent } from '@epitaph/core/upcast.ts';
import { SealBroken } from '@epitaph/core/vault/body-sealer.ts';

/** Whether an error says that data of one life in the log or the vault is damaged, and nothing else. */
export const isDamage = (error: unknown): error is UnreadableEvent | LifeUnreadable | SealBroken =>
  error instanceof UnreadableEvent || error instanceof LifeUnreadable || error instanceof SealBroken;

/**
 * Damage that clients are told about in this error's own words, because they may be able to go on without the damaged
 * part. The cause is for the server's log.
 */
export class PartUnreadable extends UnreadableEvent {}

/** Describes the damage for the operator who must repair it. */
export const damageIn = ({ message, cause }: Error): string =>
  isDamage(cause) ? `${message} ${damageIn(cause)}` : message;
