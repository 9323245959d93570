import { parentPort } from 'node:worker_threads';
import { perform } from './perform.ts';
import type { ScriptAnswer } from './script.ts';
import type { Job, Said, ToThread } from './messages.ts';

const port = parentPort!;
let answered: ((answer: ScriptAnswer) => void) | undefined;

const say = (said: Said): void => port.postMessage(said);

async function work(job: Job): Promise<void> {
  const outcome = await perform(job, (operation) => {
    say({ kind: 'operation', operation });
    return new Promise((resolve) => {
      answered = resolve;
    });
  });
  say(outcome);
}

port.on('message', (message: ToThread) => {
  if ('answer' in message) answered?.(message.answer);
  else void work(message);
});
