import type { Document } from '@epitaph/api/store/api/items-api.ts';

const TEMPLATES = 512;
const WORDS =
  'account active address archive balance batch bucket cache client cluster coast column commit cursor customer delta depot device digest draft edge email engine entry error event export fabric factor field filter flight folder format garden header hotel image index invoice kernel label ledger letter level limit linen market matrix meter mirror model morning number object offset order packet parcel partner permit pilot planet policy portal prefix price prompt quarter queue record region report request river route sample schema season sector server session signal silver socket source status stock stream summer switch table target ticket timber token trace transit tunnel update valley vector vendor version village volume wallet window winter writer yellow zone'.split(
    ' ',
  );

/** A small generator of numbers in [0, 1), the same in every run: Mulberry32. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export interface BenchDocument {
  readonly id: string;
  readonly partitionKey: string;
  readonly document: Document;
  readonly json: string;
}

/**
 * Makes documents of about `bytes` bytes of JSON: words, numbers, nested objects and random text. So all are different,
 * and none can be compressed to almost nothing. They are made from templates, so making one costs almost nothing.
 */
export class DocumentMaker {
  readonly #templates: { readonly fields: Document; readonly rest: string }[];
  readonly #partitions: number;

  constructor({ bytes = 1024, partitions = 100 }: { readonly bytes?: number; readonly partitions?: number } = {}) {
    const random = seeded(20_261_121);
    this.#partitions = partitions;
    this.#templates = Array.from({ length: TEMPLATES }, () => {
      const fields = template(random, bytes);
      return { fields, rest: `,${JSON.stringify(fields).slice(1)}` };
    });
  }

  make(number: number, version = 0): BenchDocument {
    const { fields, rest } = this.#templates[(number * 31 + version * 17) % TEMPLATES]!;
    const id = `item-${number}`;
    const pk = `p${number % this.#partitions}`;
    return {
      id,
      partitionKey: `["${pk}"]`,
      document: { id, pk, version, ...fields },
      json: `{"id":"${id}","pk":"${pk}","version":${version}${rest}`,
    };
  }
}

function template(random: () => number, bytes: number): Document {
  const word = () => WORDS[Math.floor(random() * WORDS.length)]!;
  const words = (count: number) => Array.from({ length: count }, word).join(' ');
  const text = (count: number) => Array.from({ length: count }, () => Math.floor(random() * 36).toString(36)).join('');
  const fields = {
    kind: word(),
    amount: Math.round(random() * 1e6) / 100,
    count: Math.floor(random() * 1000),
    open: random() < 0.5,
    createdAt: new Date(1.6e12 + Math.floor(random() * 1e11)).toISOString(),
    tags: [word(), word(), word()],
    address: { street: words(2), city: word(), position: [random() * 180 - 90, random() * 360 - 180] },
    token: text(64),
    note: '',
  };
  // 45 bytes are for id, partition key and version, which are added later.
  while (JSON.stringify(fields).length + 45 < bytes) fields.note += `${word()} ${text(8)} `;
  fields.note = fields.note.slice(0, fields.note.length - (JSON.stringify(fields).length + 45 - bytes));
  return fields;
}
