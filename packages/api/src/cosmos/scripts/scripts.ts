import { z } from 'zod';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { ScriptContent, ScriptKind } from '@epitaph/core/script/events.ts';
import type { ScriptState } from '@epitaph/core/script/state.ts';
import { containerSelf } from '../../store/items/system-properties.ts';
import { isBinaryJson } from '../binary-json.ts';
import { checkName } from '../container-body.ts';
import { containerHeaders, quotaHeaders } from '../containers.ts';
import { badRequest, missingProperty, tooLarge } from '../errors.ts';
import { answerFeed } from '../feed.ts';
import { type JsonObject, parseJson } from '../json.ts';
import { answerMetadata, answerMetadataDeleted, answerMetadataRead } from '../metadata.ts';
import {
  containerOf,
  databaseOf,
  headerFlag,
  isFeed,
  jsonObjectOf,
  methodNotAllowed,
  owner,
  preconditionOf,
  scriptRunner,
  type Answer,
  type CosmosRequest,
} from '../request.ts';
import { runStoredProcedure } from './stored-procedure.ts';

/** The most bytes of a script's text. The texts of all scripts are held in memory. */
const MAX_SCRIPT_BYTES = 256 * 1024;

/** By the path segment, the kind of script, and the property that contains the list of them in a response. */
const kinds = {
  sprocs: { kind: 'stored-procedure', list: 'StoredProcedures' },
  triggers: { kind: 'trigger', list: 'Triggers' },
  udfs: { kind: 'user-defined-function', list: 'UserDefinedFunctions' },
} as const satisfies Record<string, { readonly kind: ScriptKind; readonly list: string }>;
type Segment = keyof typeof kinds;

export const isScripts = (segment: string | undefined): segment is Segment =>
  segment !== undefined && Object.hasOwn(kinds, segment);

const bodySchema = z.looseObject({ body: z.string().min(1) });
const triggerSchema = z.looseObject({
  triggerType: z.string().regex(/^(?:pre|post)$/i, "it is neither 'Pre' nor 'Post'"),
  triggerOperation: z
    .string()
    .regex(
      /^(?:all|create|update|delete|replace|upsert)$/i,
      'it is not one of All, Create, Update, Delete, Replace, Upsert',
    ),
});

/** `/dbs/{db}/colls/{coll}/{sprocs|triggers|udfs}` */
export async function answerScripts(request: CosmosRequest): Promise<Answer> {
  const { store, method, headers, caller, segments } = request;
  const segment = segments[4] as Segment;
  const { kind, list } = kinds[segment];
  const container = owner(containerOf, request);
  if (isFeed(request)) {
    const shown = store.listScripts(container, kind).map((script) => showScript(container, segment, script));
    return answerFeed(request, container.rid, list, shown);
  }
  if (method !== 'POST') throw methodNotAllowed();
  const script = { kind, ...readScript(request, kind) };
  const operation = headerFlag(headers, 'x-ms-documentdb-is-upsert') ? 'upsert' : 'create';
  const written = await store.writeScript(caller, container, operation, script, preconditionOf(headers));
  const shown = showScript(container, segment, written.resource);
  const { created, position } = written;
  return told(request, container, position, answerMetadata(created ? 201 : 200, shown, position));
}

/** `/dbs/{db}/colls/{coll}/{sprocs|triggers|udfs}/{script}` */
export async function answerScript(request: CosmosRequest): Promise<Answer> {
  const { store, method, headers, caller, segments } = request;
  const segment = segments[4] as Segment;
  const { kind } = kinds[segment];
  const container = owner(containerOf, request);
  const name = nameOf(request, container, kind);
  if (method === 'POST') {
    // A query header must not pass here: it would allow callers that may only read to run a stored procedure.
    if (kind !== 'stored-procedure' || isFeed(request)) throw methodNotAllowed();
    return runStoredProcedure(request, container, store.scriptToRun(container, kind, name));
  }
  const script = store.script(container, kind, name);
  const show = (state: ScriptState) => showScript(container, segment, state);
  switch (method) {
    case 'GET':
      return told(request, container, store.headPosition(), answerMetadataRead(request, show(script)));
    case 'PUT': {
      const { name: given, content } = readScript(request, kind);
      if (given !== name) throw badRequest('The id in the body is not the one in the request target.');
      const { resource, position } = await store.replaceScript(caller, script, content, preconditionOf(headers));
      return told(request, container, position, answerMetadata(200, show(resource), position));
    }
    case 'DELETE': {
      const { position } = await store.deleteScript(caller, script, preconditionOf(headers));
      return told(request, container, position, answerMetadataDeleted(position));
    }
    default:
      throw methodNotAllowed();
  }
}

/** Adds the container's headers to a response about a script. Clients make the script's link from them. */
function told(request: CosmosRequest, container: ContainerState, position: number, answer: Answer): Answer {
  const { store } = request;
  const ofContainer = containerHeaders(databaseOf(request).name, container, position);
  return { ...answer, headers: { ...answer.headers, ...ofContainer, ...quotaHeaders(store, container) } };
}

/** The name of the script in the request path, which contains the script's name or rid. */
function nameOf({ store, segments }: CosmosRequest, container: ContainerState, kind: ScriptKind): string {
  const name = segments[5]!;
  const byRid = segments[3] === container.rid ? store.listScripts(container, kind) : [];
  return byRid.find(({ rid }) => rid === name)?.name ?? name;
}

function showScript(container: ContainerState, segment: Segment, script: ScriptState) {
  const { name, body, trigger, rid, etag, changedAtMs } = script;
  return {
    id: name,
    body,
    ...(trigger === undefined ? {} : { triggerType: trigger.type, triggerOperation: trigger.operation }),
    _rid: rid,
    _self: `${containerSelf(container)}${segment}/${rid}/`,
    _etag: etag,
    _ts: Math.floor(changedAtMs / 1000),
  };
}

/** Reads a script from a request. Any text is accepted, as by Cosmos DB: errors in it show when it is run. */
function readScript(
  request: CosmosRequest,
  kind: ScriptKind,
): { readonly name: string; readonly content: ScriptContent } {
  scriptRunner(request);
  if ((request.body?.length ?? 0) > MAX_SCRIPT_BYTES) throw tooLarge();
  const given = jsonObjectOf(request, (body, depth) => parseJson(withBreaksEscaped(body), depth));
  const name = checkName(given['id']);
  const { body } = checked(bodySchema, given);
  if (kind !== 'trigger') return { name, content: { body } };
  const { triggerType, triggerOperation } = checked(triggerSchema, given);
  return { name, content: { body, trigger: { type: triggerType, operation: triggerOperation } } };
}

/**
 * Escapes control characters in the strings of a JSON text. The PowerShell module CosmosDB sends the line breaks of a script
 * unescaped, and Cosmos DB accepts them.
 */
function withBreaksEscaped(json: Buffer): Buffer {
  if (isBinaryJson(json)) return json;
  // Latin-1 keeps the bytes of the UTF-8 text, and all characters looked for are single bytes in UTF-8. The pattern also matches
  // a string without an end. Otherwise each quote in such a string would be tried as the start of one.
  const escaped = json.toString('latin1').replaceAll(/"[^"\\]*(?:\\[^]?[^"\\]*)*"?/g, (string) =>
    // oxlint-disable-next-line no-control-regex -- They are what is looked for.
    string.replaceAll(/[\u0000-\u001f]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`),
  );
  return Buffer.from(escaped, 'latin1');
}

function checked<Schema extends z.ZodObject>(schema: Schema, given: JsonObject): z.infer<Schema> {
  const parsed = schema.safeParse(given);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const missing = Object.keys(schema.shape).find((name) => !Object.hasOwn(given, name));
  if (missing !== undefined) throw missingProperty(missing);
  throw badRequest(`The script's '${issue?.path.join('.') ?? ''}' is invalid: ${issue?.message ?? ''}.`);
}
