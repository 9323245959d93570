import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { ScriptState } from '@epitaph/core/script/state.ts';
import { containerHeaders } from '../containers.ts';
import { namedKey } from '../partition-key.ts';
import { rangeIdOf } from '../ranges.ts';
import { badRequest } from '../errors.ts';
import {
  headerFlag,
  jsonOf,
  MAX_HEADER_BYTES,
  partitionKeyHeader,
  type Answer,
  type CosmosRequest,
} from '../request.ts';
import { inTransaction } from './transaction.ts';

/** `POST …/sprocs/{sproc}`: runs the script in one partition key. All its writes are recorded together, or none. */
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

/** The arguments as JSON text. The body is an array of them, or what `apply` accepts instead: an object, or `null` for none. */
function argumentsOf({ body, limits }: CosmosRequest): string {
  if (body === undefined || body.length === 0) return '[]';
  const args = jsonOf(body, limits);
  if (typeof args !== 'object')
    throw badRequest('The body of a call of a stored procedure must be an array of arguments.');
  return JSON.stringify(args);
}

/** The beginning of a script's log, percent-encoded, as much as fits into a header. */
function encodedLog(log: string): string {
  let encoded = '';
  for (const character of log.toWellFormed()) {
    const more = encodeURIComponent(character);
    if (encoded.length + more.length > MAX_HEADER_BYTES) break;
    encoded += more;
  }
  return encoded;
}
