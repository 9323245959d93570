import type { FastifyInstance } from 'fastify';
import { wait } from '../wait.ts';
import type { Caller } from '../store/api/common.ts';
import type { StoreApi } from '../store/store-api.ts';
import * as answers from './answers.ts';
import { answerLongWork } from './long-work.ts';
import * as requests from './requests.ts';
import { route } from './routing.ts';
import * as shapes from './shapes.ts';

/** How often the progress of a purge is read for a client that follows it. */
const FOLLOW_PURGE_EVERY_MS = 500;
/** Seconds that a purge waits for request units if the request does not say. */
const DEFAULT_PURGE_WAIT_SECONDS = 60;

/** The purge: its status, and what an operator can order. */
export function purgeRoutes(scope: FastifyInstance, store: StoreApi, stopping: AbortSignal): void {
  const purgeStatus = async () => shapes.purgeShape(await store.purgeStatus());

  route(
    scope,
    {
      method: 'GET',
      url: '/purge',
      access: 'audit',
      summary: 'What must still be recorded and erased, and how fast that goes.',
      answers: { json: answers.purge },
    },
    purgeStatus,
  );
  route(
    scope,
    {
      method: 'POST',
      url: '/purge/run',
      access: 'write',
      summary:
        'Purges now, and answers when nothing due is left. If items wait for request units that users leave over, it answers after a minute, or after `waitSeconds`.',
      query: requests.purgeRunQuery,
      answers: { json: answers.purgePass, events: { progress: answers.purge, done: answers.purgePass } },
    },
    async ({ query: { waitSeconds = DEFAULT_PURGE_WAIT_SECONDS }, request, reply, caller }) => {
      // While the clock is held the purge does nothing, and no action can be recorded because no event can be stamped.
      if ((await store.purgeStatus()).state !== 'held-by-clock') {
        await store.recordAction(caller, { type: 'PurgeRunRequested', data: {} });
      }
      // The pass goes on if the client disconnects, because others may wait for the same one. Pausing the purge ends it.
      return answerLongWork(request, reply, stopping, async ({ onProgress, signal }) => {
        const over = new AbortController();
        const patience = { waitMs: waitSeconds * 1000, signal: stopping };
        const pass = store.runPurge(patience).finally(() => over.abort());
        const watch = async (tell: (progress: unknown) => void): Promise<void> => {
          while (!over.signal.aborted && !signal.aborted) {
            tell(await purgeStatus());
            await wait(FOLLOW_PURGE_EVERY_MS, AbortSignal.any([over.signal, signal]));
          }
        };
        const [done] = await Promise.all([pass, onProgress && watch(onProgress)]);
        // A server that stops cuts the pass short; what it did not reach is still due.
        stopping.throwIfAborted();
        const status = await purgeStatus();
        // A pass counts what holds and floors keep, because it meets those items. It never reaches the items that change feeds keep.
        return { ...done, heldBack: status.heldBack, status };
      });
    },
  );
  const action = (name: string, summary: string, act: (caller: Caller) => Promise<unknown>): void =>
    route(
      scope,
      { method: 'POST', url: `/purge/${name}`, access: 'write', summary, answers: { json: answers.purge } },
      async ({ caller }) => {
        await act(caller);
        return purgeStatus();
      },
    );
  action('pause', 'Pauses recording and erasing until the purge is resumed, also after restarts.', (caller) =>
    store.pausePurge(caller),
  );
  action('resume', 'Resumes the purge.', (caller) => store.resumePurge(caller));
  action(
    'scavenge',
    "Starts a scavenge of the event log's server, which frees the space of what was purged.",
    (caller) => store.startScavenge(caller),
  );
}
