import { expect, it } from 'vitest';
import { streamPages } from '@epitaph/core/log/stream-pages.ts';
import { recordedEvent } from '@epitaph/core/testing/recorded-event.ts';

const STREAM = 'container-c';

/** The revisions read of a stream with this many events, some of which the log has lost. */
async function readOf(written: number, lost: readonly number[]): Promise<number[]> {
  const events = Array.from({ length: written }, (_, revision) =>
    recordedEvent(STREAM, { type: 'ContainerTtlChanged', data: {} }, { revision, position: revision + 1 }),
  ).filter(({ revision }) => !lost.includes(revision));
  const log = {
    readStream: (_: string, part: { readonly fromRevision?: number; readonly toRevision?: number | undefined } = {}) =>
      events.filter(({ revision }) => revision >= part.fromRevision! && revision <= part.toRevision!),
    readLast: () => events.at(-1),
  };
  const revisions: number[] = [];
  for await (const page of streamPages(log, STREAM)) revisions.push(...page.map(({ revision }) => revision));
  return revisions;
}

const upTo = (count: number) => Array.from({ length: count }, (_, revision) => revision);

it.each([0, 1, 31, 32, 33, 64, 100])('a stream of %i events is read completely', async (written) => {
  expect(await readOf(written, [])).toEqual(upTo(written));
});

it.each([[[3]], [[31]], [[32]], [[0]], [[63]], [upTo(32)], [upTo(70).slice(20)]])(
  'events after lost ones are read all the same',
  async (lost) => {
    expect(await readOf(100, lost)).toEqual(upTo(100).filter((revision) => !lost.includes(revision)));
  },
);
