import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { expect, test } from 'vitest';
import { Engine } from '../src/engine.ts';

declare const WebAssembly: { readonly compile: (code: Uint8Array) => Promise<object> };

const MEMORY_BYTES = 64 * 1024 * 1024;
/** The state of `Math.random`. Its seed is all in which engines differ after the start. */
const RANDOM_STATE_BYTES = 8;

const path = createRequire(import.meta.url).resolve('@jitl/quickjs-wasmfile-release-sync/wasm');
const code = await WebAssembly.compile(readFileSync(path));

const said = (engine: Engine, program: string): string | undefined => engine.text(engine.run(program, 'test.js'));

const work = (engine: Engine): void => {
  const program = `
    const known = new Map([['a', [1, 2.5, 'ä', /x+/, Symbol.for('s')]]]);
    globalThis.told = (name) => String(known.get(name).map(String)) + [..."bca"].sort().join('');`;
  engine.run(program, 'work.js').dispose();
};

test('What work has changed in one engine comes to the same in another, where it is not done', async () => {
  const memory = Engine.newMemory(MEMORY_BYTES);
  const worked = await Engine.start(code, memory);
  const changes = worked.changesBy(() => work(worked));
  const otherMemory = Engine.newMemory(MEMORY_BYTES);
  const other = await Engine.start(code, otherMemory, changes);

  const words = (of: typeof memory) => new BigUint64Array(of.buffer);
  const [one, two] = [words(memory), words(otherMemory)];
  const different = one.reduce((count, word, at) => count + (word === two[at] ? 0 : 1), 0);
  expect(different * BigUint64Array.BYTES_PER_ELEMENT).toBe(RANDOM_STATE_BYTES);
  expect(said(other, 'told("a")')).toBe(said(worked, 'told("a")'));
  const random = 'String(Math.random())';
  expect(said(other, random)).not.toBe(said(worked, random));
});

test('The memory that an engine leaves is blank, and another works in it as in its own', async () => {
  const first = await Engine.start(code, Engine.newMemory(MEMORY_BYTES));
  const changes = first.changesBy(() => work(first));
  first.run('globalThis.secret = "x".repeat(1e7); globalThis.told = undefined', 'test.js');
  const left = first.leaveMemory()!;
  expect(Buffer.from(left.buffer).equals(Buffer.alloc(left.buffer.byteLength))).toBe(true);
  const next = await Engine.start(code, left, changes);
  expect(said(next, 'typeof secret + told("a")')).toBe('undefined1,2.5,ä,/x+/,Symbol(s)abc');
});

test('Memory that has grown is not left: it can’t become smaller again', async () => {
  const engine = await Engine.start(code, Engine.newMemory(MEMORY_BYTES));
  engine.run('globalThis.large = new ArrayBuffer(20e6)', 'test.js');
  expect(engine.leaveMemory()).toBeUndefined();
});
