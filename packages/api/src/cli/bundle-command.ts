import { createWriteStream, renameSync, rmSync, statSync } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { textFlag, type Command } from './command.ts';
import { exitCodes, UsageError } from './exit-codes.ts';
import { containerPath, periodFlags, ridFlag } from './history-commands.ts';
import { ServerUnreachable } from './management-client.ts';

const FILE_ERRORS: ReadonlySet<string> = new Set(
  'ENOENT ENOTDIR EISDIR EACCES EPERM EROFS ENOSPC EDQUOT EFBIG EIO'.split(' '),
);

export const bundle: Command = {
  summary: 'Everything on record of a container in a period, with proofs, as one archive for an auditor.',
  operands: '<database> <container>',
  operandCounts: [2, 2],
  flags: {
    ...periodFlags,
    output: {
      type: 'string',
      placeholder: '<file>',
      description: 'Where to write it, a .tar.gz. One that is there is replaced.',
    },
    ...ridFlag,
  },
  notes: 'There is no content in it. Check it with epitaph verify bundle.',
  run: async ({ client, operands, flags, json, print }) => {
    const output = textFlag(flags, 'output');
    if (output === undefined) throw new UsageError('--output says where to write the bundle.');
    if (statSync(output, { throwIfNoEntry: false })?.isDirectory() === true) {
      throw new UsageError(`${output} is a folder: name the file to write.`);
    }
    const response = await client.download(`${containerPath(operands)}/bundle`, {
      query: Object.fromEntries(['from', 'to', 'rid'].map((name) => [name, textFlag(flags, name)])),
    });
    // Under another name until it is whole.
    const partial = `${output}.part`;
    const file = createWriteStream(partial);
    try {
      await pipeline(response, file);
    } catch (error) {
      rmSync(partial, { force: true });
      const { code, message } = error as NodeJS.ErrnoException;
      if (code !== undefined && FILE_ERRORS.has(code)) {
        throw new UsageError(`${output} can't be written: ${message}`);
      }
      if (error instanceof ServerUnreachable) throw error;
      throw new ServerUnreachable(`The connection to the server broke: ${message}`);
    }
    renameSync(partial, output);
    const bytes = file.bytesWritten;
    print(json ? JSON.stringify({ output, bytes }) : `Written to ${output}: ${bytes} bytes.`);
    return exitCodes.ok;
  },
};
