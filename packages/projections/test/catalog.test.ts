import { expect, it } from 'vitest';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import type { ScriptState } from '@epitaph/core/script/state.ts';
import { scriptStream } from '@epitaph/core/script/stream-name.ts';
import { recordedEvent } from '@epitaph/core/testing/recorded-event.ts';
import { catalogChange } from '../src/catalog/catalog-changes.ts';
import { Catalog } from '../src/catalog/catalog.ts';

it('lists the containers of a database in order of creation, without reading those of other databases', () => {
  const catalog = new Catalog();
  let looks = 0;
  const put = (number: number, database: string, name: string, status: 'live' | 'deleted' = 'live') => {
    const state = {
      rid: `rid ${number}`,
      databaseRid: database,
      name,
      get status() {
        looks += 1;
        return status;
      },
    };
    catalog.put({ kind: 'container', number, state: state as unknown as ContainerState });
  };
  for (let number = 100; number < 1_100; number++) put(number, `database ${number % 100}`, `c${number}`);
  put(1, 'here', 'a');
  put(2, 'here', 'b');
  put(3, 'here', 'c');
  // The name is taken again before the deletion is known.
  put(4, 'here', 'a');
  put(1, 'here', 'a', 'deleted');
  put(3, 'here', 'c', 'deleted');
  looks = 0;
  expect(catalog.liveContainers('here').map(({ rid }) => rid)).toEqual(['rid 2', 'rid 4']);
  expect(catalog.liveContainers('database 7').length).toBe(10);
  expect(catalog.liveContainers('nowhere')).toEqual([]);
  expect(looks).toBe(0);
  expect(catalog.containerByName('here', 'a')?.number).toBe(4);
  expect(catalog.containerByName('here', 'c')).toBe(undefined);
});

it('lists the scripts of a container in order of creation, without reading those of other containers', () => {
  const catalog = new Catalog();
  let looks = 0;
  const put = (number: number, containerRid: string, name: string, status: 'live' | 'deleted' = 'live') => {
    const state: ScriptState = {
      status,
      rid: `rid ${number}`,
      databaseRid: 'database',
      containerRid,
      get kind() {
        looks += 1;
        return name.startsWith('f') ? ('user-defined-function' as const) : ('trigger' as const);
      },
      name,
      body: '',
      etag: '',
      changedAtMs: 0,
    };
    catalog.put({ kind: 'script', number, state });
  };
  for (let number = 100; number < 200; number++) put(number, `container ${number % 10}`, `f${number}`);
  put(3, 'here', 'f2');
  put(2, 'here', 'f1');
  put(1, 'here', 'f0');
  put(4, 'here', 't');
  put(2, 'here', 'f1', 'deleted');
  looks = 0;
  expect(catalog.scriptsOf('here', 'user-defined-function').map(({ name }) => name)).toEqual(['f0', 'f2']);
  expect(looks).toBe(3);
  expect(catalog.scriptsOf('here').map(({ name }) => name)).toEqual(['f0', 'f2', 't']);
  expect(catalog.scriptsOf('nowhere')).toEqual([]);
});

it('keeps no texts of scripts whose container is deleted, by itself or with its database', () => {
  const catalog = new Catalog();
  const ofDatabase = (status: 'live' | 'deleted') => {
    const gone = status === 'live' ? {} : { deletedAtMs: 5 };
    const state = { rid: 'database', name: 'database', status, ...gone } as unknown as DatabaseState;
    catalog.put({ kind: 'database', number: 1, state });
  };
  const ofContainer = (rid: string, status: 'live' | 'deleted') => {
    const deletedAtMs = status === 'live' ? null : 4;
    const state = { rid, databaseRid: 'database', name: rid, status, deletedAtMs } as unknown as ContainerState;
    catalog.put({ kind: 'container', number: rid === 'a' ? 2 : 3, state });
  };
  const ofScript = (containerRid: string, body: string) => {
    const named = { rid: `script of ${containerRid}`, databaseRid: 'database', containerRid, name: 'script' };
    const state = { status: 'live', kind: 'trigger', ...named, body, etag: '', changedAtMs: 0 } as const;
    catalog.put({ kind: 'script', number: 4, state });
  };
  const texts = () => ['a', 'b'].map((rid) => catalog.scriptsOf(rid).map(({ body }) => body));
  ofDatabase('live');
  for (const rid of ['a', 'b']) {
    ofContainer(rid, 'live');
    ofScript(rid, 'text');
  }
  expect(texts()).toEqual([['text'], ['text']]);
  ofContainer('a', 'deleted');
  expect(texts()).toEqual([[''], ['text']]);
  // A write that was decided before the deletion.
  ofScript('a', 'later');
  expect(texts()).toEqual([[''], ['text']]);
  expect(catalog.script('a', 'trigger', 'script')?.body).toBe('');
  ofDatabase('deleted');
  expect(texts()).toEqual([[''], ['']]);
});

it('does not go on with the text of a script of which an event can’t be read', () => {
  const catalog = new Catalog();
  const of = { databaseRid: 'Db1', containerRid: 'Co1', kind: 'trigger', name: 'stamp' } as const;
  const stream = scriptStream('Co1Sc1');
  const created = { type: 'ScriptCreated', data: { ...of, body: 'function old() {}' } } as const;
  catalog.put(catalogChange(recordedEvent(stream, created), catalog)!);
  const at = { revision: 1, position: 2 };
  const damaged = recordedEvent(stream, { type: 'ScriptReplaced', data: { body: 7 } }, at);
  const change = catalogChange(damaged, catalog)!;
  expect(change.state).toMatchObject({ ...of, status: 'deleted', body: '' });
  catalog.put(change);
  const replaced = { type: 'ScriptReplaced', data: { body: 'function now() {}' } } as const;
  const later = recordedEvent(scriptStream('Co1Sc2'), replaced, at);
  expect(() => catalogChange(later, catalog)).toThrow(/Restore the event log/);
});
