/** True for the targets of the management plane; all others are the data plane's. */
export function isManagement(url: string): boolean {
  if (!url.startsWith('/_epitaph')) return false;
  const next = url[9];
  return next === undefined || next === '/' || next === '?';
}
