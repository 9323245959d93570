import { describe, expect, it } from 'vitest';
import { MAX_BODY, MAX_LOG, MAX_RESPONSE } from '../src/limits.ts';
import { readSaid } from '../src/messages.ts';

const said = (value: unknown) => readSaid(value, 2);
const operation = (value: unknown) => said({ kind: 'operation', operation: value });
const outcome = (value: object) => said({ kind: 'script', outcome: { log: '', workedMs: 1, ...value } });
const results = (value: unknown) => said({ kind: 'functions', outcome: { kind: 'done', results: value, workedMs: 1 } });

describe('What a thread says', () => {
  it('is read by what is expected, and nothing else of it is kept', () => {
    const create = { kind: 'create', body: '{}', makesId: true };
    expect(operation({ ...create, link: 'x', more: 1 })).toEqual({ kind: 'operation', operation: create });
    const done = { kind: 'done', body: '1', requestBody: '{}', log: 'l', workedMs: 1 };
    expect(outcome({ ...done, number: 1 })).toEqual({ kind: 'script', outcome: done });
    expect(outcome({ kind: 'threw', message: 'm', body: 'b' })).toEqual({
      kind: 'script',
      outcome: { kind: 'threw', message: 'm', log: '', workedMs: 1 },
    });
    const largest = { kind: 'create', body: 'x'.repeat(MAX_BODY), makesId: false };
    expect(operation(largest)).toEqual({ kind: 'operation', operation: largest });
    expect(outcome({ kind: 'out-of-time', workedMs: 0 })).toMatchObject({
      outcome: { kind: 'out-of-time', workedMs: 0 },
    });
    expect(results(['1', undefined])).toMatchObject({ outcome: { results: ['1', undefined] } });
  });

  it.each([
    ['nothing', undefined],
    ['a text', 'operation'],
    ['null', null],
    ['another kind', { kind: 'other' }],
    ['an operation of no kind', { kind: 'operation', operation: { kind: 'drop' } }],
    ['no operation', { kind: 'operation' }],
    ['an operation that is null', { kind: 'operation', operation: null }],
    ['no outcome', { kind: 'script' }],
    ['an outcome that is null', { kind: 'script', outcome: null }],
    ['no results', { kind: 'functions' }],
    ['an outcome that is the runner to say', { kind: 'script', outcome: { kind: 'busy', log: '', workedMs: 1 } }],
  ])('is not believed: %s', (_, value) => {
    expect(said(value)).toBe(undefined);
  });

  it.each([
    { kind: 'create', body: {}, makesId: true },
    { kind: 'create', body: 'x'.repeat(MAX_BODY + 1), makesId: true },
    { kind: 'create', body: '{}' },
    { kind: 'replace', link: 1, body: '{}' },
    { kind: 'replace', link: 'l', body: '{}', ifMatch: 1 },
    { kind: 'delete', link: 'x'.repeat(1e5) },
    { kind: 'read', link: 'l', ifNoneMatch: {} },
    { kind: 'list', pageSize: 0 },
    { kind: 'list', pageSize: 1.5 },
    { kind: 'list', pageSize: '1' },
    { kind: 'list', pageSize: 1e9 },
    { kind: 'list', continuation: 1 },
    { kind: 'query', query: 'q' },
    { kind: 'query', query: 'q', parameters: [] },
  ])('is not believed as an operation: %#', (value) => {
    expect(operation(value)).toBe(undefined);
  });

  it.each([
    { kind: 'done', body: 'x'.repeat(MAX_RESPONSE + 1) },
    { kind: 'done', body: 1 },
    { kind: 'done', requestBody: 'x'.repeat(MAX_BODY + 1) },
    { kind: 'done', log: 'x'.repeat(MAX_LOG + 1) },
    { kind: 'done', log: undefined },
    { kind: 'done', workedMs: -1 },
    { kind: 'done', workedMs: Number.NaN },
    { kind: 'done', workedMs: '1' },
    { kind: 'threw' },
    { kind: 'threw', message: 'm', number: 1.5 },
    { kind: 'threw', message: 'x'.repeat(1e5) },
  ])('is not believed as an outcome: %#', (value) => {
    expect(outcome(value)).toBe(undefined);
  });

  it('is not believed as what functions threw where its number is none', () => {
    const threw = (number: unknown) =>
      readSaid({ kind: 'functions', outcome: { kind: 'threw', name: 'f', message: 'm', number, workedMs: 1 } }, 1);
    expect(threw(7)).toMatchObject({ outcome: { number: 7 } });
    expect(threw(undefined)).not.toHaveProperty('outcome.number');
    expect(threw('7')).toBe(undefined);
  });

  it.each([[['1']], [['1', '2', '3']], [['1', 2]], [['1', null]], ['12'], [{ length: 2, 0: '1', 1: '2' }]])(
    'is not believed as the results of two calls: %j',
    (value) => {
      expect(results(value)).toBe(undefined);
    },
  );
});
