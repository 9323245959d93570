import type { ContainerState } from '@epitaph/core/container/state.ts';
import { HoldRegister, type KnownHold } from '@epitaph/core/retention/hold-register.ts';
import type { ContainerNumber, ReadModelChange } from '../read-model-store.ts';

/** The lists in a container's state that grow for years, because they keep released holds and old policies. */
export const POLICIES = 'policies';
export const HOLDS = 'holds';

/** One entry of a list as JSON, with its index in the list. For a hold, the index is the position of its record in the log. */
export interface ContainerEntry {
  readonly list: string;
  readonly place: number;
  readonly state: string;
}

/**
 * The form in which stores write a container. The entries of its lists are separate rows, so that an event costs what
 * it changes, however long the lists are.
 */
export interface ContainerRows {
  /** The state without its lists, as JSON. */
  readonly state: string;
  /** The entries that were not in the state before. */
  readonly entries: readonly ContainerEntry[];
  /** The new lengths of lists that have become shorter. Entries from that index on are removed. */
  readonly ends: readonly { readonly list: string; readonly length: number }[];
}

export function containerRows({
  state,
  before,
  holds = [],
}: Pick<Extract<ReadModelChange, { kind: 'container' }>, 'state' | 'before' | 'holds'>): ContainerRows {
  const { timeline, retention } = state;
  const entries: ContainerEntry[] = [];
  for (const [place, policy] of timeline.entries()) {
    // Folding does not copy what an event does not change, so equal references mean no change.
    if (policy !== before?.timeline[place]) entries.push({ list: POLICIES, place, state: JSON.stringify(policy) });
  }
  const written = before === undefined ? [...retention.holds] : holds;
  for (const [place, hold] of new Map(written.map((each) => [each.position, each]))) {
    entries.push({ list: HOLDS, place, state: JSON.stringify(hold) });
  }
  const ends: { list: string; length: number }[] = [];
  if (before === undefined || before.timeline.length > timeline.length) {
    ends.push({ list: POLICIES, length: timeline.length });
  }
  if (before === undefined) ends.push({ list: HOLDS, length: 0 });
  return { state: JSON.stringify({ ...state, timeline: [], retention: { ...retention, holds: [] } }), entries, ends };
}

/** The states that the rows were made from. The entries of each container must be in order of their places. */
export function containersOf(
  containers: readonly { readonly number: ContainerNumber; readonly state: string }[],
  entries: readonly (ContainerEntry & { readonly number: ContainerNumber })[],
): { readonly number: ContainerNumber; readonly state: ContainerState }[] {
  const entriesOf = Map.groupBy(entries, ({ number }) => number);
  return containers.map(({ number, state }) => {
    const read = <Entry>(wanted: string): Entry[] =>
      (entriesOf.get(number) ?? []).flatMap((entry) =>
        entry.list === wanted ? [JSON.parse(entry.state) as Entry] : [],
      );
    const written = JSON.parse(state) as ContainerState;
    const holds = HoldRegister.of(read<KnownHold>(HOLDS));
    return { number, state: { ...written, timeline: read(POLICIES), retention: { ...written.retention, holds } } };
  });
}
