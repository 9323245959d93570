import type { IncomingHttpHeaders } from 'node:http';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { turn } from '@epitaph/core/turn.ts';
import { WireError } from '@epitaph/api/cosmos/errors.ts';
import type { CosmosRequest } from '@epitaph/api/cosmos/request.ts';
import { runStoredProcedure } from '@epitaph/api/cosmos/scripts/stored-procedure.ts';
import { defaultLimits } from '@epitaph/api/http/limits.ts';
import type { Caller } from '@epitaph/api/store/api/common.ts';
import type { StoreApi } from '@epitaph/api/store/store-api.ts';
import { itemRid } from '@epitaph/api/store/rids.ts';
import { nameOf, type Outcome, type ScriptCommand, type ScriptStep, type Told } from './commands.ts';
import type { Document } from './documents.ts';

type Runner = NonNullable<CosmosRequest['scripts']>;
type Script = Parameters<Runner['run']>[0];
type ScriptHost = Parameters<Runner['run']>[1];
type ScriptOutcome = Awaited<ReturnType<Runner['run']>>;
type ScriptOperation = Parameters<ScriptHost['operate']>[0];
const PROCEDURE = 'steps';
const FAILURE = 'as it is to';
const UNKNOWN_ETAG = '"00000000-0000-4000-8000-000000000000"';
const WORKED = { log: '', workedMs: 1 };

/**
 * Runs a script's steps in a stored procedure of the container, which is called as by a request. A failed step is noted, and
 * the next step follows, as in a script that handles errors.
 *
 * @throws Refusal, and any error of the log
 */
export async function runScript(
  store: StoreApi,
  caller: Caller,
  database: string,
  { container: name, partition, steps, fails }: ScriptCommand,
): Promise<Outcome> {
  const container = store.container(database, name);
  const script = await procedureOf(store, caller, container);
  const headers: IncomingHttpHeaders = { 'x-ms-documentdb-partitionkey': JSON.stringify([partition]) };
  const request = {
    store,
    caller,
    limits: defaultLimits,
    segments: ['dbs', database, 'colls', name, 'sprocs', PROCEDURE],
    headers,
    body: Buffer.from(JSON.stringify([await withLinks(store, container, steps), fails])),
    scripts: { run: runSteps },
    signal: () => new AbortController().signal,
  } as unknown as CosmosRequest;
  try {
    const { body } = await runStoredProcedure(request, container, script);
    const done = JSON.parse(String(body)) as Pick<Outcome, 'told' | 'etags'>;
    return { code: 'ok', ...done, cause: script.etag.slice(1, -1) };
  } catch (error) {
    if (error instanceof WireError)
      return { code: error.message.includes(FAILURE) ? 'script-failed' : error.shape.code };
    throw error;
  }
}

/** The steps, each with the link by which it names its item. */
async function withLinks(store: StoreApi, container: ContainerState, steps: readonly ScriptStep[]) {
  const linked: LinkedStep[] = [];
  for (const step of steps) {
    if (!('item' in step)) {
      linked.push({ step, doc: '' });
      continue;
    }
    const { id, partitionKey } = nameOf(step.item);
    const item = step.bySelf ? await store.readItem(container, id, partitionKey).catch(unlessMissing) : undefined;
    linked.push({ step, doc: item === undefined ? id : itemRid(container.rid, item.birth) });
  }
  return linked;
}

interface LinkedStep {
  readonly step: ScriptStep;
  /** Name or rid of the item. */
  readonly doc: string;
}

function unlessMissing(error: unknown): undefined {
  if (error instanceof Refusal && error.code === 'item-not-found') return undefined;
  throw error;
}

/** The container's stored procedure. It is created at the first call. */
async function procedureOf(store: StoreApi, caller: Caller, container: ContainerState) {
  try {
    return store.script(container, 'stored-procedure', PROCEDURE);
  } catch (error) {
    if (!(error instanceof Refusal && error.code === 'script-not-found')) throw error;
  }
  const content = { body: 'function () {}' };
  const stored = { kind: 'stored-procedure', name: PROCEDURE, content } as const;
  return (await store.writeScript(caller, container, 'upsert', stored)).resource;
}

/** Executes the steps in place of an engine, whose threads could not be scheduled by a seed. Other works may run between two steps. */
async function runSteps(script: Script, host: ScriptHost): Promise<ScriptOutcome> {
  const [steps, fails] = JSON.parse(script.args!) as [LinkedStep[], boolean];
  const told: Told[] = [];
  const etags: (string | undefined)[] = [];
  const shown = new Map<string, string>();
  try {
    for (const step of steps) {
      await turn();
      told.push(await perform(step, { script, host, shown, etags }));
    }
  } catch (error) {
    return { kind: 'stopped', error, ...WORKED };
  }
  if (fails) return { kind: 'threw', message: FAILURE, ...WORKED };
  return { kind: 'done', body: JSON.stringify({ told, etags }), ...WORKED };
}

interface Running {
  readonly script: Script;
  readonly host: ScriptHost;
  /** By item, the etag that the script was last shown. */
  readonly shown: Map<string, string>;
  /** The etag of each write; undefined for a delete. */
  readonly etags: (string | undefined)[];
}

/** @returns the result for the script: a status, or the `v` of each item it found */
async function perform({ step, doc }: LinkedStep, { script, host, shown, etags }: Running): Promise<Told> {
  const { self, alt } = script.collection;
  const link = `${'item' in step && nameOf(step.item).id === doc ? alt : self}/docs/${doc}`;
  const guarded = 'guard' in step && step.guard !== undefined;
  const guard = guarded && step.guard === 'unknown' ? UNKNOWN_ETAG : 'item' in step ? shown.get(step.item) : undefined;
  const ifMatch = guarded && guard !== undefined ? { ifMatch: guard } : {};
  const ask = async (operation: ScriptOperation): Promise<{ readonly status: number; readonly body?: unknown }> => {
    const answer = await host.operate(operation);
    if (answer.kind === 'failed') return { status: answer.status };
    return { status: 200, body: answer.body === undefined ? undefined : JSON.parse(answer.body) };
  };
  switch (step.kind) {
    case 'create':
    case 'upsert':
    case 'replace': {
      const body = JSON.stringify(step.document);
      const { status, body: written } = await ask(
        step.kind === 'replace'
          ? { kind: step.kind, link, body, ...ifMatch }
          : { kind: step.kind, body, makesId: false },
      );
      if (status !== 200) return status;
      const { id, pk, v, _etag: etag } = written as Document;
      if (step.kind === 'replace' && `${String(pk)}/${String(id)}` !== step.item) etags.push(undefined);
      etags.push(String(etag));
      shown.set(`${String(pk)}/${String(id)}`, String(etag));
      return [v];
    }
    case 'delete': {
      const { status } = await ask({ kind: 'delete', link, ...ifMatch });
      if (status === 200) etags.push(undefined);
      return status;
    }
    case 'read': {
      const { status, body } = await ask({ kind: 'read', link });
      if (status !== 200) return status;
      shown.set(step.item, String((body as Document)['_etag']));
      return [(body as Document)['v']];
    }
    case 'list':
    case 'query': {
      const found: unknown[] = [];
      const asked =
        step.kind === 'list'
          ? ({ kind: 'list', pageSize: step.pageSize } as const)
          : ({
              kind: 'query',
              query: 'SELECT VALUE c.v FROM c WHERE c.v >= @least',
              parameters: JSON.stringify([{ name: '@least', value: step.least }]),
              pageSize: step.pageSize,
            } as const);
      for (let continuation: string | undefined; ;) {
        const answer = await host.operate({ ...asked, ...(continuation === undefined ? {} : { continuation }) });
        if (answer.kind === 'failed') return answer.status;
        const rows = JSON.parse(answer.body!) as unknown[];
        found.push(...(step.kind === 'list' ? (rows as Document[]).map(({ v }) => v) : rows));
        continuation = answer.continuation;
        if (continuation === undefined) return found.toSorted((left, right) => Number(left) - Number(right));
      }
    }
  }
}
