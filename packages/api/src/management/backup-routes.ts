import type { FastifyInstance } from 'fastify';
import { formatLedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import type { StoreApi } from '../store/store-api.ts';
import * as answers from './answers.ts';
import { answerLongWork } from './long-work.ts';
import * as requests from './requests.ts';
import { route } from './routing.ts';
import * as shapes from './shapes.ts';

/** Backups of a running store, and what restoring one needs. */
export function backupRoutes(scope: FastifyInstance, store: StoreApi, stopping: AbortSignal): void {
  route(
    scope,
    {
      method: 'POST',
      url: '/backups',
      access: 'write',
      summary:
        "Copies log and keys into a folder below the server's backup folder. Cancelled if the client disconnects.",
      body: requests.backupBody,
      answers: {
        json: answers.takenBackup,
        events: { progress: answers.copyProgress, done: answers.takenBackup },
      },
    },
    ({ body, caller, request, reply }) =>
      answerLongWork(request, reply, stopping, async (follow) =>
        shapes.takenBackupShape(await store.backup(caller, body, follow)),
      ),
  );

  route(
    scope,
    {
      method: 'GET',
      url: '/backups',
      access: 'audit',
      summary: 'The backups on record, and by when the copy of the keys of each must be destroyed.',
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
      summary: 'The head of the ledger of destroyed keys. Keep it apart from the ledger: a restore needs it.',
      answers: { json: answers.ledgerHead },
    },
    async () => ({ head: formatLedgerHead(await store.purgeLedgerHead()) }),
  );
}
