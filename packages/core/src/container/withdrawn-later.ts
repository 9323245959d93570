import type { RecordedEvent } from '../log/recorded-event.ts';
import { policyOf } from './evolve.ts';
import type { RecordedPolicy } from './state.ts';
import { readContainerEvent } from './upcast.ts';

/**
 * Finds the policy that was scheduled at an instant and withdrawn later, and so is in no timeline any more. It is given
 * the container's events one by one and needs no more of them once {@link isKnown} is true.
 */
export class WithdrawnLater {
  readonly #atMs: number;
  #scheduled: RecordedPolicy | undefined;
  #isKnown = false;

  constructor(atMs: number) {
    this.#atMs = atMs;
  }

  /** True as soon as no later event can matter. */
  get isKnown(): boolean {
    return this.#isKnown;
  }

  get policy(): RecordedPolicy | undefined {
    return this.#isKnown ? this.#scheduled : undefined;
  }

  take(recorded: RecordedEvent): void {
    if (this.#isKnown) return;
    const event = readContainerEvent(recorded);
    const wasBy = recorded.occurredAtMs <= this.#atMs;
    if (event.type === 'ContainerTtlChanged') {
      if (wasBy) this.#scheduled = policyOf(event.data, recorded);
      // A later policy is scheduled only after the former has started or was withdrawn.
      else this.#end(undefined);
    } else if (event.type === 'ContainerTtlWithdrawn' && event.data.policyVersion === this.#scheduled?.version) {
      if (wasBy) this.#scheduled = undefined;
      else this.#end(this.#scheduled);
    }
  }

  #end(policy: RecordedPolicy | undefined): void {
    this.#scheduled = policy;
    this.#isKnown = true;
  }
}
