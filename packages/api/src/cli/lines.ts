/**
 * The lines of a text that arrives in pieces. Only a line feed ends a line: JSON may contain other separators, which
 * readline takes for line ends.
 */
export async function* linesIn(pieces: AsyncIterable<string>): AsyncGenerator<string> {
  let rest = '';
  for await (const piece of pieces) {
    const [end, ...begun] = piece.split('\n');
    rest += end;
    for (const next of begun) {
      yield rest;
      rest = next;
    }
  }
  if (rest !== '') yield rest;
}
