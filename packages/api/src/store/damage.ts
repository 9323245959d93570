import { LifeUnreadable } from '@epitaph/core/item/handle.ts';
import { UnreadableEvent } from '@epitaph/core/upcast.ts';
import { SealBroken } from '@epitaph/core/vault/body-sealer.ts';

/** True of what says that the log or the vault has something of one life damaged, and no more than that. */
export const isDamage = (error: unknown): error is UnreadableEvent | LifeUnreadable | SealBroken =>
  error instanceof UnreadableEvent || error instanceof LifeUnreadable || error instanceof SealBroken;

/** Something of which clients are told in its own words, for they may go on without it. The cause is for the log. */
export class PartUnreadable extends UnreadableEvent {}

/** What is damaged, for who has to put it right. */
export const damageIn = ({ message, cause }: Error): string =>
  isDamage(cause) ? `${message} ${damageIn(cause)}` : message;
