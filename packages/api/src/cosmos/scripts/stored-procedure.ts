import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { ScriptState } from '@epitaph/core/script/state.ts';
import { containerHeaders } from '../containers.ts';
import { namedKey } from '../partition-key.ts';
import { rangeIdOf } from '../ranges.ts';
import { badRequest } from '../errors.ts';
import { headerFlag, jsonOf, partitionKeyHeader, type Answer, type CosmosRequest } from '../request.ts';
import { inTransaction } from './transaction.ts';

/** Characters of what a script has logged, of which an answer's headers have room for: escaped, they may take thrice as much. */
const MAX_LOG_CHARACTERS = 2_048;

/** `POST …/sprocs/{sproc}`: runs it in one partition key. All that it has written is recorded together, or nothing. */
export async function runStoredProcedure(
  request: CosmosRequest,
  container: ContainerState,
  script: ScriptState,
): Promise<Answer> {
  const { headers } = request;
  const partitionKey = namedKey(container.definition, partitionKeyHeader(headers));
  const args = argumentsOf(request);
  const logs = headerFlag(headers, 'x-ms-documentdb-script-enable-logging');
  const done = await inTransaction(request, container, partitionKey, (transaction) =>
    transaction.run(script, { kind: 'stored-procedure', args, logs }),
  );
  const { body, log } = done.result;
  const { position } = done;
  return {
    status: 200,
    body: body === undefined ? null : done.asRecorded(body),
    charge: done.charge,
    headers: {
      ...containerHeaders(request.segments[1]!, container, position, rangeIdOf(container, partitionKey)),
      ...(logs ? { 'x-ms-documentdb-script-log-results': encodedLog(log) } : {}),
    },
  };
}

/** JSON text of the arguments: the body is an array of them, or what `apply` takes for one: an object, or `null` for none. */
function argumentsOf({ body, limits }: CosmosRequest): string {
  if (body === undefined || body.length === 0) return '[]';
  const args = jsonOf(body, limits);
  if (typeof args !== 'object') throw badRequest('The body of a call of a stored procedure is an array of arguments.');
  return JSON.stringify(args);
}

const encodedLog = (log: string): string => encodeURIComponent(log.slice(0, MAX_LOG_CHARACTERS).toWellFormed());
