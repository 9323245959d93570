import { isoTime } from '@epitaph/core/clock.ts';
import type { Answer } from './answer.ts';
import type { Command, Invocation } from './command.ts';
import { counted } from './counted.ts';
import { exitCodes, UsageError } from './exit-codes.ts';
import { follow } from './follow.ts';
import { ServerRefused } from './management-client.ts';
import { Progress, roughly } from './progress.ts';

/** How many problems are printed. The rest are counted, and are in the output of --json. */
const PRINTED_PROBLEMS = 50;

export const rebuild: Command = {
  summary: 'Rebuilds the read models from the log beside those in use, compares both, and switches to the new ones.',
  operands: '[<projection>]',
  operandCounts: [0, 1],
  flags: {
    cancel: {
      type: 'boolean',
      description: 'Cancels the running rebuild, or an interrupted one. The read models in use stay.',
    },
    'events-per-second': {
      type: 'string',
      placeholder: '<count>',
      description: 'Reads at most this many events of the log in a second.',
    },
  },
  notes:
    'The projection is called items. Continues a rebuild that was interrupted by a stop or a crash of the server. Exits with 1 if the rebuilt version differs from the one that was in use.',
  run: async ({ client, operands, flags, json, print, stderr }) => {
    const path = `/projections/${encodeURIComponent(operands[0] ?? 'items')}/rebuild`;
    if (flags['cancel'] === true) {
      const status = await client.call<Answer<'rebuild'>>('DELETE', path);
      print(json ? JSON.stringify(status) : `The rebuild is ${status.state}.`);
      return exitCodes.ok;
    }
    await client.call('POST', path, { body: { eventsPerSecond: countIn(flags['events-per-second']) } });
    const progress = new Progress(stderr, 'rebuild');
    let last: Answer<'rebuild'> | undefined;
    for await (const { data } of client.events('GET', path)) {
      last = data as Answer<'rebuild'>;
      progress.update(last.position, last.headPosition, roughly(last.millisecondsLeft));
    }
    progress.end();
    // A server that stops ends the events before the end of the rebuild.
    if (last === undefined) throw new ServerRefused('busy', 'The server stopped before the rebuild began.');
    const { state, version, resumedFrom, position, differences, error } = last;
    if (state === 'running' || state === 'comparing') {
      throw new ServerRefused(
        'busy',
        'The server stopped before the rebuild was done. The next rebuild continues from there.',
      );
    }
    if (json) print(JSON.stringify(last));
    else if (state === 'done') {
      const resumed = resumedFrom === 0 ? '' : ` (continued from position ${resumedFrom})`;
      print(`Version ${version} is in use${resumed}: ${foundText(differences)}.`);
      for (const part of last.differing ?? []) print(differenceText(part));
    } else if (state === 'interrupted') {
      print(`The rebuild was interrupted at position ${position}. The next rebuild continues from there.`);
    } else print(`The rebuild is ${state}${error === undefined ? '' : `: ${error}`}.`);
    return state === 'done' && (differences ?? 0) === 0 ? exitCodes.ok : exitCodes.problem;
  },
};

function foundText(differences: number | undefined): string {
  if (differences === undefined) return 'not compared with the previous one, which was behind or is damaged';
  if (differences === 0) return 'equal to the previous one';
  return differences === 1
    ? 'one part differs from the previous one'
    : `${differences} parts differ from the previous one`;
}

function differenceText(part: NonNullable<Answer<'rebuild'>['differing']>[number]): string {
  if (part.part === 'catalog') return '  the databases, containers, users and keys';
  const { database, container, rid, itemsBefore, itemsRebuilt } = part;
  const items =
    itemsBefore === itemsRebuilt ? `${itemsBefore} items` : `${itemsBefore} items before, ${itemsRebuilt} now`;
  return `  ${database}/${container} (${rid}): ${items}`;
}

function countIn(text: unknown): number | undefined {
  if (text === undefined) return undefined;
  const count = Number(text);
  if (!Number.isInteger(count) || count < 1) throw new UsageError('--events-per-second is a whole number, 1 or more.');
  return count;
}

export const purge: Command = {
  summary: 'Shows what the purge has to do; runs, pauses or resumes it, or starts a scavenge of the event store.',
  operands: '[status|run|pause|resume|scavenge]',
  operandCounts: [0, 1],
  flags: {},
  notes: 'run exits with 1 if it could not finish, because the purge is paused or the clock is held.',
  run: async (invocation) => {
    const { client, operands, json, print } = invocation;
    const action = operands[0] ?? 'status';
    switch (action) {
      case 'run':
        return runPurge(invocation);
      case 'status':
      case 'pause':
      case 'resume':
      case 'scavenge': {
        const status = await (action === 'status'
          ? client.call<Answer<'purge'>>('GET', '/purge')
          : client.call<Answer<'purge'>>('POST', `/purge/${action}`));
        if (json) print(JSON.stringify(status));
        else printPurge(status, print);
        return exitCodes.ok;
      }
      default:
        throw new UsageError('purge takes status, run, pause, resume or scavenge.');
    }
  },
};

async function runPurge(invocation: Invocation): Promise<number> {
  const { json, print } = invocation;
  let total = 0;
  const answer = await follow<Answer<'purgePass'>>(invocation, {
    method: 'POST',
    path: '/purge/run',
    label: 'purge',
    measure: (told) => {
      const { overdueItems, awaitingErasure, millisecondsToDrain } = told as Answer<'purge'>;
      const left = overdueItems + awaitingErasure;
      total = Math.max(total, left);
      return [total - left, total, roughly(millisecondsToDrain)];
    },
  });
  if (json) print(JSON.stringify(answer));
  else {
    print(
      `Recorded ${counted(answer.expired, 'expiry', 'expiries')}, erased ${counted(answer.purged, 'item')}, held back ${answer.heldBack}.`,
    );
    // A pause, or a clock that jumps, ends a run that is under way too.
    const done = answer.expired + answer.purged === 0 ? 'nothing was done' : 'the rest was not done';
    if (answer.status.state === 'paused')
      print(`The purge is paused: ${done}. To resume it, run epitaph purge resume.`);
    const { waitingForRequestUnits } = answer.status;
    if (waitingForRequestUnits > 0)
      print(
        `${counted(waitingForRequestUnits, 'expiry', 'expiries')} not recorded yet: they wait for request units that users leave over.`,
      );
    if (answer.status.state === 'held-by-clock')
      print(
        `The clock is held: ${done}. /_epitaph/health/ready says why. If the time is right, run epitaph clock confirm.`,
      );
  }
  return answer.status.state === 'paused' || answer.status.state === 'held-by-clock' ? exitCodes.problem : exitCodes.ok;
}

function printPurge(status: Answer<'purge'>, print: (line: string) => void): void {
  const seconds = (milliseconds: number | null): string => (milliseconds === null ? '-' : `${milliseconds / 1000} s`);
  print(`state: ${status.state}${status.byThisNode ? '' : ' (this node leaves the purge to others)'}`);
  print(`overdue items: ${status.overdueItems} (oldest: ${seconds(status.oldestOverdueMs)})`);
  if (status.waitingForRequestUnits > 0)
    print(`waiting for request units that users leave over: ${status.waitingForRequestUnits}`);
  print(`awaiting erasure: ${status.awaitingErasure}`);
  print(`in grace or a recovery window: ${status.inGrace}`);
  print(`held back: ${status.heldBack}`);
  print(`rate: ${Math.round(status.itemsPerSecond)} a second, time to drain: ${seconds(status.millisecondsToDrain)}`);
  print(`purged in total: ${status.purgedTotal}`);
  if (status.faults > 0) print(`faults since the start: ${status.faults} (see the server's log)`);
  if (status.scavenge === null) return;
  const { livesWaiting, last, everySeconds, nextAtMs } = status.scavenge;
  print(`waiting for a scavenge of the event store: ${livesWaiting}`);
  if (last !== null) print(`last scavenge: ${last.state}, begun ${isoTime(last.startedAtMs)} (${last.id})`);
  if (everySeconds !== null) {
    print(
      `next scavenge: ${nextAtMs === null ? 'none, because nothing waits for one' : isoTime(nextAtMs)}, every ${everySeconds} s`,
    );
  }
}

export const clock: Command = {
  summary: 'Shows the store’s time; confirms it after a jump, or advances a manual clock.',
  operands: '[confirm | advance <milliseconds>]',
  operandCounts: [0, 2],
  flags: {
    'pause-purge': {
      type: 'boolean',
      description: 'With confirm: pauses the purge first, so that nothing is erased until epitaph purge resume.',
    },
  },
  notes: 'confirm says that the time of the machine is right. What has expired by that time is recorded and erased.',
  run: async ({ client, operands, flags, json, print }) => {
    const [action, text] = operands;
    const pausePurge = flags['pause-purge'] === true;
    if (pausePurge && action !== 'confirm') throw new UsageError('--pause-purge can only be used with clock confirm.');
    const milliseconds = action === 'advance' && /^\d{1,15}$/.test(text ?? '') ? Number(text) : undefined;
    if (action !== undefined && milliseconds === undefined && (action !== 'confirm' || text !== undefined)) {
      throw new UsageError('clock takes confirm, or advance with a whole number of milliseconds.');
    }
    const answer = await (action === undefined
      ? client.call<Answer<'clock'>>('GET', '/clock')
      : client.call<Answer<'clock'>>(
          'POST',
          `/clock/${action}`,
          milliseconds !== undefined ? { body: { milliseconds } } : pausePurge ? { body: { pausePurge } } : {},
        ));
    print(json ? JSON.stringify(answer) : `${answer.now} (${answer.kind} clock)`);
    if (!json && answer.held !== undefined) print(`The clock is held: ${answer.held}.`);
    if (!json && answer.standsStillForMs !== undefined) {
      print(
        `The store has used times up to this one, and its time never goes back. So it stands still for another ${Math.ceil(answer.standsStillForMs / 1000)} s, until the system clock reaches it. Until then nothing expires.`,
      );
    }
    return exitCodes.ok;
  },
};

export const fsck: Command = {
  summary: 'Checks the whole store: derives the read models from the log with separate code, and compares.',
  operands: '',
  operandCounts: [0, 0],
  flags: {},
  notes: 'Exits with 1 if it finds a problem.',
  run: async (invocation) => {
    const { json, print } = invocation;
    const report = await follow<Answer<'fsck'>>(invocation, { method: 'POST', path: '/fsck', label: 'fsck' });
    if (json) print(JSON.stringify(report));
    else {
      const { ok, events, items, lives, problems, durationMs } = report;
      for (const { code, subject, message } of problems.slice(0, PRINTED_PROBLEMS))
        print(`${code}: ${subject}: ${message}`);
      if (problems.length > PRINTED_PROBLEMS)
        print(`… and ${problems.length - PRINTED_PROBLEMS} more; --json prints all`);
      print(
        `${ok ? 'All is as the log says' : counted(problems.length, 'problem')}: ${events} events, ${counted(lives, 'life', 'lives')}, ${counted(items, 'item')}, ${durationMs} ms.`,
      );
    }
    return report.ok ? exitCodes.ok : exitCodes.problem;
  },
};
