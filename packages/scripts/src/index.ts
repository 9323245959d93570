export { ScriptRunner } from './runner.ts';
export type { Turn } from './thread-pool.ts';
export type { ScriptRunnerOptions } from './runner.ts';
export type {
  Failure,
  FunctionCall,
  FunctionsOutcome,
  Script,
  ScriptAnswer,
  ScriptHost,
  ScriptOperation,
  ScriptOutcome,
} from './script.ts';
