import { createHmac, createSecretKey, type KeyObject } from 'node:crypto';
import type { ItemNaming } from '@epitaph/core/vault/body-sealer.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';

const PARTITION_HASH_BYTES = 6;
const ITEM_HASH_BYTES = 15;
const PARTITION_CACHE_SIZE = 10_000;

/**
 * Names an item's streams by HMAC-SHA-256 under the container's secret: 6 bytes of its partition key, so that a
 * partition's streams lie together, then 15 bytes of partition key and id, which make it unique.
 */
export class HashedItemNaming implements ItemNaming {
  readonly #vault: Pick<KeyVault, 'containerSecret'>;
  readonly #secrets = new Map<string, KeyObject>();
  readonly #partitions = new Map<string, string>();

  constructor(vault: Pick<KeyVault, 'containerSecret'>) {
    this.#vault = vault;
  }

  itemStreamPrefix(containerRid: string, partitionKey: string, id: string): string | Promise<string> {
    const secret = this.#secrets.get(containerRid);
    if (secret !== undefined) return this.#name(secret, containerRid, partitionKey, id);
    return this.#vault.containerSecret(containerRid).then((bytes) => {
      const loaded = createSecretKey(bytes);
      this.#secrets.set(containerRid, loaded);
      return this.#name(loaded, containerRid, partitionKey, id);
    });
  }

  #name(secret: KeyObject, containerRid: string, partitionKey: string, id: string): string {
    const cacheKey = `${containerRid} ${partitionKey}`;
    let partition = this.#partitions.get(cacheKey);
    if (partition === undefined) {
      const digest = createHmac('sha256', secret).update(`partition ${partitionKey}`).digest();
      partition = digest.subarray(0, PARTITION_HASH_BYTES).toString('base64url');
      if (this.#partitions.size >= PARTITION_CACHE_SIZE) this.#partitions.clear();
      this.#partitions.set(cacheKey, partition);
    }
    // The key is JSON and so never has a raw line break: the pair can't be read two ways.
    const digest = createHmac('sha256', secret).update(`${partitionKey}\n${id}`).digest();
    return `item-${containerRid}.${partition}${digest.subarray(0, ITEM_HASH_BYTES).toString('base64url')}`;
  }
}
