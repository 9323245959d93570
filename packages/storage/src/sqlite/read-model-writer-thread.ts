import { parentPort } from 'node:worker_threads';
import { ReadModelWriterCore, type ReadModelWriterOptions } from './read-model-writer-core.ts';
import { serveWriter } from './thread-writer.ts';

serveWriter(parentPort!, (options: ReadModelWriterOptions) => new ReadModelWriterCore(options));
