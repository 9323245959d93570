import { z } from 'zod';
import type { EventOf } from '../upcast.ts';

/** What a permission is for, with the rids that the names had when it was given: names may come to mean something else. */
const permissionTargetSchema = z.object({
  containerRid: z.string(),
  /** Only one item. Without a partition key, every item of that id. */
  item: z.object({ id: z.string(), partitionKey: z.string().optional() }).optional(),
  /** Only one partition key, as canonical JSON. */
  partitionKey: z.string().optional(),
});
export type PermissionTarget = z.infer<typeof permissionTargetSchema>;

const permissionSchema = z.object({
  name: z.string(),
  /** Read or All, in upper or lower case as the client gave it, because clients compare it with what they sent. */
  permissionMode: z.string().regex(/^(?:read|all)$/i),
  /** The link as the client gave it: a name link or a `_self`. */
  resource: z.string(),
  /** `resourcePartitionKey` as the client gave it, to be returned unchanged. */
  resourcePartitionKey: z.unknown().optional(),
  target: permissionTargetSchema,
});
export type Permission = z.infer<typeof permissionSchema>;

/** True if the permission allows changes, too. */
export const allowsWrites = ({ permissionMode }: Permission): boolean => permissionMode.toLowerCase() === 'all';

const userCreatedSchema = z.object({ databaseRid: z.string(), name: z.string() });

/**
 * Recorded in the stream that belongs to a name when a user of another stream has taken the name. The stream is never
 * used for a user after that: a user that is created under the name later gets the name's next stream.
 */
const userNameTakenSchema = z.object({
  databaseRid: z.string(),
  name: z.string(),
  /** Rid of the user that has the name. */
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

/** The closed union of the events in a user's stream. */
export type UserEvent = EventOf<typeof userEventSchemas>;
