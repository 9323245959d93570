/** The properties of the management plane's answers that the tour uses. */
export interface Explanation {
  readonly state: string;
  readonly sentence: string;
}
export interface HistoryEvent {
  readonly occurredAt: string;
  readonly life: number;
  readonly type: string;
  readonly actor?: string;
  readonly fromLedger?: boolean;
  readonly data: Readonly<Record<string, unknown>>;
}
export interface Disappearance {
  readonly id: string;
  readonly cause: string;
  readonly at: string;
}
export interface PurgeStatus {
  readonly overdueItems: number;
  readonly awaitingErasure: number;
  readonly inGrace: number;
  readonly purgedTotal: number;
}
export interface FsckReport {
  readonly ok: boolean;
  readonly items: number;
  readonly lives: number;
  readonly problems: readonly { readonly message: string }[];
}

/** Calls the management plane under `/_epitaph`, with plain HTTP and JSON and a key of the store as bearer token. */
export class Management {
  readonly #endpoint: string;
  readonly #key: string;
  readonly #database: string;

  constructor(endpoint: string, key: string, database: string) {
    this.#endpoint = endpoint;
    this.#key = key;
    this.#database = database;
  }

  async now(): Promise<string> {
    return (await this.#call<{ now: string }>('GET', '/clock')).now;
  }

  /** Moves the manual clock forward. The store must run with `--clock manual`. */
  async advance(milliseconds: number): Promise<void> {
    await this.#call('POST', '/clock/advance', { milliseconds });
  }

  /** @param at an instant as ISO text; the present if not given */
  explain(container: string, id: string, event: string, at?: string): Promise<Explanation> {
    const query = itemQuery(id, event);
    if (at !== undefined) query.set('at', at);
    return this.#call('GET', `${this.#path(container)}/explain?${query.toString()}`);
  }

  async history(container: string, id: string, event: string): Promise<readonly HistoryEvent[]> {
    const path = `${this.#path(container)}/history?${itemQuery(id, event).toString()}`;
    return (await this.#call<{ events: HistoryEvent[] }>('GET', path)).events;
  }

  async disappearances(container: string): Promise<readonly Disappearance[]> {
    const rows: Disappearance[] = [];
    let continuation: string | undefined;
    do {
      const query = new URLSearchParams({ limit: '100', ...(continuation === undefined ? {} : { continuation }) });
      const page = await this.#call<{ disappearances: Disappearance[]; continuation?: string }>(
        'GET',
        `${this.#path(container)}/disappearances?${query.toString()}`,
      );
      rows.push(...page.disappearances);
      continuation = page.continuation;
    } while (continuation !== undefined);
    return rows;
  }

  /** Runs one pass of the purge. The answer comes when nothing due is left. */
  async runPurge(): Promise<void> {
    await this.#call('POST', '/purge/run');
  }

  purgeStatus(): Promise<PurgeStatus> {
    return this.#call('GET', '/purge');
  }

  fsck(): Promise<FsckReport> {
    return this.#call('POST', '/fsck');
  }

  #path(container: string): string {
    return `/dbs/${this.#database}/colls/${container}`;
  }

  async #call<T>(method: string, path: string, body?: object): Promise<T> {
    const response = await fetch(`${this.#endpoint}/_epitaph${path}`, {
      method,
      headers: { authorization: `Bearer ${this.#key}` },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  }
}

/** An item is named by its id and by its partition key as a JSON array. */
function itemQuery(id: string, event: string): URLSearchParams {
  return new URLSearchParams({ id, partitionKey: JSON.stringify([event]) });
}
