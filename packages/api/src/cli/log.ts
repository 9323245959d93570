import { pino, stdTimeFunctions, type Logger } from 'pino';

/**
 * The server's log on stderr: one JSON object per line, with ISO times.
 *
 * Callers must not pass bodies or keys. Authorization headers are removed all the same, in case a request is ever
 * logged whole.
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
