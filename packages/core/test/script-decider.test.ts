import { describe, expect, it } from 'vitest';
import { foldScript } from '@epitaph/core/script/evolve.ts';
import { scriptStream } from '@epitaph/core/script/stream-name.ts';
import { etagOfGiven, givenScript } from '@epitaph/core/testing/given-when-then.ts';
import { recordedEvent } from '@epitaph/core/testing/recorded-event.ts';
import { UnreadableEvent } from '@epitaph/core/upcast.ts';

const of = { databaseRid: 'Db', containerRid: 'C', kind: 'trigger', name: 'stamp' } as const;
const first = { body: 'function () {}', trigger: { type: 'Pre', operation: 'All' } } as const;
const second = { body: 'function (a) {}', trigger: { type: 'Post', operation: 'Create' } } as const;
const created = { type: 'ScriptCreated', data: { ...of, ...first } } as const;
const replaced = { type: 'ScriptReplaced', data: second } as const;
const deleted = { type: 'ScriptDeleted', data: {} } as const;
const create = { type: 'WriteScript', operation: 'create', ...of, content: first } as const;
const upsert = { ...create, operation: 'upsert', content: second } as const;
const replace = { type: 'ReplaceScript', content: second } as const;
const remove = { type: 'DeleteScript' } as const;

describe('a script', () => {
  it('is created once; with another name in its stream, or one that is deleted, it is refused as taken', () => {
    givenScript().when(create).then(created);
    givenScript(created).when(create).thenRefused('already-exists');
    givenScript(created)
      .when({ ...create, name: 'other' })
      .thenRefused('rid-taken');
    givenScript(created, deleted).when(create).thenRefused('rid-taken');
    givenScript(created, deleted).when(upsert).thenRefused('rid-taken');
  });
  it('is created or replaced by an upsert', () => {
    givenScript()
      .when(upsert)
      .then({ type: 'ScriptCreated', data: { ...of, ...second } });
    givenScript(created).when(upsert).then(replaced);
    givenScript(created)
      .when({ ...upsert, ifMatch: etagOfGiven(0) })
      .then(replaced);
    givenScript(created)
      .when({ ...upsert, ifMatch: '"x"' })
      .thenRefused('precondition-failed');
    givenScript()
      .when({ ...upsert, ifMatch: '*' })
      .thenRefused('precondition-failed');
  });
  it.each([
    { command: replace, event: replaced },
    { command: remove, event: deleted },
  ])('accepts $command.type with the current etag or none', ({ command, event }) => {
    givenScript(created).when(command).then(event);
    givenScript(created)
      .when({ ...command, ifMatch: etagOfGiven(0) })
      .then(event);
    givenScript(created)
      .when({ ...command, ifMatch: '"x"' })
      .thenRefused('precondition-failed');
    givenScript().when(command).thenRefused('not-found');
    givenScript(created, deleted).when(command).thenRefused('not-found');
  });
  it('has the content of its last write', () => {
    const stream = scriptStream('S');
    const events = [
      recordedEvent(stream, created, { id: 'a' }),
      recordedEvent(stream, replaced, { id: 'b', revision: 1, occurredAtMs: 5 }),
      recordedEvent(stream, deleted, { id: 'c', revision: 2, occurredAtMs: 6 }),
    ];
    const written = { status: 'live', rid: 'S', ...of, ...second, etag: '"b"', changedAtMs: 5 };
    expect(foldScript(events.slice(0, 2))).toEqual(written);
    // Its text is dropped with it.
    expect(foldScript(events)).toEqual({ ...written, status: 'deleted', body: '', etag: '"c"', changedAtMs: 6 });
    expect(() => foldScript(events.slice(1))).toThrow(UnreadableEvent);
  });
});
