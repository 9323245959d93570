import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { uniqueValuesOf } from '@epitaph/core/unique-key/values.ts';
import { parseJson } from '@epitaph/query';
import type { BatchOperation, BatchOutcome, Document, ItemToWrite, ShownItem } from '../../store/api/items-api.ts';

/** The unique-key values of a partition key with a script's own writes, which are not recorded yet. */
export class UniqueValues {
  readonly #definition: ContainerDefinition;
  readonly #decide: (operations: readonly BatchOperation[]) => Promise<BatchOutcome>;
  /** By value, the id of the item that the script has written with it. */
  readonly #holders = new Map<string, string>();
  /** By id, the values of each item that the script has written. */
  readonly #values = new Map<string, readonly string[]>();
  /** By value, the id of the item that has it on record. Only for items that the script has changed. */
  readonly #formerHolders = new Map<string, string>();

  /** @param decide decides operations against the recorded items, without recording anything */
  constructor(
    definition: ContainerDefinition,
    decide: (operations: readonly BatchOperation[]) => Promise<BatchOutcome>,
  ) {
    this.#definition = definition;
    this.#decide = decide;
  }

  /**
   * Checks that no other item has a unique-key value of the item to write.
   *
   * @param replaced the id of the item that it replaces: its own, or another
   * @throws Refusal unique-key-taken if another item has one of its values
   */
  async assertFree(item: ItemToWrite, replaced = item.id): Promise<void> {
    const holdersAmong = (holders: ReadonlyMap<string, string>): string[] =>
      uniqueValuesOf(this.#definition, item.document).flatMap((value) => holders.get(value) ?? []);
    if (holdersAmong(this.#holders).some((id) => id !== replaced)) throw new Refusal('unique-key-taken');
    // The script has changed these items, so their recorded values are free now. They are deleted in the trial below.
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
   * Notes that the script has changed an item.
   *
   * @param before the item that the change was made to; undefined if there was none
   * @param now the new document; undefined for a delete
   */
  changed(id: string, before: Pick<ShownItem, 'json'> | undefined, now: Document | undefined): void {
    const own = this.#values.get(id);
    if (own !== undefined) for (const value of own) this.#holders.delete(value);
    else if (before !== undefined) {
      // The script has not changed the item before, so this is the recorded one.
      const recorded = parseJson(before.json) as Document;
      for (const value of uniqueValuesOf(this.#definition, recorded)) this.#formerHolders.set(value, id);
    }
    const values = now === undefined ? [] : uniqueValuesOf(this.#definition, now);
    this.#values.set(id, values);
    for (const value of values) this.#holders.set(value, id);
  }
}
