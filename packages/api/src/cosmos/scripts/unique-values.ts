import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { uniqueValuesOf } from '@epitaph/core/unique-key/values.ts';
import { parseJson } from '@epitaph/query';
import type { BatchOperation, BatchOutcome, Document, ItemToWrite, ShownItem } from '../../store/api/items-api.ts';

/** The values of a container's unique keys as a script has left them in its partition key, none of which is recorded yet. */
export class UniqueValues {
  readonly #definition: ContainerDefinition;
  readonly #decide: (operations: readonly BatchOperation[]) => Promise<BatchOutcome>;
  /** By value, the item that the script has given it to. */
  readonly #holders = new Map<string, string>();
  /** By item that the script has written, its values. */
  readonly #values = new Map<string, readonly string[]>();
  /** By value, the item that has it on record, of those that the script has changed. */
  readonly #formerHolders = new Map<string, string>();

  /** @param decide what would become of operations by what is on record */
  constructor(
    definition: ContainerDefinition,
    decide: (operations: readonly BatchOperation[]) => Promise<BatchOutcome>,
  ) {
    this.#definition = definition;
    this.#decide = decide;
  }

  /**
   * @param replaced the item in whose place it comes: itself, or one of another id
   * @throws Refusal unique-key-taken where another item has a value of what is to be written
   */
  async assertFree(item: ItemToWrite, replaced = item.id): Promise<void> {
    const holdersAmong = (holders: ReadonlyMap<string, string>): string[] =>
      uniqueValuesOf(this.#definition, item.document).flatMap((value) => holders.get(value) ?? []);
    if (holdersAmong(this.#holders).some((id) => id !== replaced)) throw new Refusal('unique-key-taken');
    // What these have on record is theirs no more.
    const gone = new Set(holdersAmong(this.#formerHolders));
    if (!this.#values.has(replaced)) gone.add(replaced);
    gone.delete(item.id);
    const { partitionKey } = item;
    const outcome = await this.#decide([
      ...[...gone].map((id) => ({ kind: 'delete', id, partitionKey }) as const),
      { kind: 'write', operation: 'upsert', item },
    ]);
    if (outcome.kind === 'refused' && outcome.refusal.code === 'unique-key-taken') throw outcome.refusal;
  }

  /**
   * The script has changed an item.
   *
   * @param recorded the item on record, where this is its first change
   * @param now what it has been made; undefined for one that is deleted
   */
  changed(id: string, recorded: Pick<ShownItem, 'json'> | undefined, now: Document | undefined): void {
    if (recorded !== undefined) {
      const before = parseJson(recorded.json) as Document;
      for (const value of uniqueValuesOf(this.#definition, before)) this.#formerHolders.set(value, id);
    }
    for (const value of this.#values.get(id) ?? []) this.#holders.delete(value);
    const values = now === undefined ? [] : uniqueValuesOf(this.#definition, now);
    this.#values.set(id, values);
    for (const value of values) this.#holders.set(value, id);
  }
}
