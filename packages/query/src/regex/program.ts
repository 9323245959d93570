import { type Assertion, type CharacterTest, refused, type Tree } from './pattern.ts';

const MAX_INSTRUCTIONS = 5_000;

export type Instruction =
  | { readonly kind: 'character'; readonly test: CharacterTest }
  | { readonly kind: 'assert'; readonly assertion: Assertion }
  | { readonly kind: 'split'; first: number; second: number }
  | { readonly kind: 'jump'; target: number }
  /** Records the begin or the end of the wanted group. */
  | { readonly kind: 'open' | 'close' }
  | { readonly kind: 'match' };

class Assembler {
  readonly instructions: Instruction[] = [];
  readonly #pattern: string;
  readonly #wantedGroup: number;

  constructor(pattern: string, wantedGroup: number) {
    this.#pattern = pattern;
    this.#wantedGroup = wantedGroup;
  }

  add(instruction: Instruction): number {
    if (this.instructions.length >= MAX_INSTRUCTIONS) refused(this.#pattern, 'it is too large');
    this.instructions.push(instruction);
    return this.instructions.length - 1;
  }

  emit(tree: Tree): void {
    switch (tree.kind) {
      case 'empty':
        return;
      case 'character':
      case 'assert':
        this.add(tree);
        return;
      case 'sequence':
        for (const part of tree.parts) this.emit(part);
        return;
      case 'choice':
        this.#choice(tree.options);
        return;
      case 'group':
        this.#group(tree);
        return;
      case 'repeat':
        this.#repeat(tree);
    }
  }

  /**
   * Emits a split into two ways to continue: with the next emitted instruction, and at another place.
   *
   * @param isNextFirst whether the next instruction is preferred
   * @returns a function that must be called with the other place, once it is known
   */
  #split(isNextFirst: boolean): (otherPlace: number) => void {
    const split = { kind: 'split' as const, first: 0, second: 0 };
    this.add(split);
    const next = this.instructions.length;
    split.first = next;
    return (otherPlace) => {
      if (isNextFirst) split.second = otherPlace;
      else [split.first, split.second] = [otherPlace, next];
    };
  }

  #group({ number, inner }: Extract<Tree, { kind: 'group' }>): void {
    const isWanted = number === this.#wantedGroup;
    if (isWanted) this.add({ kind: 'open' });
    this.emit(inner);
    if (isWanted) this.add({ kind: 'close' });
  }

  #choice(options: readonly Tree[]): void {
    const jumps: { kind: 'jump'; target: number }[] = [];
    options.forEach((option, index) => {
      if (index === options.length - 1) {
        this.emit(option);
        return;
      }
      const setOther = this.#split(true);
      this.emit(option);
      const jump = { kind: 'jump' as const, target: 0 };
      this.add(jump);
      jumps.push(jump);
      setOther(this.instructions.length);
    });
    for (const jump of jumps) jump.target = this.instructions.length;
  }

  #repeat({ inner, min, max, lazy }: Extract<Tree, { kind: 'repeat' }>): void {
    for (let count = 0; count < min; count += 1) {
      const { length } = this.instructions;
      this.emit(inner);
      // If the repeated part emits no instruction, further repetitions don't either, and the limit on instructions would never stop this.
      if (this.instructions.length === length) return;
    }
    if (max === Number.POSITIVE_INFINITY) {
      const loop = this.instructions.length;
      const setOther = this.#split(!lazy);
      this.emit(inner);
      this.add({ kind: 'jump', target: loop });
      setOther(this.instructions.length);
      return;
    }
    const skips = [];
    for (let count = min; count < max; count += 1) {
      skips.push(this.#split(!lazy));
      this.emit(inner);
    }
    for (const setEnd of skips) setEnd(this.instructions.length);
  }
}

/**
 * Makes the program that searches for a pattern.
 *
 * @param wantedGroup the number of the group whose place is recorded; 0 for none
 * @throws QueryError if the pattern is too large
 */
export function assemble(pattern: string, tree: Tree, wantedGroup: number): readonly Instruction[] {
  const assembler = new Assembler(pattern, wantedGroup);
  assembler.emit(tree);
  assembler.add({ kind: 'match' });
  return assembler.instructions;
}
