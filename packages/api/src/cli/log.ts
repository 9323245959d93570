import { pino, stdTimeFunctions, type Logger } from 'pino';

/**
 * The server's log: on stderr, a JSON object a line, with ISO times.
 *
 * What it is given must be free of bodies and keys. Authorization headers are cut out all the same, should ever a
 * request be logged whole.
 */
export function openLog(level: string): Logger {
  return pino(
    {
      level,
      base: { pid: process.pid },
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: ['req.headers', 'headers', '*.authorization'], remove: true },
    },
    pino.destination({ dest: 2, sync: true }),
  );
}
