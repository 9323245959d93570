import { parsedJson } from '@epitaph/core/parsed-json.ts';

/** An event as the double stores it. */
export interface DoubleRecord {
  readonly stream: string;
  readonly revision: number;
  readonly position: number;
  readonly id: string;
  readonly type: string;
  readonly contentType: string;
  readonly metadata: Uint8Array;
  readonly data: Uint8Array;
}

type NewRecord = Omit<DoubleRecord, 'stream' | 'revision' | 'position'>;

/** Like the server, which lets a read begin only at the position of a present or former event. */
export class InvalidPosition extends Error {
  override readonly name = 'InvalidPosition';
}

/** A stream deleted for good: it has nothing to read, and accepts nothing. */
export class StreamDeleted extends Error {
  override readonly name = 'StreamDeleted';
}

/** The metadata of a deleted stream. */
const DELETED = '{"$tb":9223372036854775807}';

/** After this many events of the store the server writes one of its own, so that the store can't rely on being alone. */
const SYSTEM_EVENT_EVERY = 5;

/** The log of the double. Positions are bytes, streams count revisions, `$tb` hides events, and a scavenge removes them. */
export class DoubleLog {
  #all: DoubleRecord[] = [];
  readonly #streams = new Map<string, { last: number; records: DoubleRecord[] }>();
  readonly #boundaries = new Set<number>();
  readonly #tombstones = new Set<string>();
  readonly #listeners = new Set<(record: DoubleRecord) => void>();
  #end = 0;
  #written = 0;

  constructor() {
    this.#systemEvent();
  }

  /** A copy of the present state, as a backup of the server would have it. */
  copy(): DoubleLog {
    const copy = new DoubleLog();
    copy.#all = [...this.#all];
    copy.#streams.clear();
    for (const [name, { last, records }] of this.#streams) copy.#streams.set(name, { last, records: [...records] });
    copy.#boundaries.clear();
    for (const boundary of this.#boundaries) copy.#boundaries.add(boundary);
    for (const stream of this.#tombstones) copy.#tombstones.add(stream);
    copy.#end = this.#end;
    copy.#written = this.#written;
    return copy;
  }

  append(
    stream: string,
    expected: number,
    events: readonly NewRecord[],
  ):
    | { readonly kind: 'appended'; readonly last: DoubleRecord }
    | { readonly kind: 'wrong-version'; readonly current: number } {
    this.#assertNoTombstone(stream);
    const current = this.#streams.get(stream)?.last ?? -1;
    if (expected < current) {
      const there = events.map((event, index) => {
        const record = this.#streams.get(stream)!.records.find(({ revision }) => revision === expected + 1 + index);
        return record?.id === event.id ? record : undefined;
      });
      const last = there.at(-1);
      if (last !== undefined && there.every((record) => record !== undefined)) return { kind: 'appended', last };
    }
    if (expected === -1 && this.#isDeleted(stream)) this.#writeMetadata(stream, `{"$tb":${current + 1}}`);
    else if (expected !== current) return { kind: 'wrong-version', current };
    let last: DoubleRecord | undefined;
    for (const event of events) last = this.#write(stream, event);
    this.#written += 1;
    if (this.#written % SYSTEM_EVENT_EVERY === 0) this.#systemEvent();
    return { kind: 'appended', last: last! };
  }

  #write(stream: string, event: NewRecord): DoubleRecord {
    const entry = this.#streams.get(stream) ?? { last: -1, records: [] };
    this.#streams.set(stream, entry);
    entry.last += 1;
    const record = { ...event, stream, revision: entry.last, position: this.#end };
    entry.records.push(record);
    this.#all.push(record);
    this.#boundaries.add(record.position);
    this.#end += 80 + stream.length + event.type.length + event.metadata.length + event.data.length;
    for (const listener of this.#listeners) listener(record);
    return record;
  }

  /**
   * Deletes a stream softly, as an operator may do. It shows no events, and events appended to it as to a new stream get revisions after
   * the former ones.
   *
   * @source EventStoreDB's documentation, "Deleting streams and events": the next event has the number after the last one
   */
  deleteStream(stream: string): void {
    this.#writeMetadata(stream, DELETED);
  }

  /**
   * Deletes a stream for good, with the stream of its metadata, as an operator may do. Its events stay in the log until a scavenge.
   *
   * @source EventStoreDB 23.10, `IndexReader.GetStreamLastEventNumber`: a metastream is deleted with its stream
   */
  tombstone(stream: string): void {
    this.#write(stream, {
      id: crypto.randomUUID(),
      type: '$streamDeleted',
      contentType: 'application/json',
      metadata: new Uint8Array(0),
      data: Buffer.from('{}'),
    });
    this.#tombstones.add(stream);
  }

  #assertNoTombstone(stream: string): void {
    const isDeleted = this.#tombstones.has(stream) || this.#tombstones.has(stream.replace(/^\$\$/, ''));
    if (isDeleted) throw new StreamDeleted(`Event stream '${stream}' is deleted.`);
  }

  #isDeleted(stream: string): boolean {
    const last = this.#streams.get(`$$${stream}`)?.records.at(-1);
    return last !== undefined && Buffer.from(last.data).toString() === DELETED;
  }

  #writeMetadata(stream: string, metadata: string): void {
    this.#write(`$$${stream}`, {
      id: crypto.randomUUID(),
      type: '$metadata',
      contentType: 'application/json',
      metadata: new Uint8Array(0),
      data: Buffer.from(metadata),
    });
  }

  #systemEvent(): void {
    this.#write('$stats-127.0.0.1:2113', {
      id: crypto.randomUUID(),
      type: '$statsCollected',
      contentType: 'application/json',
      metadata: new Uint8Array(0),
      data: Buffer.from('{}'),
    });
  }

  /** The events of a stream that its metadata leave visible, oldest first; undefined if it was never written. */
  readStream(stream: string): DoubleRecord[] | undefined {
    this.#assertNoTombstone(stream);
    const before = this.#truncateBefore(stream);
    return this.#streams.get(stream)?.records.filter((record) => record.revision >= before);
  }

  #truncateBefore(stream: string): number {
    const last = this.#streams.get(`$$${stream}`)?.records.at(-1);
    if (last === undefined) return 0;
    // Metadata that are no object are ignored.
    const metadata = parsedJson(Buffer.from(last.data).toString('utf8')) as
      | { readonly $tb?: number }
      | null
      | undefined;
    return metadata?.$tb ?? 0;
  }

  /** All events from a position on, including truncated ones. */
  readForwards(from: number | undefined): DoubleRecord[] {
    if (from === undefined) return [...this.#all];
    if (from < this.#end && !this.#boundaries.has(from)) throw new InvalidPosition();
    let low = 0;
    for (let high = this.#all.length; low < high;) {
      const middle = (low + high) >> 1;
      if (this.#all[middle]!.position < from) low = middle + 1;
      else high = middle;
    }
    return this.#all.slice(low);
  }

  readBackwards(): DoubleRecord[] {
    return this.#all.toReversed();
  }

  listen(listener: (record: DoubleRecord) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Removes the truncated events. */
  scavenge(id: string): void {
    const report = (type: string, data: object) =>
      this.#write(`$scavenges-${id}`, {
        id: crypto.randomUUID(),
        type,
        contentType: 'application/json',
        metadata: new Uint8Array(0),
        data: Buffer.from(JSON.stringify({ scavengeId: id, ...data })),
      });
    report('$scavengeStarted', { threads: 1 });
    const stands = ({ stream, revision, type }: DoubleRecord) =>
      this.#tombstones.has(stream) ? type === '$streamDeleted' : revision >= this.#truncateBefore(stream);
    this.#all = this.#all.filter(stands);
    for (const entry of this.#streams.values()) entry.records = entry.records.filter(stands);
    report('$scavengeCompleted', { result: 'Success', error: '', spaceSaved: 0 });
  }
}
