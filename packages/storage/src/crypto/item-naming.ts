import { hash } from 'node:crypto';
import { uniqueKeyStream } from '@epitaph/core/unique-key/stream-name.ts';
import type { ItemNaming } from '@epitaph/core/vault/body-sealer.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';

const PARTITION_HASH_BYTES = 6;
const ITEM_HASH_BYTES = 15;
/** Two values of one hash could not both be had: so long that this doesn't happen. */
const UNIQUE_KEY_HASH_BYTES = 21;
const PARTITION_CACHE_SIZE = 10_000;

/**
 * Names an item's streams by a keyed hash under the container's secret: 6 bytes of its partition key, so that a
 * partition's streams lie together, then 15 bytes of partition key and id, which make it unique. The hash is
 * SHA-512/256 over secret and text: its hidden state rules out the length extension for which SHA-256 needs HMAC,
 * and one pass takes a third of HMAC's time.
 */
export class HashedItemNaming implements ItemNaming {
  readonly #vault: Pick<KeyVault, 'containerSecret'>;
  readonly #secrets = new Map<string, Buffer>();
  readonly #partitions = new Map<string, string>();

  constructor(vault: Pick<KeyVault, 'containerSecret'>) {
    this.#vault = vault;
  }

  itemStreamPrefix(containerRid: string, partitionKey: string, id: string): string | Promise<string> {
    const secret = this.#secrets.get(containerRid);
    if (secret !== undefined) return this.#name(secret, containerRid, partitionKey, id);
    return this.#load(containerRid).then((loaded) => this.#name(loaded, containerRid, partitionKey, id));
  }

  uniqueKeyStream(containerRid: string, partitionKey: string, value: string): string | Promise<string> {
    const name = (secret: Buffer) => {
      const digest = keyedHash(secret, `unique ${partitionKey}\n${value}`);
      return uniqueKeyStream(containerRid, digest.subarray(0, UNIQUE_KEY_HASH_BYTES).toString('base64url'));
    };
    const secret = this.#secrets.get(containerRid);
    return secret === undefined ? this.#load(containerRid).then(name) : name(secret);
  }

  async #load(containerRid: string): Promise<Buffer> {
    const loaded = Buffer.from(await this.#vault.containerSecret(containerRid));
    this.#secrets.set(containerRid, loaded);
    return loaded;
  }

  #name(secret: Buffer, containerRid: string, partitionKey: string, id: string): string {
    const cacheKey = `${containerRid} ${partitionKey}`;
    let partition = this.#partitions.get(cacheKey);
    if (partition === undefined) {
      const digest = keyedHash(secret, `partition ${partitionKey}`);
      partition = digest.subarray(0, PARTITION_HASH_BYTES).toString('base64url');
      if (this.#partitions.size >= PARTITION_CACHE_SIZE) this.#partitions.clear();
      this.#partitions.set(cacheKey, partition);
    }
    // The key is JSON and so never has a raw line break: the pair can't be read two ways.
    const digest = keyedHash(secret, `item ${partitionKey}\n${id}`);
    return `item-${containerRid}.${partition}${digest.subarray(0, ITEM_HASH_BYTES).toString('base64url')}`;
  }
}

function keyedHash(secret: Buffer, text: string): Buffer {
  const length = Buffer.byteLength(text);
  const input = Buffer.allocUnsafe(secret.length + length);
  secret.copy(input);
  input.write(text, secret.length);
  return hash('sha512-256', input, 'buffer');
}
