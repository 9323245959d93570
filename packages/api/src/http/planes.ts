/** Whether a target belongs to the management plane. All others are the data plane's. */
export function isManagement(url: string): boolean {
  if (!url.startsWith('/_epitaph')) return false;
  const next = url[9];
  return next === undefined || next === '/' || next === '?';
}
