/** Waiting for a server: nothing that happens to items hangs on these timers. */

export function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, milliseconds);
  });
}

/** Calls back unless stopped before. */
export function after(milliseconds: number, callback: () => void): () => void {
  const timer = setTimeout(callback, milliseconds);
  return () => clearTimeout(timer);
}

/** Calls back again and again until stopped, and keeps no process from ending. */
export function every(milliseconds: number, callback: () => void): () => void {
  const timer = setInterval(callback, milliseconds).unref();
  return () => clearInterval(timer);
}
