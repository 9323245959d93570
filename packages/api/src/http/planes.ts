/** True for the targets of the management plane; all others are the data plane's. */
export function isManagement(url: string): boolean {
  if (!url.startsWith('/_epitaph')) return false;
  const next = url[9];
  return next === undefined || next === '/' || next === '?';
}

/** True for targets that are answered under any load. */
export const isHealth = (url: string): boolean => isManagement(url) && url.startsWith('/_epitaph/health');
