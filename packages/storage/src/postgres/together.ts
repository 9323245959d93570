import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';

/** How many statements of one kind may run at the same time. One of them may hang if its connection is lost. */
const UNDER_WAY = 2;
/** How many questions one statement may have, by default. */
const AT_ONCE = 256;

interface Asked<Question, Answer> {
  readonly question: Question;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Combines questions of one kind to a server: those that arrive while others are being answered, and those of one turn of the event
 * loop, are asked by one statement. Most of the time of a look-up is spent on the statement, here and on the server. A question is
 * never answered by a statement that was sent before it.
 */
export class Together<Question, Answer> {
  readonly #ask: (questions: readonly Question[]) => Promise<readonly Answer[]>;
  readonly #atOnce: number;
  #waiting: Asked<Question, Answer>[] = [];
  #underWay = 0;
  #isScheduled = false;

  /** @param ask returns an answer for each question, in order. For a single question it should use its fastest statement */
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
    // nextTick runs after all synchronous work of this turn, which may add more questions.
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
      // If something that one question needs is damaged, the others must still be answered. So each is asked by itself.
      else for (const one of asked) await this.#answer([one]);
    }
  }
}
