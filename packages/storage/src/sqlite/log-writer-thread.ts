import { parentPort } from 'node:worker_threads';
import { LogWriterCore, type LogWriterOptions } from './log-writer-core.ts';
import { serveWriter } from './thread-writer.ts';

serveWriter(parentPort!, (options: LogWriterOptions) => new LogWriterCore(options));
