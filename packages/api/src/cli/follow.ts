import type { Invocation } from './command.ts';
import { ServerRefused } from './management-client.ts';
import { Progress } from './progress.ts';

/** Progress as the server reports it: positions in the log, or counts. */
type Reported =
  | { readonly position: number; readonly headPosition: number }
  | { readonly done: number; readonly total: number; readonly phase?: string };

interface Followed {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly body?: unknown;
  /** Shown beside the progress. */
  readonly label: string;
  /** Reads the progress from a report that is not of the form {@link Reported}. */
  readonly measure?: (told: unknown) => Measure;
}

type Measure = readonly [done: number, total: number, note: string | undefined];

function measureReported(told: unknown): Measure {
  const reported = told as Reported;
  return 'total' in reported
    ? [reported.done, reported.total, reported.phase]
    : [reported.position, reported.headPosition, undefined];
}

/**
 * Lets the server do work that reports its progress, and shows the progress until the result. Ctrl-C cancels the work:
 * the server ends work that no client waits for.
 *
 * @throws ServerUnreachable
 * @throws ServerRefused also `busy`, when the server stops before the work is done
 */
export async function follow<Result>(
  { client, stderr }: Pick<Invocation, 'client' | 'stderr'>,
  { method, path, label, measure = measureReported, ...sent }: Followed,
): Promise<Result> {
  const progress = new Progress(stderr, label);
  try {
    for await (const { event, data } of client.events(method, path, sent)) {
      if (event === 'done') return data as Result;
      if (event === 'failed') {
        const { code, detail } = data as { readonly code: string; readonly detail: string };
        throw new ServerRefused(code, detail);
      }
      progress.update(...measure(data));
    }
  } finally {
    progress.end();
  }
  throw new ServerRefused('busy', 'The server stopped before the work was done. Run the command again.');
}
