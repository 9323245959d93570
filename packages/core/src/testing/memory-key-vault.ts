import { invariant } from '../invariant.ts';
import { parseItemStream } from '../item/stream-name.ts';
import { SealBroken, type BodySealer, type GrowingDigest } from '../vault/body-sealer.ts';
import {
  type ContainerFloors,
  covers,
  isFloorToSet,
  isOfAnother,
  type SetFloorOptions,
  destroyedUnder,
  type DestroyOutcome,
  type DestroyRequest,
  type FloorKind,
  floorUntil,
  type KeyLookup,
  type KeyVault,
  type LifeKey,
  type NewLifeKey,
  type VaultHold,
} from '../vault/key-vault.ts';
import { growingSha256 } from './ledger.ts';
import { sha256, sha256Base64url } from './sha256.ts';

/** The contents of a {@link MemoryKeyVault}. A second vault over the same contents is the first one reopened. */
export interface MemoryVaultContents {
  nextKeyId: number;
  /** The secret is null when the key was destroyed. */
  readonly keys: Map<number, { readonly stream: string; secret: Uint8Array | null }>;
  readonly holds: Map<string, VaultHold>;
  readonly floors: Map<string, ContainerFloors>;
  readonly secrets: Map<string, Uint8Array>;
}

function emptyVault(): MemoryVaultContents {
  return { nextKeyId: 1, keys: new Map(), holds: new Map(), floors: new Map(), secrets: new Map() };
}

interface MemoryLifeKey extends LifeKey {
  readonly secret: Uint8Array;
}

/** The key vault in memory, only for tests and simulations: it wraps no keys, and its secrets can be guessed. */
export class MemoryKeyVault implements KeyVault {
  readonly contents: MemoryVaultContents;
  #closed = false;

  constructor(contents: MemoryVaultContents = emptyVault()) {
    this.contents = contents;
  }

  createKey(stream: string): NewLifeKey {
    invariant(!this.#closed, 'a closed vault gives no keys');
    const keyId = this.contents.nextKeyId++;
    const secret = sha256(utf8(`key ${keyId} of ${stream}`));
    this.contents.keys.set(keyId, { stream, secret });
    const key: MemoryLifeKey = { keyId, secret };
    return { key, stored: Promise.resolve() };
  }

  findKey(keyId: number, stream: string): KeyLookup {
    const kept = this.contents.keys.get(keyId);
    if (kept === undefined || kept.stream !== stream) return { status: 'unknown' };
    if (kept.secret === null) return { status: 'destroyed' };
    const key: MemoryLifeKey = { keyId, secret: kept.secret };
    return { status: 'there', key };
  }

  async destroyKeys(requests: readonly DestroyRequest[]): Promise<DestroyOutcome[]> {
    return requests.map((request) => this.#destroy(request));
  }

  #destroy(request: DestroyRequest): DestroyOutcome {
    const { keyId, stream } = request;
    const kept = this.contents.keys.get(keyId);
    if (kept === undefined || kept.stream !== stream) return { kind: 'unknown' };
    if (kept.secret === null) return { kind: 'already-destroyed' };
    const holds = this.#holdsOn(stream);
    const floors = this.contents.floors.get(parseItemStream(stream)?.containerRid ?? '') ?? {};
    const floorUntilMs = floorUntil(floors, request);
    if (holds.length > 0 || floorUntilMs !== null) return { kind: 'refused', holds, floorUntilMs };
    kept.secret = null;
    return destroyedUnder(floors);
  }

  async placeHold(hold: VaultHold, { isNew = false }: { readonly isNew?: boolean } = {}): Promise<boolean> {
    const standing = this.contents.holds.get(hold.holdId);
    if (isNew && standing !== undefined && isOfAnother(standing, hold)) return false;
    this.contents.holds.set(hold.holdId, hold);
    return true;
  }

  async releaseHold(holdId: string, { placedAtMs }: { readonly placedAtMs?: number | undefined } = {}): Promise<void> {
    if (placedAtMs !== undefined && this.contents.holds.get(holdId)?.placedAtMs !== placedAtMs) return;
    this.contents.holds.delete(holdId);
  }

  holds(containerRid?: string): VaultHold[] {
    return [...this.contents.holds.values()].filter(
      (hold) => containerRid === undefined || hold.containerRid === containerRid,
    );
  }

  holdsOn(streams: readonly string[]): string[][] {
    return streams.map((stream) => this.#holdsOn(stream));
  }

  #holdsOn(stream: string): string[] {
    return [...this.contents.holds.values()].filter(({ scope }) => covers(scope, stream)).map((hold) => hold.holdId);
  }

  async setFloor(containerRid: string, kind: FloorKind, seconds: number, options: SetFloorOptions = {}): Promise<void> {
    const { [kind]: current = 0, ...others } = this.contents.floors.get(containerRid) ?? {};
    if (!isFloorToSet(current, seconds, options)) return;
    const floors = seconds > 0 ? { ...others, [kind]: seconds } : others;
    if (Object.keys(floors).length > 0) this.contents.floors.set(containerRid, floors);
    else this.contents.floors.delete(containerRid);
  }

  floors(): ReadonlyMap<string, ContainerFloors> {
    return new Map(this.contents.floors);
  }

  async containerSecret(containerRid: string): Promise<Uint8Array> {
    let secret = this.contents.secrets.get(containerRid);
    if (secret === undefined) {
      secret = sha256(utf8(`secret of ${containerRid}`));
      this.contents.secrets.set(containerRid, secret);
    }
    return secret;
  }

  async close(): Promise<void> {
    this.#closed = true;
  }
}

const NONCE_BYTES = 8;
const TAG_BYTES = 32;

/**
 * A sealer that only pretends: it hides nothing. It checks key, stream, revision and bytes as strictly as a real one,
 * and gives the same result in each run.
 */
export class ToyBodySealer implements BodySealer {
  #sealed = 0;

  seal(key: LifeKey, stream: string, revision: number, plain: Uint8Array | string): Uint8Array {
    const content = typeof plain === 'string' ? utf8(plain) : plain;
    const sealed = new Uint8Array(NONCE_BYTES + content.length + TAG_BYTES);
    const nonce = sealed.subarray(0, NONCE_BYTES);
    new DataView(sealed.buffer).setFloat64(0, ++this.#sealed);
    sealed.set(mixed(secretOf(key), nonce, content), NONCE_BYTES);
    sealed.set(tagOf(key, stream, revision, sealed.subarray(0, -TAG_BYTES)), sealed.length - TAG_BYTES);
    return sealed;
  }

  open(key: LifeKey, stream: string, revision: number, sealed: Uint8Array): Uint8Array {
    const tag = tagOf(key, stream, revision, sealed.subarray(0, -TAG_BYTES));
    if (sealed.length < NONCE_BYTES + TAG_BYTES || !tag.every((byte, index) => byte === sealed.at(index - TAG_BYTES))) {
      throw new SealBroken(`a body of ${stream} at revision ${revision} does not open`);
    }
    return mixed(secretOf(key), sealed.subarray(0, NONCE_BYTES), sealed.subarray(NONCE_BYTES, -TAG_BYTES));
  }

  digest(sealed: Uint8Array): string {
    return sha256Base64url(sealed);
  }

  beginDigest(): GrowingDigest {
    return growingSha256();
  }
}

function secretOf(key: LifeKey): Uint8Array {
  invariant('secret' in key && key.secret instanceof Uint8Array, 'a memory sealer takes the keys of a memory vault');
  return key.secret;
}

/** The content combined with bytes that depend on key and nonce. Applied twice, it returns the content. */
function mixed(secret: Uint8Array, nonce: Uint8Array, content: Uint8Array): Uint8Array {
  const pad = sha256(Uint8Array.from([...secret, ...nonce]));
  return content.map((byte, index) => byte ^ pad[index % 32]! ^ (index >> 5));
}

function tagOf(key: LifeKey, stream: string, revision: number, content: Uint8Array): Uint8Array {
  const place = utf8(JSON.stringify([stream, revision]));
  const whole = new Uint8Array(32 + 4 + place.length + content.length);
  whole.set(secretOf(key));
  new DataView(whole.buffer).setUint32(32, place.length);
  whole.set(place, 36);
  whole.set(content, 36 + place.length);
  return sha256(whole);
}

function utf8(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
