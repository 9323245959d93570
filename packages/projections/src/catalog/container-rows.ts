import type { ContainerState } from '@epitaph/core/container/state.ts';
import { HoldRegister, type KnownHold } from '@epitaph/core/retention/hold-register.ts';
import type { ContainerNumber, ReadModelChange } from '../read-model-store.ts';

/** The lists of a container's state that grow for years, released holds and policies of long ago included. */
export const POLICIES = 'policies';
export const HOLDS = 'holds';

/** One entry of a list, at its place in it, as JSON; of a hold that is where its record is in the log. */
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

export function containerRows({
  state,
  before,
  holds = [],
}: Pick<Extract<ReadModelChange, { kind: 'container' }>, 'state' | 'before' | 'holds'>): ContainerRows {
  const { timeline, retention } = state;
  const entries: ContainerEntry[] = [];
  for (const [place, policy] of timeline.entries()) {
    // Folding leaves what an event does not concern as it is.
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

/** The states that rows were made of; the entries of each container in order of their places. */
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
