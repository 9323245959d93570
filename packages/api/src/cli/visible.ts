/** Controls, line ends among them, and what turns the direction of the text after it. */
const UNSEEN = /[\p{Cc}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]/gu;

/**
 * A line of output in which nothing is unseen. Ids, reasons and names are whatever clients and other users of the
 * store made them: they must not move a terminal's cursor, or look like another line.
 */
export const visible = (line: string): string =>
  line.replaceAll(UNSEEN, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** The same of a text of several lines, such as a stack. */
export const visibleLines = (text: string): string => text.split('\n').map(visible).join('\n');
