import type { ContainerState, RecordedPolicy } from '@epitaph/core/container/state.ts';
import type { RecordedHold } from '@epitaph/core/retention/state.ts';
import type { ContainerNumber } from '../read-model-store.ts';

/** The lists of a container's state that grow for years, released holds and policies of long ago included. */
interface Lists {
  readonly policies: readonly RecordedPolicy[];
  readonly holds: readonly RecordedHold[];
}

/** One entry of a list, at its place in it, as JSON. */
export interface ContainerEntry {
  readonly list: string;
  readonly place: number;
  readonly state: string;
}

/**
 * What stores write of a container. The entries of its lists are rows of their own: so an event costs what it changes,
 * and not what there was before it.
 */
export interface ContainerRows {
  /** The state without its lists, as JSON. */
  readonly state: string;
  /** Those that the state before did not have. */
  readonly entries: readonly ContainerEntry[];
  /** How long the lists are that have become shorter: what is at that place and behind it goes. */
  readonly ends: readonly { readonly list: string; readonly length: number }[];
}

/** @param before what is written already; undefined when that is not known, and then all is written */
export function containerRows(state: ContainerState, before: ContainerState | undefined): ContainerRows {
  const known = before === undefined ? undefined : listsOf(before);
  const entries: ContainerEntry[] = [];
  const ends: { list: string; length: number }[] = [];
  for (const [list, now] of Object.entries(listsOf(state)) as [keyof Lists, readonly object[]][]) {
    const then: readonly object[] | undefined = known?.[list];
    for (const [place, entry] of now.entries()) {
      // Folding leaves what an event does not concern as it is.
      if (entry !== then?.[place]) entries.push({ list, place, state: JSON.stringify(entry) });
    }
    if (then === undefined || then.length > now.length) ends.push({ list, length: now.length });
  }
  return { state: JSON.stringify(withLists(state, { policies: [], holds: [] })), entries, ends };
}

/** The states that rows were made of; the entries of each container in order of their places. */
export function containersOf(
  containers: readonly { readonly number: ContainerNumber; readonly state: string }[],
  entries: readonly (ContainerEntry & { readonly number: ContainerNumber })[],
): { readonly number: ContainerNumber; readonly state: ContainerState }[] {
  const lists = new Map<ContainerNumber, { policies: RecordedPolicy[]; holds: RecordedHold[] }>();
  for (const { number, list, state } of entries) {
    let own = lists.get(number);
    if (own === undefined) lists.set(number, (own = { policies: [], holds: [] }));
    own[list as keyof Lists].push(JSON.parse(state) as never);
  }
  return containers.map(({ number, state }) => ({
    number,
    state: withLists(JSON.parse(state) as ContainerState, lists.get(number) ?? { policies: [], holds: [] }),
  }));
}

function listsOf({ timeline, retention }: ContainerState): Lists {
  return { policies: timeline, holds: retention.holds };
}

function withLists(state: ContainerState, { policies, holds }: Lists): ContainerState {
  return { ...state, timeline: policies, retention: { ...state.retention, holds } };
}
