import type { z } from 'zod';
import type * as answers from '../management/answers.ts';

/** An answer of a running server, typed by its own schema: the one of that name in management/answers.ts. */
export type Answer<Name extends keyof typeof answers> =
  (typeof answers)[Name] extends z.ZodType<infer Read> ? Read : never;
