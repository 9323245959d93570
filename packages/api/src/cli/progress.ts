import { systemClocks } from '@epitaph/core/clock.ts';

const BAR_WIDTH = 30;
const REDRAW_EVERY_MS = 50;

/** The stream on which progress is shown, such as `process.stderr`. */
export interface ProgressStream {
  readonly isTTY?: boolean;
  write(text: string): unknown;
}

/** Shows progress: on a terminal as a bar that redraws itself, elsewhere as a line at every tenth. */
export class Progress {
  readonly #stream: ProgressStream;
  readonly #label: string;
  #drawnMs = -Infinity;
  #tenth = -1;
  #open = false;

  constructor(stream: ProgressStream, label: string) {
    this.#stream = stream;
    this.#label = label;
  }

  update(done: number, total: number, note = ''): void {
    const share = total <= 0 ? 1 : Math.min(1, Math.max(0, done / total));
    const percent = `${Math.floor(share * 100)}%`.padStart(4);
    const text = `${this.#label} ${percent}  ${done}/${total}${note === '' ? '' : `  ${note}`}`;
    if (this.#stream.isTTY === true) {
      const nowMs = systemClocks.monotonicMs();
      if (share < 1 && nowMs - this.#drawnMs < REDRAW_EVERY_MS) return;
      this.#drawnMs = nowMs;
      const full = Math.round(share * BAR_WIDTH);
      this.#stream.write(`\r\u001B[K[${'#'.repeat(full)}${'.'.repeat(BAR_WIDTH - full)}] ${text}`);
      this.#open = true;
      return;
    }
    const tenth = Math.floor(share * 10);
    // Work with several parts begins again with each. One tenth less may only mean that there is more to do than
    // before.
    if (tenth <= this.#tenth && tenth >= this.#tenth - 1) return;
    this.#tenth = tenth;
    this.#stream.write(`${text}\n`);
  }

  /** Ends the terminal's line, so that what follows begins on a new one. */
  end(): void {
    if (this.#open) this.#stream.write('\n');
    this.#open = false;
  }
}

/** A stream that knows whether the line of a bar is still open, as after work that failed. */
export class ComplaintStream implements ProgressStream {
  readonly #stream: ProgressStream;
  #open = false;

  constructor(stream: ProgressStream) {
    this.#stream = stream;
  }

  get isTTY(): boolean {
    return this.#stream.isTTY === true;
  }

  write(text: string): void {
    this.#open = !text.endsWith('\n');
    this.#stream.write(text);
  }

  /** Writes a message on a line of its own. */
  complain(message: string): void {
    this.write(`${this.#open ? '\n' : ''}epitaph: ${message}\n`);
  }
}

/** `1 h 2 min`, `35 s`; for notes beside a bar. */
export function roughly(milliseconds: number | null): string {
  if (milliseconds === null) return '';
  const seconds = Math.ceil(milliseconds / 1000);
  if (seconds < 60) return `${seconds} s left`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min left` : `${Math.floor(minutes / 60)} h ${minutes % 60} min left`;
}
