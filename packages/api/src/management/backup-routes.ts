import type { FastifyInstance } from 'fastify';
import { formatLedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import type { StoreApi } from '../store/store-api.ts';
import * as answers from './answers.ts';
import { Problem, problemDetails, problemOf } from './problems.ts';
import * as requests from './requests.ts';
import { clientGone, correlationOf, route, wantsEvents } from './routing.ts';
import { eventsOf, sendEvents } from './server-sent-events.ts';
import * as shapes from './shapes.ts';

/** Backups of a store that goes on, and what restoring one needs besides. */
export function backupRoutes(scope: FastifyInstance, store: StoreApi, stopping: AbortSignal): void {
  route(
    scope,
    {
      method: 'POST',
      url: '/backups',
      access: 'write',
      summary:
        "Copies log and keys into a folder below the server's backup folder. A client that goes away cancels it.",
      body: requests.backupBody,
      answers: {
        json: answers.takenBackup,
        events: { progress: answers.copyProgress, done: answers.takenBackup },
      },
    },
    ({ body, caller, request, reply }) => {
      const signal = AbortSignal.any([stopping, clientGone(reply)]);
      if (!wantsEvents(request)) return store.backup(caller, body, { signal }).then(shapes.takenBackupShape);
      const events = eventsOf((onProgress) => store.backup(caller, body, { signal, onProgress }), {
        done: shapes.takenBackupShape,
        failed: (error) => problemDetails(problemOf(error) ?? new Problem('internal'), correlationOf(request)),
      });
      return sendEvents(reply, events);
    },
  );

  route(
    scope,
    {
      method: 'GET',
      url: '/backups',
      access: 'audit',
      summary: 'The backups on record, and when the copy of the keys of each is to be gone.',
      answers: { json: answers.backups },
    },
    () => ({ backups: store.backups().map(shapes.backupShape) }),
  );

  route(
    scope,
    {
      method: 'GET',
      url: '/purge-ledger',
      access: 'audit',
      summary: 'Where the ledger of destroyed keys ends. To be kept apart from it: a restore asks for it.',
      answers: { json: answers.ledgerHead },
    },
    async () => ({ head: formatLedgerHead(await store.purgeLedgerHead()) }),
  );
}
