import type { FastifyInstance } from 'fastify';
import { formatLedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import type { StoreApi } from '../store/store-api.ts';
import * as answers from './answers.ts';
import { answerLongWork } from './long-work.ts';
import * as requests from './requests.ts';
import { route } from './routing.ts';
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
