import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { Memory, OrderedPage, parseQuery, planQuery } from '../src/index.ts';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;
const heapBytes = () => {
  collectGarbage();
  return process.memoryUsage().heapUsed;
};

// A fraction takes an object of its own and an integer does not. Once an engine has seen a fraction in a field, so does each later number
// in that field. So the integers come first.
describe.each([
  ['integers', Array.from({ length: 50_000 }, (_, n) => ({ id: `i${n}`, n }))],
  ['fractions', Array.from({ length: 50_000 }, (_, n) => ({ id: `i${n}`, n: n + 0.5 }))],
])('the memory of a query over %s', (_name, documents) => {
  it.each([
    'SELECT c.n FROM c ORDER BY c.n',
    'SELECT c.n, c.id FROM c ORDER BY c.n DESC, c.id',
    'SELECT c.n, COUNT(1) AS count FROM c GROUP BY c.n',
    'SELECT c.n, COUNT(1) AS count, MAX(c.n) AS high FROM c GROUP BY c.n, c.id',
  ])('is counted as no less than its rows take, however small these are: %s', (sql) => {
    const memory = new Memory(Number.POSITIVE_INFINITY);
    const before = heapBytes();
    const page = new OrderedPage(planQuery(parseQuery(sql)), { memory }, undefined, documents.length);
    page.offer(documents, (index) => index);
    const taken = heapBytes() - before;
    expect(memory.heldBytes).toBeGreaterThan(taken);
    // Keeps the page alive until here.
    expect([...page.finishing()]).toBeDefined();
  });
});
