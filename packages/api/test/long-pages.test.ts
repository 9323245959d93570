import { afterEach, describe, expect, it, vi } from 'vitest';
import { LongPages, type PageRequest } from '@epitaph/api/store/queries/long-pages.ts';

afterEach(() => vi.useRealTimers());

/** Pages that are ready when the test says so. */
function desk(waitMs = 1) {
  const begun: { readonly signal: AbortSignal; ready(row: string): void; readonly givenUp: () => void }[] = [];
  const make = (signal: AbortSignal) => {
    const { promise: page, resolve, reject } = Promise.withResolvers<string>();
    signal.addEventListener('abort', () => reject(signal.reason as Error));
    const givenUp = vi.fn<() => void>();
    begun.push({ signal, ready: resolve, givenUp });
    return { page, givenUp };
  };
  const pages = new LongPages<ReturnType<typeof make>>(waitMs);
  const ask = async (request: Partial<PageRequest> & { readonly sql?: string } = {}) => {
    const { sql = 'SELECT 1', ...given } = request;
    const asked = { id: undefined, isAwaited: false, signal: undefined, standAside: undefined, ...given };
    const { made, again } = await pages.ask({ ...asked, about: () => sql }, make);
    return again === undefined ? { row: await made.page } : { again };
  };
  return { pages, ask, begun };
}

describe('a page', () => {
  it('that is ready soon is answered at once', async () => {
    const { ask, begun } = desk(10_000);
    const asked = ask();
    begun[0]!.ready('one');
    expect(await asked).toEqual({ row: 'one' });
  });

  it('that takes long is computed once, and returned to the client that asks for it again', async () => {
    const { ask, begun } = desk();
    const { again: id } = await ask();
    expect(await ask({ id })).toEqual({ again: id });
    begun[0]!.ready('one');
    expect(await ask({ id })).toEqual({ row: 'one' });
    expect(begun.length).toBe(1);
    expect(begun[0]!.givenUp).not.toHaveBeenCalled();
  });

  it('is not returned for another query with its id', async () => {
    const { ask, begun } = desk();
    const { again: id } = await ask({ sql: 'SELECT secret' });
    expect(await ask({ id, sql: 'SELECT 2' })).toEqual({ again: id });
    expect(begun[0]!.signal.aborted).toBe(true);
    begun[1]!.ready('two');
    expect(await ask({ id, sql: 'SELECT 2' })).toEqual({ row: 'two' });
  });

  it('with an unknown id is begun again under that id, so that a client between two nodes gets it in the end', async () => {
    const [one, other] = [desk(), desk()];
    const { again: id } = await one.ask();
    expect(await other.ask({ id })).toEqual({ again: id });
    expect(await one.ask({ id })).toEqual({ again: id });
    other.begun[0]!.ready('one');
    expect(await other.ask({ id })).toEqual({ row: 'one' });
    expect([one.begun.length, other.begun.length]).toEqual([1, 1]);
  });

  it('is cancelled with the request of a client that leaves before it was told how to ask again', async () => {
    const { ask, begun } = desk(10_000);
    const gone = new AbortController();
    const asked = ask({ signal: gone.signal });
    gone.abort(new Error('the client is gone'));
    await expect(asked).rejects.toThrow('the client is gone');
    expect(begun[0]!.signal.reason).toBe(gone.signal.reason);
  });

  it('survives a connection that breaks while it is asked for again, and is cancelled when nobody asks for some time', async () => {
    vi.useFakeTimers();
    const { ask, begun } = desk(10_000);
    const first = ask();
    await vi.advanceTimersByTimeAsync(10_000);
    const { again: id } = await first;
    const gone = new AbortController();
    const asked = ask({ id, signal: gone.signal });
    await vi.advanceTimersByTimeAsync(5_000);
    gone.abort(new Error('the client is gone'));
    await expect(asked).rejects.toThrow('the client is gone');
    await vi.advanceTimersByTimeAsync(29_999);
    expect(begun[0]!.signal.aborted).toBe(false);
    expect(begun[0]!.givenUp).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1);
    expect(begun[0]!.signal.aborted).toBe(true);
    expect(begun[0]!.givenUp).toHaveBeenCalledOnce();
  });

  it('that is ready and not fetched is forgotten when content is erased', async () => {
    const { pages, ask, begun } = desk();
    const { again: id } = await ask();
    pages.forgetReady();
    begun[0]!.ready('what is erased now');
    await Promise.resolve();
    pages.forgetReady();
    expect(await ask({ id })).toEqual({ again: id });
    begun[1]!.ready('what is left');
    expect(await ask({ id })).toEqual({ row: 'what is left' });
  });

  it('that fails, fails for the client that asks for it again', async () => {
    const { ask, begun } = desk();
    const { again: id } = await ask();
    const failed = Promise.reject<string>(new Error('too much'));
    begun[0]!.ready(failed as never);
    await expect(ask({ id })).rejects.toThrow('too much');
  });

  it('is waited for to its end if its request says so, or if too many others are kept', async () => {
    const { ask, begun } = desk();
    const awaited = ask({ isAwaited: true });
    const others = Array.from({ length: 40 }, () => ask());
    const told = await Promise.race([awaited, new Promise((resolve) => setTimeout(resolve, 50))]);
    expect(told).toBeUndefined();
    for (const { ready } of begun) ready('one');
    const answers = await Promise.all(others);
    expect(await awaited).toEqual({ row: 'one' });
    expect(answers.filter((answer) => answer.row === 'one').length).toBeGreaterThanOrEqual(8);
  });

  it('that nobody waits for does not prevent the store from closing', async () => {
    const { pages, ask, begun } = desk();
    await ask();
    await pages.stop();
    expect(begun[0]!.signal.aborted).toBe(true);
  });
});
