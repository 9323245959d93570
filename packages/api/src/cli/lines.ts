/**
 * The lines of a text that comes in pieces. They end with a line feed and nowhere else: in JSON there may be other
 * separators, which readline takes for ends.
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
