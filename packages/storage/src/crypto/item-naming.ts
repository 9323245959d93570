import { hash } from 'node:crypto';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import { isPseudonym, type ItemName } from '@epitaph/core/item/pseudonym.ts';
import { uniqueKeyStream } from '@epitaph/core/unique-key/stream-name.ts';
import type { ItemNaming } from '@epitaph/core/vault/body-sealer.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';

const HASH_BYTES = 15;
/** Characters of a partition key's hash in a stream's name: 6 bytes. */
const PARTITION_CHARACTERS = 8;
/** Two values of one hash could not both be had: so long that this doesn't happen. */
const UNIQUE_KEY_HASH_BYTES = 21;
const PARTITION_CACHE_SIZE = 10_000;
/** Containers whose secrets are in memory: they come and go, and all that ever were are too many. */
const SECRETS = 10_000;

/**
 * Names an item's streams by a keyed hash under the container's secret: 6 bytes of its partition key, so that a
 * partition's streams lie together, then 15 bytes of partition key and id, which make it unique. The hash is
 * SHA-512/256 over secret and text: its hidden state rules out the length extension for which SHA-256 needs HMAC,
 * and one pass takes a third of HMAC's time.
 */
export class HashedItemNaming implements ItemNaming {
  readonly #vault: Pick<KeyVault, 'containerSecret'>;
  readonly #secrets = new GenerationCache<string, Buffer>(SECRETS);
  /** Secrets that are on their way: all who come meanwhile wait for the same, as those do who fill a new container. */
  readonly #asked = new Map<string, Promise<Buffer>>();
  /** Whole hashes, of which stream names have the beginning. */
  readonly #partitions = new Map<string, string>();

  constructor(vault: Pick<KeyVault, 'containerSecret'>) {
    this.#vault = vault;
  }

  itemStreamPrefix(containerRid: string, partitionKey: string, id: string): string | Promise<string> {
    // A pseudonym has what the name would be hashed to.
    if (isPseudonym(partitionKey)) return streamPrefix(containerRid, partitionKey.slice(1), id);
    return this.#withSecret(containerRid, (secret) =>
      streamPrefix(
        containerRid,
        this.#partition(secret, containerRid, partitionKey),
        itemHash(secret, { id, partitionKey }),
      ),
    );
  }

  pseudonym(containerRid: string, name: ItemName): ItemName | Promise<ItemName> {
    return this.#withSecret(containerRid, (secret) => ({
      id: itemHash(secret, name),
      partitionKey: `~${this.#partition(secret, containerRid, name.partitionKey)}`,
    }));
  }

  partitionPseudonym(containerRid: string, partitionKey: string): string | Promise<string> {
    return this.#withSecret(containerRid, (secret) => `~${this.#partition(secret, containerRid, partitionKey)}`);
  }

  uniqueKeyStream(containerRid: string, partitionKey: string, value: string): string | Promise<string> {
    return this.#withSecret(containerRid, (secret) =>
      uniqueKeyStream(containerRid, keyedHash(secret, `unique ${partitionKey}\n${value}`, UNIQUE_KEY_HASH_BYTES)),
    );
  }

  #withSecret<Result>(containerRid: string, use: (secret: Buffer) => Result): Result | Promise<Result> {
    const secret = this.#secrets.get(containerRid);
    if (secret !== undefined) return use(secret);
    return (this.#asked.get(containerRid) ?? this.#ask(containerRid)).then(use);
  }

  #ask(containerRid: string): Promise<Buffer> {
    const asked = this.#vault.containerSecret(containerRid).then((bytes) => {
      // Not from the pool of small buffers, of which it would keep eight kilobytes.
      const secret = Buffer.alloc(bytes.length);
      secret.set(bytes);
      return secret;
    });
    this.#asked.set(containerRid, asked);
    // Unless it is forgotten by now.
    const ends = (): boolean => this.#asked.get(containerRid) === asked && this.#asked.delete(containerRid);
    asked.then(
      (secret) => ends() && this.#secrets.set(containerRid, secret),
      () => ends(),
    );
    return asked;
  }

  /** Asks for all secrets anew. */
  forget(): void {
    this.#secrets.clear();
    this.#asked.clear();
    this.#partitions.clear();
  }

  async partitionStreamPrefix(containerRid: string, partitionKey: string): Promise<string> {
    // Any item of the partition has it.
    const name = await this.itemStreamPrefix(containerRid, partitionKey, '');
    return name.slice(0, `item-${containerRid}.`.length + PARTITION_CHARACTERS);
  }

  #partition(secret: Buffer, containerRid: string, partitionKey: string): string {
    const cacheKey = `${containerRid} ${partitionKey}`;
    let partition = this.#partitions.get(cacheKey);
    if (partition === undefined) {
      partition = keyedHash(secret, `partition ${partitionKey}`);
      // By a secret that is forgotten since it was asked for: of the next one it would be wrong.
      if (this.#secrets.get(containerRid) !== secret) return partition;
      if (this.#partitions.size >= PARTITION_CACHE_SIZE) this.#partitions.clear();
      this.#partitions.set(cacheKey, partition);
    }
    return partition;
  }
}

const streamPrefix = (containerRid: string, partition: string, item: string): string =>
  `item-${containerRid}.${partition.slice(0, PARTITION_CHARACTERS)}${item}`;

// The key is JSON and so never has a raw line break: the pair can't be read two ways.
const itemHash = (secret: Buffer, { id, partitionKey }: ItemName): string =>
  keyedHash(secret, `item ${partitionKey}\n${id}`);

/** As base64url: 20 characters, unless told otherwise; a multiple of 3 bytes, which is one of 4 characters. */
function keyedHash(secret: Buffer, text: string, bytes = HASH_BYTES): string {
  const length = Buffer.byteLength(text);
  const input = Buffer.allocUnsafe(secret.length + length);
  secret.copy(input);
  input.write(text, secret.length);
  return hash('sha512-256', input, 'base64url').slice(0, (bytes / 3) * 4);
}
