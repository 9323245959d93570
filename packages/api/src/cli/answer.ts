import type { z } from 'zod';
import type * as answers from '../management/answers.ts';

/** What a running server answers, by its own schema: which one goes by that name in management/answers.ts. */
export type Answer<Name extends keyof typeof answers> =
  (typeof answers)[Name] extends z.ZodType<infer Read> ? Read : never;
