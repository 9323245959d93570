import { once } from 'node:events';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { connect } from 'node:tls';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { EMULATOR_KEY, KeyRing } from '@epitaph/api/http/keys.ts';
import { defaultLimits } from '@epitaph/api/http/limits.ts';
import { Pages } from '@epitaph/api/http/pages.ts';
import { sendBody } from '@epitaph/api/http/send-body.ts';
import { buildServer } from '@epitaph/api/http/server.ts';
import { registerManagement } from '@epitaph/api/management/plugin.ts';
import type { HistoryEntry } from '@epitaph/api/store/api/history-api.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { whyWithout } from '../support/programs.ts';
import { selfSigned, type SelfSigned } from '../support/self-signed.ts';

const skipped = whyWithout('openssl');
/** For this long, a client may take nothing of its answer. */
const UNSENT_TIMEOUT_MS = 2_500;
/** More than the system's buffers take at once. */
const BYTES = 12_000_000;

describe.skipIf(skipped)(`a client that takes a large answer slowly over TLS${skipped}`, () => {
  let signed: SelfSigned;
  beforeAll(() => {
    signed = selfSigned();
  });
  afterAll(() => signed?.remove());

  test('is not disconnected while it reads a page', { timeout: 60_000 }, async () => {
    const pages = new Pages({ ...defaultLimits, unsentTimeoutMs: UNSENT_TIMEOUT_MS });
    const server = createServer({ cert: signed.certificate, key: signed.key }, (_request, answer) => {
      sendBody(answer, 'x'.repeat(BYTES), 'latin1');
      pages.handedOver(answer, BYTES);
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    try {
      expect(await readSlowly((server.address() as AddressInfo).port, '/')).toBeGreaterThan(2 * UNSENT_TIMEOUT_MS);
    } finally {
      server.close();
    }
  });

  test('is not disconnected while it reads the answer to a management call', { timeout: 60_000 }, async () => {
    const folder = newFolder('slow');
    const store = await openEmbeddedStore({ folder, clock: 'system' });
    const keys = new KeyRing({ primary: EMULATOR_KEY });
    const app = buildServer({
      store,
      keys,
      tls: { cert: signed.certificate, key: signed.key },
      plugins: [(server) => registerManagement(server, { store, keys, unsentTimeoutMs: UNSENT_TIMEOUT_MS })],
    });
    const entry = { occurredAtMs: 0, type: 'x'.repeat(BYTES) } as unknown as HistoryEntry;
    const asked = vi.spyOn(store, 'actionsOnStore').mockResolvedValue([entry]);
    try {
      const { port } = new URL(await app.listen({ host: '127.0.0.1', port: 0 }));
      expect(await readSlowly(Number(port), '/_epitaph/history')).toBeGreaterThan(2 * UNSENT_TIMEOUT_MS);
    } finally {
      asked.mockRestore();
      await app.close();
      await store.close();
      removeFolder(folder);
    }
  });
});

/** Reads nearly all of an answer slowly. @returns how long that took, in milliseconds */
async function readSlowly(port: number, target: string): Promise<number> {
  const authorization = `authorization: Bearer ${EMULATOR_KEY}`;
  const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false }, () => {
    socket.write(`GET ${target} HTTP/1.1\r\nhost: localhost\r\n${authorization}\r\n\r\n`);
  });
  const startedMs = performance.now();
  let bytes = 0;
  try {
    await new Promise<void>((resolve, reject) => {
      socket.on('error', reject);
      socket.on('close', () => reject(new Error(`hung up on after ${bytes} bytes`)));
      socket.on('data', (chunk) => {
        bytes += chunk.length;
        if (bytes > BYTES - 500_000) resolve();
        socket.pause();
        setTimeout(() => socket.resume(), 8);
      });
    });
  } finally {
    socket.destroy();
  }
  return performance.now() - startedMs;
}
