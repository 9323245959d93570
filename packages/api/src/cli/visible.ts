/** Control characters, including line ends, and characters that change the direction of text. */
const UNSEEN = /[\p{Cc}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]/gu;

/**
 * A line of output without invisible characters. Ids, reasons and names come from clients and other users of the store.
 * They must not move a terminal's cursor, or look like another line.
 */
export const visible = (line: string): string =>
  line.replaceAll(UNSEEN, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** As {@link visible}, for a text of several lines, such as a stack. */
export const visibleLines = (text: string): string => text.split('\n').map(visible).join('\n');
