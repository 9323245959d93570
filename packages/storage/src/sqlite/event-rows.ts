import type { StatementSync } from 'node:sqlite';
import { invariant } from '@epitaph/core/invariant.ts';
import type { NewEvent, RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { withUnreadableData } from '@epitaph/core/upcast.ts';
import type { EventRow } from './log-writer-jobs.ts';
import { uuidOfHex } from './uuid-bytes.ts';

/** The columns of an event's row, in the form in which they are read. */
export type EventColumns = readonly [
  position: number,
  stream: string,
  revision: number,
  previous: number,
  type: number,
  version: number,
  at: number,
  actor: number,
  shape: number,
  data: string,
  /** The UUIDs of the event, of its correlation and, if it differs, of its causation: 32 hexadecimal digits each. */
  ids: string,
  body?: Uint8Array | null,
];

/** The columns of {@link EventColumns} in SQL. Each column takes time to read, a column of bytes three times as much as a text. */
export const FACTS = `position, stream, revision, previous, type, version, at, actor, shape, data,
  lower(hex(id) || hex(correlation) || ifnull(hex(causation), ''))`;

/** The words of the log. They are read again when an event has one that the writer has added meanwhile. */
export class Words {
  readonly #statement: StatementSync;
  readonly #texts = new Map<number, string>();
  readonly #numbers = new Map<string, number>();
  #unknown = false;
  readonly #names = new Map<number, readonly string[]>();

  constructor(statement: StatementSync) {
    this.#statement = statement;
  }

  /** The number of a word, or the word itself if its number is not known here yet. */
  number(text: string): number | string {
    const number = this.#numbers.get(text);
    if (number !== undefined) return number;
    this.#unknown = true;
    return text;
  }

  /** Must be called after an append, to learn the words that it has added. */
  learn(): void {
    if (!this.#unknown) return;
    this.#unknown = false;
    this.#load();
  }

  #load(): void {
    for (const { number, text } of this.#statement.all() as { number: number; text: string }[]) {
      this.#texts.set(number, text);
      this.#numbers.set(text, number);
    }
  }

  text(number: number): string {
    const text = this.find(number);
    invariant(text !== undefined, `word ${number} of the log is missing`);
    return text;
  }

  find(number: number): string | undefined {
    const known = this.#texts.get(number);
    if (known !== undefined) return known;
    this.#load();
    return this.#texts.get(number);
  }

  names(number: number): readonly string[] {
    let names = this.#names.get(number);
    if (names === undefined) {
      names = JSON.parse(this.text(number)) as string[];
      this.#names.set(number, names);
    }
    return names;
  }
}

function withNames(names: readonly string[], values: readonly unknown[]): Record<string, unknown> {
  const data: Record<string, unknown> = {};
  for (let index = 0; index < names.length; index++) data[names[index]!] = values[index];
  return data;
}

export function toRow(event: NewEvent, blobs: Uint8Array[], words: Words): EventRow {
  if (event.body !== undefined) blobs.push(event.body);
  return [
    event.id,
    words.number(event.type),
    event.version,
    event.occurredAtMs,
    words.number(event.actor),
    event.correlationId,
    event.causationId === event.correlationId ? null : event.causationId,
    words.number(JSON.stringify(Object.keys(event.data))),
    JSON.stringify(Object.values(event.data)),
    event.body !== undefined,
  ];
}

/** Replaces a word that is lost. */
const UNKNOWN = 'unknown';
const NOTHING: Readonly<Record<string, unknown>> = {};

/**
 * Makes the event of a row. SQLite does not notice if the disk returns other bytes than were written. So a damaged event does not fail
 * here, but when its data are used: readers of other events are not affected.
 */
export function fromRow(row: EventColumns, words: Words): RecordedEvent {
  const [position, stream, revision, , typeNumber, version, at, actorNumber, shape, data, ids, body] = row;
  const correlationId = uuidOfHex(ids, 32);
  const type = words.find(typeNumber);
  const actor = words.find(actorNumber);
  const event = {
    id: uuidOfHex(ids, 0),
    type: type ?? UNKNOWN,
    version,
    data: NOTHING,
    ...(body === undefined || body === null ? {} : { body }),
    occurredAtMs: at,
    actor: actor ?? UNKNOWN,
    correlationId,
    causationId: ids.length > 64 ? uuidOfHex(ids, 64) : correlationId,
    stream,
    revision,
    position,
  };
  try {
    if (type === undefined) words.text(typeNumber);
    if (actor === undefined) words.text(actorNumber);
    event.data = withNames(words.names(shape), JSON.parse(data) as unknown[]);
  } catch (error) {
    withUnreadableData(event, error);
  }
  return event;
}
