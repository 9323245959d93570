import { statSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { identityRoles, isDataRole, type Issuer, PRINCIPAL_ID } from '../http/identities.ts';
import { BadConfiguration, readJson } from './configuration.ts';
import { isLoopbackHostHeader } from './loopback.ts';

/** Prefixes of the store's own actors, which no identity may have. `system:` has special rights in the store's histories. */
const TAKEN = ['anonymous', 'command-line', 'key', 'system', 'token'];

const text = (what: string) => z.string(what).min(1, what);

const scope = z
  .string()
  .default('/')
  .transform((given, context) => {
    const [, database, container] = /^\/(?:dbs\/([^/]+)(?:\/colls\/([^/]+))?)?$/.exec(given) ?? [undefined, '', ''];
    if (database !== '') return { database, container };
    context.addIssue({ code: 'custom', message: 'must be /, /dbs/<database> or /dbs/<database>/colls/<container>' });
    return z.NEVER;
  });

const assignment = z
  .strictObject({
    principal: z
      .string()
      .regex(PRINCIPAL_ID, 'must be the id of a principal: 1 to 128 characters without spaces')
      .optional(),
    group: text('must be the id of a group, as in tokens').optional(),
    role: z.enum(identityRoles, `must be one of ${identityRoles.join(', ')}`),
    scope,
  })
  .refine(({ principal, group }) => (principal === undefined) !== (group === undefined), {
    message: 'must name a principal or a group',
  })
  .refine(({ role, scope: { database } }) => database === undefined || isDataRole(role), {
    path: ['scope'],
    message: "must be / for this role, which can't be limited to a database",
  });

const issuer = z.strictObject({
  name: z
    .string()
    .regex(/^[a-z][a-z0-9-]{0,31}$/, 'must be a short name of lower-case letters, digits and hyphens, such as entra')
    .refine((name) => !TAKEN.includes(name), 'is reserved for other actors of the store'),
  issuer: text('must be the "iss" of its tokens'),
  audiences: z.array(text('must be an "aud" of tokens')).min(1, 'must list the accepted audiences of tokens ("aud")'),
  claim: text('must be the claim that names the principal').default('oid'),
  groups: text("must be the claim that lists a principal's groups").default('groups'),
  keys: text('must be the file or the URL of its keys (jwks_uri)'),
  assignments: z.array(assignment),
});

const keySet = z.object({ keys: z.array(z.looseObject({})) });

const schema = z.strictObject({ issuers: z.array(issuer).min(1, 'must name at least one') });

/**
 * Reads the issuers whose identity tokens are accepted, and the roles of the identities in them.
 *
 * @throws BadConfiguration that names the first thing that is wrong and where it is
 */
export function readIdentities(file: string): Issuer[] {
  const given = readGuarded('identities file', file);
  const result = schema.safeParse(given);
  if (!result.success) {
    const [{ path: where, message }] = result.error.issues as [z.core.$ZodIssue];
    throw new BadConfiguration(`The identities file ${file}: ${where.join('.') || 'it'}: ${message}.`);
  }
  const { issuers } = result.data;
  for (const property of ['name', 'issuer'] as const) {
    const all = issuers.map((one) => one[property]);
    const twice = all.find((value, index) => all.indexOf(value) !== index);
    if (twice !== undefined)
      throw new BadConfiguration(`The identities file ${file}: ${property} ${JSON.stringify(twice)} appears twice.`);
  }
  return issuers.map((one) => ({ ...one, keys: keysOf(one.keys, file) }));
}

/** @throws BadConfiguration also if other users can change the file: whoever can replace the keys can sign tokens */
function readGuarded(what: string, file: string): unknown {
  const given = readJson(what, file);
  if (process.platform === 'win32' || (statSync(file).mode & 0o022) === 0) return given;
  throw new BadConfiguration(
    `The ${what} ${file} can be changed by others on this machine, who could give themselves any role: run chmod go-w on it.`,
  );
}

function keysOf(keys: string, file: string): Issuer['keys'] {
  const url = URL.parse(keys);
  if (url?.protocol === 'https:' || (url?.protocol === 'http:' && isLoopbackHostHeader(url.host))) return url;
  if (url?.protocol === 'http:') {
    throw new BadConfiguration(
      `The identities file ${file}: keys must be fetched over https. Otherwise anybody in between could replace them.`,
    );
  }
  const from = path.resolve(path.dirname(file), keys);
  const given = readGuarded("file of an issuer's keys", from);
  // A private key has `d` (RFC 7518, 6.2.2 and 6.3.2), a shared secret has `k` (6.4.1).
  const hasSecret = keySet.safeParse(given).data?.keys.some((key) => 'd' in key || 'k' in key);
  if (hasSecret !== true) return given as Issuer['keys'];
  throw new BadConfiguration(
    `The file of an issuer's keys ${from} contains a private key, with which whoever reads the file can sign tokens. Put only public keys there.`,
  );
}
