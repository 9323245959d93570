import { createWriteStream, realpathSync, renameSync, rmSync, statSync } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { textFlag, type Command } from './command.ts';
import { exitCodes, UsageError } from './exit-codes.ts';
import { containerPath, periodFlags, ridFlag } from './history-commands.ts';
import { ServerUnreachable } from './management-client.ts';

const FILE_ERRORS: ReadonlySet<string> = new Set(
  'ENOENT ENOTDIR EISDIR EACCES EPERM EROFS ENOSPC EDQUOT EFBIG EIO'.split(' '),
);
const ENDING = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

export const bundle: Command = {
  summary: 'Everything on record of a container in a period, with proofs, as one archive for an auditor.',
  operands: '<database> <container>',
  operandCounts: [2, 2],
  flags: {
    ...periodFlags,
    output: {
      type: 'string',
      placeholder: '<file>',
      description: 'The .tar.gz file to write. An existing file is replaced.',
    },
    ...ridFlag,
  },
  notes: 'The bundle has no content of items. Check it with epitaph verify bundle.',
  run: async ({ client, operands, flags, json, print }) => {
    const output = textFlag(flags, 'output');
    if (output === undefined) throw new UsageError('--output is needed: the file to write the bundle to.');
    const target = fileToMake(output);
    const response = await client.download(`${containerPath(operands)}/bundle`, {
      query: Object.fromEntries(['from', 'to', 'rid'].map((name) => [name, textFlag(flags, name)])),
    });
    // Written under another name until it is complete. The name is unique, because another command may write the same
    // bundle.
    const partial = `${target}.${crypto.randomUUID().slice(0, 8)}.part`;
    const remove = (): void => rmSync(partial, { force: true });
    const file = createWriteStream(partial);
    const onSignal = (signal: NodeJS.Signals): void => {
      remove();
      // No listener is left, so the signal now ends the process.
      process.kill(process.pid, signal);
    };
    for (const signal of ENDING) process.once(signal, onSignal);
    try {
      await pipeline(response, file);
      renameSync(partial, target);
    } catch (error) {
      remove();
      const { code, message } = error as NodeJS.ErrnoException;
      if (code !== undefined && FILE_ERRORS.has(code)) {
        throw new UsageError(`${output} can't be written: ${message}`);
      }
      if (error instanceof ServerUnreachable) throw error;
      throw new ServerUnreachable(`The connection to the server broke: ${message}`);
    } finally {
      for (const signal of ENDING) process.off(signal, onSignal);
    }
    const bytes = file.bytesWritten;
    print(json ? JSON.stringify({ output, bytes }) : `Written to ${output}: ${bytes} bytes.`);
    return exitCodes.ok;
  },
};

/**
 * The file to create or replace. For a link, it is the file that the link leads to.
 *
 * @throws UsageError for anything that exists and is no file, such as a folder or a pipe: the finished bundle would
 *   replace it
 */
function fileToMake(output: string): string {
  const there = statSync(output, { throwIfNoEntry: false });
  if (there === undefined) return output;
  if (!there.isFile()) {
    throw new UsageError(
      `${output} is ${there.isDirectory() ? 'a folder' : 'not a regular file'}: name the file to write.`,
    );
  }
  return realpathSync(output);
}
