/** A stored procedure or a trigger, and the input of its run. */
export interface Script {
  readonly kind: 'stored-procedure' | 'pre-trigger' | 'post-trigger';
  /** The script's name, for messages. */
  readonly name: string;
  /** The text of a function, as the client stored it. */
  readonly source: string;
  /** JSON text of an array: the arguments of a stored procedure. */
  readonly args?: string;
  /** The results of `getSelfLink()` and `getAltLink()` of the collection. */
  readonly collection: { readonly self: string; readonly alt: string };
  /** The request that `getRequest()` returns in a trigger; `body` is JSON text. */
  readonly request?: {
    /** `Create`, `Replace`, `Upsert` or `Delete`. */
    readonly operationType: string;
    readonly body?: string;
    readonly values?: Readonly<Record<string, string>>;
  };
  /** The response that `getResponse()` returns in a post-trigger; `body` is JSON text. */
  readonly response?: { readonly body?: string; readonly values?: Readonly<Record<string, string>> };
  /** Whether the output of `console.log` is kept. */
  readonly logs: boolean;
}

/**
 * An operation that a script requests from the collection. Bodies are valid JSON texts. Links are as the script gave them: a `_self`, or
 * `dbs/x/colls/y/docs/z`. They begin with one of the two links of the collection.
 */
export type ScriptOperation =
  | {
      readonly kind: 'create' | 'upsert';
      readonly body: string;
      /** Whether a body without an id gets one. */
      readonly makesId: boolean;
    }
  | { readonly kind: 'replace'; readonly link: string; readonly body: string; readonly ifMatch?: string }
  | { readonly kind: 'delete'; readonly link: string; readonly ifMatch?: string }
  | { readonly kind: 'read'; readonly link: string; readonly ifNoneMatch?: string }
  | { readonly kind: 'list'; readonly pageSize?: number; readonly continuation?: string }
  | {
      readonly kind: 'query';
      readonly query: string;
      /** JSON text of the array of parameters. */
      readonly parameters: string;
      readonly pageSize?: number;
      readonly continuation?: string;
    };

export type ScriptAnswer =
  | {
      readonly kind: 'done';
      /** The status of HTTP, for an operation on one document. */
      readonly status?: number;
      /** JSON text: a document, or an array of documents or rows. */
      readonly body?: string;
      readonly continuation?: string;
      readonly headers?: Readonly<Record<string, string>>;
    }
  /**
   * `status` is a status of HTTP. A read with `ifNoneMatch` of an unchanged document fails with 304, which is not reported to the script as
   * a failure.
   */
  | { readonly kind: 'failed'; readonly status: number; readonly message: string };

export interface ScriptHost {
  /**
   * Executes one operation. The operations of a run come one at a time, in the order in which the script has requested them, and none comes
   * after the end of the run. If it throws, the run ends with `stopped`.
   */
  operate(operation: ScriptOperation): Promise<ScriptAnswer>;
}

/** The run was aborted by its caller, or the host has thrown this error. */
interface Stopped {
  readonly kind: 'stopped';
  readonly error: unknown;
  readonly workedMs: number;
}

/** Why a script or function could not finish. `busy`: too many are waiting for a thread, or the runner is closed. */
export type Failure = 'out-of-time' | 'out-of-memory' | 'busy';

export type ScriptOutcome =
  | {
      readonly kind: 'done';
      /** JSON text of the response's body. A stored procedure that sets no body has an empty text; a post-trigger has none. */
      readonly body?: string;
      /** JSON text of the request's body, if a pre-trigger has set it. */
      readonly requestBody?: string;
      readonly log: string;
      /** The time in the engine, in milliseconds, without waiting for the host. */
      readonly workedMs: number;
    }
  | {
      readonly kind: 'threw';
      /** The message for the client: `Exception = Error: …`, and a stack trace. */
      readonly message: string;
      /** The error's property `number`, if it is an integer. For errors of operations it is the status of HTTP. */
      readonly number?: number;
      readonly log: string;
      readonly workedMs: number;
    }
  | { readonly kind: Failure; readonly log: string; readonly workedMs: number }
  | (Stopped & { readonly log: string });

export interface FunctionCall {
  readonly name: string;
  /** JSON text of each argument. */
  readonly args: readonly (string | undefined)[];
}

export type FunctionsOutcome =
  | {
      readonly kind: 'done';
      /** JSON text of each result, in the order of the calls. */
      readonly results: readonly (string | undefined)[];
      readonly workedMs: number;
    }
  | {
      readonly kind: 'threw';
      readonly name: string;
      readonly message: string;
      /** The error's property `number`, if it is an integer. */
      readonly number?: number;
      readonly workedMs: number;
    }
  | { readonly kind: Failure; readonly workedMs: number }
  | Stopped;
