import { hash } from 'node:crypto';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import { isPseudonym, type ItemName } from '@epitaph/core/item/pseudonym.ts';
import { uniqueKeyStream } from '@epitaph/core/unique-key/stream-name.ts';
import type { ItemNaming } from '@epitaph/core/vault/body-sealer.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';

const HASH_BYTES = 15;
/** How many characters of a partition key's hash a stream's name has: 6 bytes. */
const PARTITION_CHARACTERS = 8;
/** Two values of a unique key with the same hash would exclude each other. The hash is long enough for that not to happen. */
const UNIQUE_KEY_HASH_BYTES = 21;
const PARTITION_CACHE_SIZE = 10_000;
/** How many containers' secrets are kept in memory. Containers come and go, so keeping all of them would be too much. */
const SECRETS = 10_000;

/**
 * Makes an item's stream names with hashes keyed by the container's secret: 6 bytes of the hash of the partition key, so that the streams
 * of a partition are next to each other; then 15 bytes of the hash of partition key and id, which make the name unique. The hash is
 * SHA-512/256 over secret and text. It does not output its whole state, so it does not allow length extension, because of which SHA-256
 * needs HMAC. One pass takes a third of HMAC's time.
 */
export class HashedItemNaming implements ItemNaming {
  readonly #vault: Pick<KeyVault, 'containerSecret'>;
  readonly #secrets = new GenerationCache<string, Buffer>(SECRETS);
  /** Secrets that are being fetched. Concurrent calls, as when a new container is filled, share one request. */
  readonly #asked = new Map<string, Promise<Buffer>>();
  /** Whole hashes of partition keys. Stream names have the beginning of these. */
  readonly #partitions = new Map<string, string>();

  constructor(vault: Pick<KeyVault, 'containerSecret'>) {
    this.#vault = vault;
  }

  itemStreamPrefix(containerRid: string, partitionKey: string, id: string): string | Promise<string> {
    // A pseudonym contains the hash already.
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
      // Copied to a buffer of its own: one from the pool of small buffers would keep eight kilobytes in memory.
      const secret = Buffer.alloc(bytes.length);
      secret.set(bytes);
      return secret;
    });
    this.#asked.set(containerRid, asked);
    // False if `forget` was called meanwhile.
    const ends = (): boolean => this.#asked.get(containerRid) === asked && this.#asked.delete(containerRid);
    asked.then(
      (secret) => ends() && this.#secrets.set(containerRid, secret),
      () => ends(),
    );
    return asked;
  }

  /** Forgets all secrets, so that they are fetched again. */
  forget(): void {
    this.#secrets.clear();
    this.#asked.clear();
    this.#partitions.clear();
  }

  async partitionStreamPrefix(containerRid: string, partitionKey: string): Promise<string> {
    // The prefix is the same for all items of the partition.
    const name = await this.itemStreamPrefix(containerRid, partitionKey, '');
    return name.slice(0, `item-${containerRid}.`.length + PARTITION_CHARACTERS);
  }

  #partition(secret: Buffer, containerRid: string, partitionKey: string): string {
    const cacheKey = `${containerRid} ${partitionKey}`;
    let partition = this.#partitions.get(cacheKey);
    if (partition === undefined) {
      partition = keyedHash(secret, `partition ${partitionKey}`);
      // If the secret was forgotten meanwhile, the hash is not cached: with the next secret it would be wrong.
      if (this.#secrets.get(containerRid) !== secret) return partition;
      if (this.#partitions.size >= PARTITION_CACHE_SIZE) this.#partitions.clear();
      this.#partitions.set(cacheKey, partition);
    }
    return partition;
  }
}

const streamPrefix = (containerRid: string, partition: string, item: string): string =>
  `item-${containerRid}.${partition.slice(0, PARTITION_CHARACTERS)}${item}`;

// The partition key is JSON, which has no raw line break. So the text is unambiguous.
const itemHash = (secret: Buffer, { id, partitionKey }: ItemName): string =>
  keyedHash(secret, `item ${partitionKey}\n${id}`);

/** A hash in base64url: 20 characters by default. `bytes` must be a multiple of 3, so that the text needs no padding. */
function keyedHash(secret: Buffer, text: string, bytes = HASH_BYTES): string {
  const length = Buffer.byteLength(text);
  const input = Buffer.allocUnsafe(secret.length + length);
  secret.copy(input);
  input.write(text, secret.length);
  return hash('sha512-256', input, 'base64url').slice(0, (bytes / 3) * 4);
}
