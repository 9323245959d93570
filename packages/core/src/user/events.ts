import { z } from 'zod';
import type { EventOf } from '../upcast.ts';

/** What a permission is for. Names may come to mean something else; what they meant when it was given is kept here. */
const permissionTargetSchema = z.object({
  containerRid: z.string(),
  /** One item only. Without a partition key every item of that id. */
  item: z.object({ id: z.string(), partitionKey: z.string().optional() }).optional(),
  /** One partition key only, as canonical JSON. */
  partitionKey: z.string().optional(),
});
export type PermissionTarget = z.infer<typeof permissionTargetSchema>;

const permissionSchema = z.object({
  name: z.string(),
  /** Read or All, in the letters that the client gave it in: clients compare it with what they sent. */
  permissionMode: z.string().regex(/^(?:read|all)$/i),
  /** The link as the client gave it: a name link or a `_self`. */
  resource: z.string(),
  /** `resourcePartitionKey` as the client gave it, to be given back. */
  resourcePartitionKey: z.unknown().optional(),
  target: permissionTargetSchema,
});
export type Permission = z.infer<typeof permissionSchema>;

/** True when the permission is for changes too. */
export const allowsWrites = ({ permissionMode }: Permission): boolean => permissionMode.toLowerCase() === 'all';

const userCreatedSchema = z.object({ databaseRid: z.string(), name: z.string() });

/**
 * Stands in the stream that a name leads to when a user of another stream has taken the name. It is never given
 * back: a user that is made under the name later has the next stream of that name.
 */
const userNameTakenSchema = z.object({
  databaseRid: z.string(),
  name: z.string(),
  /** Rid of the user that has it. */
  user: z.string(),
});

const userRenamedSchema = z.object({ name: z.string() });
const userDeletedSchema = z.object({});

const permissionCreatedSchema = z.object({ permission: permissionSchema });
const permissionReplacedSchema = z.object({
  /** The number of the permission within the user: the revision of the event that created it. */
  birth: z.int(),
  permission: permissionSchema,
});
const permissionDeletedSchema = z.object({ birth: z.int() });

export const userEventSchemas = {
  UserCreated: userCreatedSchema,
  UserNameTaken: userNameTakenSchema,
  UserRenamed: userRenamedSchema,
  UserDeleted: userDeletedSchema,
  PermissionCreated: permissionCreatedSchema,
  PermissionReplaced: permissionReplacedSchema,
  PermissionDeleted: permissionDeletedSchema,
} as const;

/** The closed union of what can be in a user's stream. */
export type UserEvent = EventOf<typeof userEventSchemas>;
