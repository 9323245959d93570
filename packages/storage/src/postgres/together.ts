import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';

/** Statements of one kind that are under way at the same time. One of them may stand still where its connection is lost. */
const UNDER_WAY = 2;
/** Questions that go into one statement at most, where it isn't said otherwise. */
const AT_ONCE = 256;

interface Asked<Question, Answer> {
  readonly question: Question;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Questions of one kind to a server: those that come while others are under way, and those of one turn of the event loop, are
 * asked with one statement. To ask takes most of the time of a look-up, here and there. Nobody is answered by a statement that
 * was made before he asked.
 */
export class Together<Question, Answer> {
  readonly #ask: (questions: readonly Question[]) => Promise<readonly Answer[]>;
  readonly #atOnce: number;
  #waiting: Asked<Question, Answer>[] = [];
  #underWay = 0;
  #isScheduled = false;

  /** @param ask gives an answer for each question, in order; for a single one with the least that it takes */
  constructor(ask: (questions: readonly Question[]) => Promise<readonly Answer[]>, atOnce = AT_ONCE) {
    this.#ask = ask;
    this.#atOnce = atOnce;
  }

  answer(question: Question): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ question, resolve, reject });
      this.#schedule();
    });
  }

  #schedule(): void {
    if (this.#isScheduled || this.#underWay >= UNDER_WAY || this.#waiting.length === 0) return;
    this.#isScheduled = true;
    // After all that goes on without waiting for anything.
    process.nextTick(() => {
      this.#isScheduled = false;
      void this.#askSome();
    });
  }

  async #askSome(): Promise<void> {
    const asked = this.#waiting.splice(0, this.#atOnce);
    this.#underWay += 1;
    this.#schedule();
    await this.#answer(asked);
    this.#underWay -= 1;
    this.#schedule();
  }

  async #answer(asked: readonly Asked<Question, Answer>[]): Promise<void> {
    try {
      const answers = await this.#ask(asked.map(({ question }) => question));
      asked.forEach(({ resolve }, index) => resolve(answers[index]!));
    } catch (error) {
      if (asked.length === 1 || error instanceof StorageUnavailable) for (const { reject } of asked) reject(error);
      // Where something is damaged that some of them need, the others do without it.
      else for (const one of asked) await this.#answer([one]);
    }
  }
}
