/** A stored procedure or a trigger, and what it is run with. */
export interface Script {
  readonly kind: 'stored-procedure' | 'pre-trigger' | 'post-trigger';
  /** For messages. */
  readonly name: string;
  /** The text of a function, as the client stored it. */
  readonly source: string;
  /** JSON text of an array: the arguments of a stored procedure. */
  readonly args?: string;
  /** What `getSelfLink()` and `getAltLink()` of the collection give. */
  readonly collection: { readonly self: string; readonly alt: string };
  /** What `getRequest()` gives a trigger; `body` is JSON text. */
  readonly request?: {
    /** `Create`, `Replace`, `Upsert` or `Delete`. */
    readonly operationType: string;
    readonly body?: string;
    readonly values?: Readonly<Record<string, string>>;
  };
  /** What `getResponse()` gives a post-trigger; `body` is JSON text. */
  readonly response?: { readonly body?: string; readonly values?: Readonly<Record<string, string>> };
  /** Whether what it says by `console.log` is kept. */
  readonly logs: boolean;
}

/**
 * What a script asks of the collection. Bodies are JSON texts, and are valid. Links are as the script gave them: those of `_self`, or
 * `dbs/x/colls/y/docs/z`, and begin with one of the two links of the collection.
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
      /** JSON text: a document, or an array of documents or rows. */
      readonly body?: string;
      readonly continuation?: string;
      readonly headers?: Readonly<Record<string, string>>;
    }
  /** `status` is that of HTTP. A read with `ifNoneMatch` whose document is unchanged fails by 304, which the script is told as no failure. */
  | { readonly kind: 'failed'; readonly status: number; readonly message: string };

export interface ScriptHost {
  /**
   * Carries out one operation. Those of a run come one at a time, in the order in which the script asked, and none after the run has
   * ended. What it throws ends the run, which is `stopped` then.
   */
  operate(operation: ScriptOperation): Promise<ScriptAnswer>;
}

/** Nobody wants it any more, or the host has thrown this. */
interface Stopped {
  readonly kind: 'stopped';
  readonly error: unknown;
  readonly workedMs: number;
}

/** How it can go wrong that a script or function comes to its end. `busy`: too many wait for a thread, or the runner is closed. */
export type Failure = 'out-of-time' | 'out-of-memory' | 'busy';

export type ScriptOutcome =
  | {
      readonly kind: 'done';
      /** JSON text of the response's body. That of a stored procedure is empty text if it was not set; of a post-trigger, there is none. */
      readonly body?: string;
      /** JSON text of the body that a pre-trigger gave the request, if it did. */
      readonly requestBody?: string;
      readonly log: string;
      /** Milliseconds in the engine, without those that it waited for the host. */
      readonly workedMs: number;
    }
  | {
      readonly kind: 'threw';
      /** For the client: `Exception = Error: …`, and where. */
      readonly message: string;
      /** `number` of the error, where that is an integer: for errors of operations, the status of HTTP. */
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
      /** `number` of the error, where that is an integer. */
      readonly number?: number;
      readonly workedMs: number;
    }
  | { readonly kind: Failure; readonly workedMs: number }
  | Stopped;
