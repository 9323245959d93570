import { z } from 'zod';
import { version } from '../version.ts';
import { namedAnswers, problem } from './answers.ts';
import type { Access, Answers, RouteDescription } from './routing.ts';

type Json = Readonly<Record<string, unknown>>;

export const accessInWords: Readonly<Record<Access, string>> = {
  anyone: 'Needs no key.',
  audit: 'It needs any key.',
  read: 'It needs the primary, the secondary or the read-only key.',
  write: 'It needs the primary or the secondary key.',
};

/** Descriptions of the path parameters. Parameters that are only names need none. */
const pathParameters: Readonly<Record<string, string>> = {
  database: 'Name of the database.',
  container: 'Name of the container.',
  name: 'Name of the projection.',
  hold: 'Id of the hold.',
  run: 'Id of the purge run.',
};

/**
 * The OpenAPI 3.1 document of the management plane. It is made from the descriptions that the routes are registered with and from the
 * schemas that parse their requests.
 */
export function openApiDocument(routes: readonly RouteDescription[]): object {
  const { named, describe } = describeAnswers(routes);
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) {
    const path = `/_epitaph${route.url.replaceAll(/:(\w+)/g, '{$1}')}`;
    (paths[path] ??= {})[route.method.toLowerCase()] = operationOf(route, describe);
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Epitaph, management plane',
      version,
      description:
        'History, policies, purge, proofs and operations of an Epitaph store. Times are there twice: as ISO text, and with `Ms` at the end of the name in milliseconds since 1970. Errors are problem details (RFC 9457) with a stable code.',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    paths,
    components: {
      schemas: named,
      securitySchemes: {
        key: { type: 'http', scheme: 'bearer', description: 'A key of the store, as base64, or an identity token.' },
      },
    },
  };
}

function operationOf(
  { method, url, access, summary, query, body, answers }: RouteDescription,
  describe: Describe,
): Json {
  const queryParameters = query === undefined ? [] : parametersOf(requestSchema(query));
  const inPath = Array.from(url.matchAll(/:(\w+)/g), ([, name]) => ({
    name,
    in: 'path',
    required: true,
    description: pathParameters[name!] ?? '',
    schema: { type: 'string' },
  }));
  const parameters = [...inPath, ...queryParameters];
  const needsBody = body !== undefined && !body.safeParse(undefined).success;
  return {
    operationId: `${method.toLowerCase()}${url.replaceAll(/[/:.-]+(\w)/g, (_, letter: string) => letter.toUpperCase())}`,
    summary,
    description: accessInWords[access],
    'x-epitaph-access': access,
    security: access === 'anyone' ? [] : [{ key: [] }],
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body === undefined
      ? {}
      : { requestBody: { required: needsBody, content: { 'application/json': { schema: requestSchema(body) } } } }),
    responses: responsesOf(answers, describe),
  };
}

function parametersOf(schema: Json): Json[] {
  const required = (schema['required'] as readonly string[] | undefined) ?? [];
  return Object.entries(schema['properties'] as Readonly<Record<string, Json>>).map(([name, property]) => {
    const { description, ...rest } = property;
    return {
      name,
      in: 'query',
      required: required.includes(name),
      ...(description === undefined ? {} : { description }),
      schema: rest,
    };
  });
}

function responsesOf(
  { status = 200, json, lines, events, files = [], otherwise, headers: inWords }: Answers,
  describe: Describe,
): Json {
  const eventText =
    events &&
    'Server-sent events: `progress` and at last `done` with the data described in `x-epitaph-events`, or `failed` with a problem.';
  const content: Record<string, unknown> = {
    ...(json === undefined ? {} : { 'application/json': { schema: describe(json) } }),
    ...(lines === undefined ? {} : { 'application/x-ndjson': { schema: describe(lines) } }),
    ...(events === undefined
      ? {}
      : {
          'text/event-stream': {
            schema: { type: 'string', description: eventText },
            'x-epitaph-events': { progress: describe(events.progress), done: describe(events.done) },
          },
        }),
    ...Object.fromEntries(files.map((type) => [type, {}])),
  };
  const headers = inWords && {
    headers: Object.fromEntries(
      Object.entries(inWords).map(([name, description]) => [name, { description, schema: { type: 'string' } }]),
    ),
  };
  return {
    [status]: { description: 'Done.', ...headers, content },
    ...(otherwise === undefined
      ? {}
      : {
          [otherwise.status]: {
            description: 'Not done, or not ready.',
            content: { 'application/json': { schema: describe(otherwise.json) } },
          },
        }),
    default: {
      description: 'A problem.',
      ...headers,
      content: { 'application/problem+json': { schema: describe(problem) } },
    },
  };
}

type Describe = (schema: z.ZodType) => Json;

const reference = (id: string): string => `#/components/schemas/${id}`;

/** The JSON schemas of all answers. They are converted together, so that schemas with names refer to each other by name. */
function describeAnswers(routes: readonly RouteDescription[]): { readonly named: Json; readonly describe: Describe } {
  const registry = z.registry<{ readonly id: string }>();
  for (const [schema, id] of namedAnswers) registry.add(schema, { id });
  const unnamed = new Map<z.ZodType, string>();
  for (const { json, lines, events, otherwise } of routes.map(({ answers }) => answers)) {
    for (const schema of [json, lines, events?.progress, events?.done, otherwise?.json]) {
      if (schema === undefined || namedAnswers.has(schema) || unnamed.has(schema)) continue;
      unnamed.set(schema, `unnamed ${unnamed.size}`);
      registry.add(schema, { id: unnamed.get(schema)! });
    }
  }
  const schemas = z.toJSONSchema(registry, { io: 'output', uri: reference, override: openForMore }).schemas as Readonly<
    Record<string, Json>
  >;
  return {
    named: Object.fromEntries([...namedAnswers.values()].map((id) => [id, withoutHead(schemas[id]!)])),
    describe: (schema) => {
      const name = namedAnswers.get(schema);
      return name === undefined ? withoutHead(schemas[unnamed.get(schema)!]!) : { $ref: reference(name) };
    },
  };
}

function requestSchema(schema: z.ZodType): Json {
  return withoutHead(z.toJSONSchema(schema, { io: 'input' }));
}

/** Allows further properties in answers, which later versions may add. Tests check answers strictly, but clients should not. */
function openForMore({ jsonSchema }: { readonly jsonSchema: Record<string, unknown> }): void {
  if (jsonSchema['additionalProperties'] === false) delete jsonSchema['additionalProperties'];
}

/** Drops `$schema` and `$id`: the document as a whole declares the dialect. */
function withoutHead({ $schema: _, $id: __, ...schema }: Json): Json {
  return schema;
}
