import { parentPort, workerData } from 'node:worker_threads';
import { perform, World } from './perform.ts';
import type { ScriptAnswer } from './script.ts';
import type { Job, Said, ThreadOptions, ToThread } from './messages.ts';

const port = parentPort!;
let answered: ((answer: ScriptAnswer) => void) | undefined;

const say = (said: Said): void => port.postMessage(said);

const makeWorld = World.maker(workerData as ThreadOptions);

/** The world for the next job. It is made in advance, so that the job need not wait for it. */
let world = makeWorld();

async function work(job: Job): Promise<void> {
  const made = await world;
  say({ kind: 'begun' });
  const outcome = await perform(job, made, (operation) => {
    say({ kind: 'operation', operation });
    return new Promise((resolve) => {
      answered = resolve;
    });
  });
  say(outcome);
  world = makeWorld(made);
}

port.on('message', (message: ToThread) => {
  if ('answer' in message) answered?.(message.answer);
  else void work(message);
});
