import { createHash, generateKeyPairSync } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import {
  base64,
  type Checkpoint,
  checkpointText,
  fromBase64,
  openCheckpoint,
  readVerifierKey,
  signedCheckpoint,
  verifierKeyText,
} from '@epitaph/core/proof/checkpoint.ts';
import { factLeaf } from '@epitaph/core/proof/leaf.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { canonicalJson } from '@epitaph/core/canonical-json.ts';
import { checkpointCryptography, ProofSigner } from '@epitaph/storage/crypto/proof-signer.ts';

/** The example of C2SP's signed-note, from the tests of Go's golang.org/x/mod/sumdb/note. */
const VERIFIER = 'PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW';

describe('verifier keys', () => {
  it('are read and written in the format of signed-note', () => {
    const key = readVerifierKey(VERIFIER, checkpointCryptography)!;
    expect(key.name).toBe('PeterNeumann');
    expect(verifierKeyText(key, checkpointCryptography)).toBe(VERIFIER);
  });
  it('with another hash, of another kind or cut short are refused', () => {
    for (const text of [
      VERIFIER.replace('c74f20a3', 'c74f20a4'),
      VERIFIER.replace('+ARpc', '+AhpC'),
      VERIFIER.slice(0, -2),
      'PeterNeumann',
      '',
    ]) {
      expect(readVerifierKey(text, checkpointCryptography)).toBe(undefined);
    }
  });
});

describe('a signed note', () => {
  const key = readVerifierKey(VERIFIER, checkpointCryptography)!;
  const NOTE =
    'If you think cryptography is the answer to your problem,\n' +
    "then you don't know what your problem is.\n" +
    '\n' +
    '— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n';
  it('of another signer opens with their key if it is a checkpoint, which this one is not', () => {
    // The signature is good, so it is the text that is refused.
    const [text, line] = NOTE.split('\n\n') as [string, string];
    const signature = fromBase64(line.trim().split(' ')[2]!)!.subarray(4);
    expect(checkpointCryptography.verify(key.publicKey, Buffer.from(`${text}\n`), signature)).toBe(true);
    expect(openCheckpoint(NOTE, key, checkpointCryptography)).toBe(undefined);
  });
});

describe('a checkpoint', () => {
  const signer = ProofSigner.fromSeed(Buffer.alloc(32, 1));
  const other = ProofSigner.fromSeed(Buffer.alloc(32, 2));
  const CHECKPOINT: Checkpoint = { origin: 'log', size: 12, root: Uint8Array.from(Buffer.alloc(32, 3)) };
  const TEXT = checkpointText(CHECKPOINT);
  /** Any text with a good signature. */
  const signed = (text: string): string => {
    const note = signedCheckpoint(CHECKPOINT, signer.key, signer.sign(text), checkpointCryptography);
    return note.replace(TEXT, text);
  };
  const opened = (note: string) => openCheckpoint(note, signer.key, checkpointCryptography);
  const NOTE = signed(TEXT);
  const LINE = NOTE.slice(TEXT.length + 1);

  it('opens as it was signed, whoever else has signed it', () => {
    expect(opened(NOTE)).toEqual(CHECKPOINT);
    const witness = LINE.replace(signer.key.name, 'witness');
    const others = signedCheckpoint(CHECKPOINT, other.key, other.sign(TEXT), checkpointCryptography);
    expect(opened(`${TEXT}\n${witness}no signature\n${others.slice(TEXT.length + 1)}${LINE}`)).toEqual(CHECKPOINT);
    expect(opened(signed('log\n0\n' + TEXT.split('\n')[2]! + '\n'))).toMatchObject({ size: 0 });
  });

  it('does not open with anything that is not its signature', () => {
    const signature = Buffer.from(fromBase64(LINE.trim().split(' ')[2]!)!);
    const line = (bytes: Uint8Array, name = signer.key.name) => `— ${name} ${base64(bytes)}\n`;
    expect(opened(`${TEXT}\n${line(signature)}`)).toEqual(CHECKPOINT);
    const [hash, rest] = [signature.subarray(0, 4), signature.subarray(4)];
    for (const lines of [
      '',
      line(signature, 'witness'),
      line(signature.subarray(0, -1)),
      line(Buffer.concat([signature, Buffer.of(0)])),
      line(Buffer.concat([Buffer.alloc(4), rest])),
      line(Buffer.concat([hash.subarray(0, 3), Buffer.of(hash[3]! ^ 1), rest])),
      line(Buffer.concat([hash, Buffer.alloc(64)])),
      line(Buffer.concat([hash, other.sign(TEXT)])),
      line(Buffer.concat([hash, signer.sign(`${TEXT}\n`)])),
      line(signature).replace('— ', ''),
      line(signature).replace('\n', '*\n'),
    ]) {
      expect([lines, opened(`${TEXT}\n${lines}`)]).toEqual([lines, undefined]);
    }
    for (const changed of [
      NOTE.replace('\n12\n', '\n13\n'),
      NOTE.replace('log\n', 'lag\n'),
      NOTE.replace('\nAw', '\nAg'),
      TEXT + LINE,
    ]) {
      expect([changed, opened(changed)]).toEqual([changed, undefined]);
    }
  });

  it('is refused with another text, even a signed one', () => {
    const root = TEXT.split('\n')[2]!;
    for (const text of [
      `\n12\n${root}\n`,
      `log\n012\n${root}\n`,
      `log\n-12\n${root}\n`,
      `log\n1e2\n${root}\n`,
      `log\n${'1'.repeat(17)}\n${root}\n`,
      `log\n12\n${base64(new Uint8Array(31))}\n`,
      `log\n12\n${root.slice(0, -1)}\n`,
      `log\n12\n${root}\nextension\n`,
      'log\n12\n',
      'log\n',
    ]) {
      expect([text, opened(signed(text))]).toEqual([text, undefined]);
    }
  });
});

describe('canonical JSON', () => {
  it('is the same text for equal values, whatever the order of properties', () => {
    expect(canonicalJson({ b: [1, { z: null, a: 'é"' }], a: 1e21, c: undefined })).toBe(
      '{"a":1e+21,"b":[1,{"a":"é\\"","z":null}]}',
    );
  });
  it('has its properties in the order of their characters, also names that are numbers or special to objects', () => {
    const value = JSON.parse('{"b":[{"x":1,"10":2,"9":3}],"a":{"__proto__":{"d":4,"c":5}},"-1":6,"a b":7}');
    expect(canonicalJson(value)).toBe('{"-1":6,"a":{"__proto__":{"c":5,"d":4}},"a b":7,"b":[{"10":2,"9":3,"x":1}]}');
  });
  it('differs for values that differ', () => {
    const hash = (value: unknown) => createHash('sha256').update(canonicalJson(value)).digest('hex');
    expect(hash({ a: [1, 2] })).not.toBe(hash({ a: [2, 1] }));
    expect(hash({ a: '1' })).not.toBe(hash({ a: 1 }));
  });
});

describe('a leaf', () => {
  const data = { id: 'o1', partitionKey: '["ann"]', cause: 'expired' };
  const leafOf = (stream: string) => factLeaf({ stream, data, position: 7 } as unknown as RecordedEvent);
  it('of an item leaves out its names, and of a container contains everything recorded', () => {
    expect(leafOf('item-Co1.hash.0').data).toEqual({ cause: 'expired' });
    expect(leafOf('container-Co1').data).toEqual(data);
    // The position in one particular log is not part of it.
    expect(leafOf('container-Co1')).not.toHaveProperty('position');
  });
});

describe('a signer', () => {
  it('from the same secret bytes is always the same', () => {
    // RFC 8032, section 7.1, test 1.
    const seed = Buffer.from('9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60', 'hex');
    const { key } = ProofSigner.fromSeed(seed);
    expect(Buffer.from(key.publicKey).toString('hex')).toBe(
      'd75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a',
    );
    expect(ProofSigner.fromSeed(seed).key).toEqual(key);
  });
  it('is read from the text that it was written to, and from no other', () => {
    const { signer, text } = ProofSigner.make();
    expect(ProofSigner.read(text)!.key).toEqual(signer.key);
    const made = JSON.parse(text) as { readonly name: string; readonly privateKey: string };
    const ofAnotherKind = generateKeyPairSync('x25519').privateKey.export({ format: 'der', type: 'pkcs8' });
    for (const changed of [
      { ...made, name: undefined },
      { ...made, privateKey: made.privateKey.slice(0, 20) },
      { ...made, privateKey: ofAnotherKind.toString('base64') },
    ]) {
      expect(ProofSigner.read(JSON.stringify(changed))).toBe(undefined);
    }
    expect(ProofSigner.read(text.slice(0, -2))).toBe(undefined);
  });
});
