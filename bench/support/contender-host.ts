/** Runs one contender: `node contender-host.ts <module> <factory> <options as JSON>`. Messages tell it what to do. */
import { CLOSE, type ContenderFactory, type ContenderOptions, type FromChild, type FromParent } from './contender.ts';
import { beginWork, measuredWindows } from './timing.ts';

const [, , module, factory, options] = process.argv;

function send(message: FromChild): Promise<void> {
  return new Promise((resolve, reject) => {
    process.send!(message, undefined, undefined, (error) => (error === null ? resolve() : reject(error)));
  });
}

try {
  const exported = (await import(module!)) as Readonly<Record<string, ContenderFactory>>;
  const contender = await exported[factory!]!(JSON.parse(options!) as ContenderOptions);
  process.on('message', (message) => {
    void answer(message as FromParent);
  });
  await send({ kind: 'ready' });

  async function answer({ id, work, argument }: FromParent): Promise<void> {
    if (work === CLOSE) {
      await contender.close();
      await send({ kind: 'closed', windows: measuredWindows });
      return;
    }
    beginWork(work);
    try {
      await send({ kind: 'figures', id, figures: await contender.works[work]!(argument) });
    } catch (error) {
      await send({ kind: 'failed', id, message: (error as Error).message });
    }
  }
  // Contenders must not outlive their parent. But not at once, because the profile is written at the exit.
  process.on('disconnect', () => process.exit());
} catch (error) {
  await send({ kind: 'failed', id: 0, message: (error as Error).stack ?? String(error) });
  process.exit(1);
}
