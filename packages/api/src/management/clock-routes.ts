import type { FastifyInstance } from 'fastify';
import type { StoreApi } from '../store/store-api.ts';
import * as answers from './answers.ts';
import { Problem } from './problems.ts';
import * as requests from './requests.ts';
import { route } from './routing.ts';
import * as shapes from './shapes.ts';

/** The store's clock: reading it, moving a manual one forward, and accepting the time after a jump. */
export function clockRoutes(scope: FastifyInstance, store: StoreApi): void {
  const clock = () => shapes.clockShape(store);
  route(
    scope,
    {
      method: 'GET',
      url: '/clock',
      access: 'read',
      summary: 'The store’s time.',
      answers: { json: answers.clock },
    },
    clock,
  );
  route(
    scope,
    {
      method: 'POST',
      url: '/clock/advance',
      access: 'write',
      summary: 'Advances the manual clock.',
      body: requests.advanceBody,
      answers: { json: answers.clock },
    },
    async ({ body: { milliseconds }, caller }) => {
      try {
        await store.advanceClock(milliseconds);
      } catch (error) {
        if (error instanceof RangeError) throw new Problem('bad-request', `milliseconds: ${error.message}.`);
        throw error;
      }
      await store.recordAction(caller, { type: 'ClockAdvanced', data: { milliseconds } });
      return clock();
    },
  );
  route(
    scope,
    {
      method: 'POST',
      url: '/clock/confirm',
      access: 'write',
      summary: 'Confirms that the system clock is right after a jump. With pausePurge the purge is paused first.',
      body: requests.confirmBody,
      answers: { json: answers.clock },
    },
    async ({ body, caller }) => {
      const jump = await store.confirmClock({ pausePurge: body?.pausePurge === true ? caller : undefined });
      if (jump !== undefined) {
        const { expectedMs, wallMs } = jump;
        const data = { expectedMs: Math.floor(expectedMs), wallMs: Math.floor(wallMs) };
        await store.recordAction(caller, { type: 'ClockConfirmed', data });
      }
      return clock();
    },
  );
}
