import { setImmediate } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { Together } from '@epitaph/storage/postgres/together.ts';

/** Statements as they are made. Each is answered when the test says so. */
function statements() {
  const made: { readonly questions: readonly number[]; answer(): void; fail(error: Error): void }[] = [];
  const together = new Together<number, string>((questions) => {
    const { promise, resolve, reject } = Promise.withResolvers<string[]>();
    made.push({ questions, answer: () => resolve(questions.map((one) => `${one}!`)), fail: reject });
    return promise;
  });
  return { made, ask: (...questions: number[]) => questions.map((question) => together.answer(question)) };
}

describe('questions that are asked together', () => {
  it('are one statement for each turn, however late in the turn they come', async () => {
    const { made, ask } = statements();
    const first = ask(1, 2);
    for (let step = 0; step < 20; step++) await Promise.resolve();
    const second = ask(3);
    await setImmediate();
    expect(made.map(({ questions }) => questions)).toEqual([[1, 2, 3]]);
    made[0]!.answer();
    expect(await Promise.all([...first, ...second])).toEqual(['1!', '2!', '3!']);
  });

  it('wait while two statements are in progress, and are then the next one', async () => {
    const { made, ask } = statements();
    const answers: Promise<string>[] = [];
    for (let question = 1; question <= 5; question++) {
      answers.push(...ask(question));
      await setImmediate();
    }
    expect(made.map(({ questions }) => questions)).toEqual([[1], [2]]);
    made[1]!.answer();
    await setImmediate();
    // A statement must not answer questions that were asked after it was sent.
    expect(made.map(({ questions }) => questions)).toEqual([[1], [2], [3, 4, 5]]);
    made[2]!.answer();
    expect(await Promise.all(answers.slice(1))).toEqual(['2!', '3!', '4!', '5!']);
    made[0]!.answer();
    expect(await answers[0]).toBe('1!');
    const [later] = ask(6);
    await setImmediate();
    made[3]!.answer();
    expect(await later).toBe('6!');
    for (const question of [7, 8, 9]) {
      answers.push(...ask(question));
      await setImmediate();
    }
    expect(made.slice(4).map(({ questions }) => questions)).toEqual([[7], [8]]);
  });

  it('are limited in number for each statement', async () => {
    const { made, ask } = statements();
    const answers = ask(...Array.from({ length: 600 }, (_, index) => index));
    await setImmediate();
    expect(made.map(({ questions }) => questions.length)).toEqual([256, 256]);
    made[0]!.answer();
    await setImmediate();
    expect(made.map(({ questions }) => questions.length)).toEqual([256, 256, 88]);
    for (const statement of made) statement.answer();
    expect(await Promise.all(answers)).toHaveLength(600);
  });

  it('all fail if the server is away, and later ones are asked', async () => {
    const { made, ask } = statements();
    const answers = Promise.allSettled(ask(1, 2));
    await setImmediate();
    const away = new StorageUnavailable('away');
    made[0]!.fail(away);
    expect(await answers).toMatchObject([{ reason: away }, { reason: away }]);
    const [later] = ask(3);
    await setImmediate();
    expect(made.map(({ questions }) => questions)).toEqual([[1, 2], [3]]);
    made[1]!.answer();
    expect(await later).toBe('3!');
  });

  it('are asked one by one if they can’t be answered together', async () => {
    const { made, ask } = statements();
    const answers = Promise.allSettled(ask(1, 2));
    await setImmediate();
    made[0]!.fail(new Error('one of them is damaged'));
    await setImmediate();
    expect(made).toHaveLength(2);
    made[1]!.fail(new Error('this one'));
    await setImmediate();
    made[2]!.answer();
    expect(await answers).toMatchObject([{ reason: { message: 'this one' } }, { value: '2!' }]);
    expect(made.map(({ questions }) => questions)).toEqual([[1, 2], [1], [2]]);
  });
});
