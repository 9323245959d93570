import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { decodeBinaryJson } from '@epitaph/api/cosmos/binary-json.ts';
import { WireError } from '@epitaph/api/cosmos/errors.ts';
import { jsonText } from '@epitaph/query';
import { call, DOCS, keyHeader, shop } from './support/client.ts';

const DEPTH = 128;
const decode = (...bytes: readonly number[]) => decodeBinaryJson(Buffer.from([0x80, ...bytes]), DEPTH);

const refusal = (run: () => unknown): WireError => {
  try {
    run();
  } catch (error) {
    if (error instanceof WireError) return error;
    throw error;
  }
  throw new Error('it was taken');
};

describe('binary JSON', () => {
  // As written by Microsoft.Azure.Cosmos 3.64.0, with every type marker that it uses.
  const written: readonly (readonly [text: string, base64: string])[] = [
    ['0', 'gAA='],
    ['31', 'gB8='],
    ['32', 'gMgg'],
    ['256', 'gMkAAQ=='],
    ['-32769', 'gMr/f///'],
    ['2147483648', 'gMsAAACAAAAAAA=='],
    ['1.5', 'gMwAAAAAAAD4Pw=='],
    ['null', 'gNA='],
    ['true', 'gNI='],
    ['false', 'gNE='],
    ['""', 'gIA='],
    ['"\uFFFD"', 'gIPvv70='],
    ['"id"', 'gCw='],
    ['"_etag"', 'gCQ='],
    ['"Point"', 'gDg='],
    [
      '"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"',
      'gHs/eAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAACA',
    ],
    [
      '"éééééééééééééééééééééééééééééééééééééééé"',
      'gMBQw6nDqcOpw6nDqcOpw6nDqcOpw6nDqcOpw6nDqcOpw6nDqcOpw6nDqcOpw6nDqcOpw6nDqcOpw6nDqcOpw6nDqcOpw6nDqcOpw6nDqcOpw6k=',
    ],
    ['"3f2504e0-4f89-11d3-9a0c-0305e82c3301"', 'gHXzUkAO9JgRPanAMFCOwjMQ'],
    ['"3F2504E0-4F89-11D3-9A0C-0305E82C3301"', 'gHbzUkAO9JgRPanAMFCOwjMQ'],
    ['"\\"3f2504e0-4f89-11d3-9a0c-0305e82c3301\\""', 'gHfzUkAO9JgRPanAMFCOwjMQ'],
    ['"0123456789abcdef0123456789abcdef"', 'gHggEDJUdpi63P4QMlR2mLrc/g=='],
    ['"0123456789ABCDEF0123"', 'gHkUEDJUdpi63P4QMg=='],
    ['"2026-11-22T09:15:47.1234567Z"', 'gHocE3MswjMeumJb2DJUdvg='],
    [
      '"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw=="',
      'gH5YwWBxGLxHjcLzODmMvpnEIOxJxAelRXSzapRmsUfhOnzE38lINO6cnCbVymG1rcyf4cv0fM6c0uxNYjHf1EdjTvWY9qS+b1AibAW993o=',
    ],
    [
      '"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw=="',
      'gHEWAgABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4fICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=',
    ],
    [
      '"vr_AwcLDxMXGx8jJysvMzc7P0NHS09TV1tfY2drb3N3e3-Dh4uPk5ebn6Onq6-zt7u_w8fLz9PX29_j5-vv8_f7_"',
      'gHMWAL6/wMHCw8TFxsfIycrLzM3Oz9DR0tPU1dbX2Nna29zd3t/g4eLj5OXm5+jp6uvs7e7v8PHy8/T19vf4+fr7/P3+/w==',
    ],
    ['[]', 'gOA='],
    ['{}', 'gOg='],
    ['[1]', 'gOEB'],
    ['{"a":1}', 'gOmBYQE='],
    ['[1,2,3]', 'gOIDAQID'],
    ['[-1,-2,100]', 'gPDYA//+ZA=='],
    ['{"__proto__":{"x":1},"constructor":2}', 'gOobiV9fcHJvdG9fX+mBeAGLY29uc3RydWN0b3IC'],
    [
      '"gxcwqdxuduajwcnipoijrrbfhpfeewfwovmuaembfyufjgueebqergmydnm"',
      'gHw7YeYKC8elg4JkRUPPoRRjKOcVQmyxrjIKCAsF05IMJSRAEg3Do7E=',
    ],
    ['"rHARFoyGFwzNEWlhTAvUjLugwHjtEOIjCxFcLwOmNfSWJL"', 'gH0uQfEBRIWLG4WdN4S1nhNQU+lCm/aRzoSDpMJdiIvtsE0pWcny'],
    ['[[1,2],[3,4]]', 'gOII4gIBAuICAwQ='],
    [
      '{"id":"item","name":"a name that is long enough","other":"a name that is long enough","list":["a name that is long enough","a name that is long enough","a name that is long enough","a name that is long enough","a name that is long enough"],"nested":{"deep":{"deeper":[{},[],null,{"a":[true,false]}]}}}',
      'gOpcLIRpdGVtNZphIG5hbWUgdGhhdCBpcyBsb25nIGVub3VnaIVvdGhlcsMKhGxpc3TiCsMKwwrDCsMKwwqGbmVzdGVk6YRkZWVw6YZkZWVwZXLiCujg0OmBYeIC0tE=',
    ],
    [
      '{"id":"3f2504e0-4f89-11d3-9a0c-0305e82c3301","pk":"3f2504e0-4f89-11d3-9a0c-0305e82c3301","location":{"type":"Point","coordinates":[1.25,2]},"when":["2026-11-22T09:15:47Z","2026-11-22T09:15:47Z","2026-11-22T09:15:47Z"]}',
      'gOprLHXzUkAO9JgRPanAMFCOwjMQgnBrdfNSQA70mBE9qcAwUI7CMxCIbG9jYXRpb27qDzs4KeIKzAAAAAAAAPQ/AoR3aGVu4iR6FBNzLMIzHrpiW/h6FBNzLMIzHrpiW/h6FBNzLMIzHrpiW/g=',
    ],
  ];
  test.each(written)('%s is decoded as the .NET client has encoded it', (text, base64) => {
    expect(decodeBinaryJson(Buffer.from(base64, 'base64'), DEPTH)).toEqual(JSON.parse(text));
  });

  test('keeps the order of names, also of names that are integers', () => {
    expect(jsonText(decode(0xea, 6, 0x81, 0x62, 1, 0x81, 0x32, 2))).toBe('{"b":1,"2":2}');
  });

  test('that is cut short anywhere, or continues after its end, is refused with 400', () => {
    for (const [, base64] of written) {
      const whole = Buffer.from(base64, 'base64');
      for (let length = 1; length < whole.length; length += 1) {
        expect(refusal(() => decodeBinaryJson(whole.subarray(0, length), DEPTH)).shape.status).toBe(400);
      }
      expect(refusal(() => decodeBinaryJson(Buffer.concat([whole, whole]), DEPTH)).shape.status).toBe(400);
    }
  });

  test('of any bytes is a value or a refusal', () => {
    const bytes = fc.array(fc.oneof(fc.nat(255), fc.integer({ min: 0xc0, max: 0xf3 })), { maxLength: 60 });
    fc.assert(
      fc.property(bytes, (sent) => {
        try {
          decode(...sent);
        } catch (error) {
          expect(error).toBeInstanceOf(WireError);
        }
      }),
      { numRuns: 5_000 },
    );
  });

  test('can have special names, such as __proto__, among its names', () => {
    const value = decode(0xea, 12, 0x89, ...Buffer.from('__proto__'), 0xe1, 0x01) as object;
    expect(Object.keys(value)).toEqual(['__proto__']);
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
  });

  test.each([
    ['a GUID that is no string', [0xd3, ...Array<number>(16).fill(1)]],
    ['bytes', [0xdd, 1, 7]],
    ['a word of a user’s dictionary', [0x40]],
    ['a string in another encoding than UTF-8', [0x81, 0xfc]],
    ['a place that has a place', [0xe2, 4, 0xc3, 3, 0xc3, 3]],
    ['a place that has no string', [0xe2, 3, 0x01, 0xc3, 3]],
    ['a place beyond the end', [0xc3, 200]],
    ['a name that is no string', [0xe9, 0x01, 0x01]],
    ['a length that cuts a value in two', [0xe2, 2, 0xc9, 1, 1]],
    ['as many arrays of no numbers as may be', [0xf3, 0xf1, 0xd8, 0, 0, 255, 255]],
  ])('with %s is refused with 400', (_what, bytes) => {
    expect(refusal(() => decode(...bytes)).shape.status).toBe(400);
  });

  test('can’t be nested deeper than text', () => {
    const nested = (depth: number) => [...Array<number>(depth).fill(0xe1), 0x01];
    expect(decode(...nested(DEPTH))).toBeDefined();
    expect(refusal(() => decode(...nested(DEPTH + 1))).message).toContain('nested too deeply');
    const deep = Buffer.alloc(1_000_000, 0xe1).fill(0x80, 0, 1);
    expect(refusal(() => decodeBinaryJson(deep, DEPTH)).message).toContain('nested too deeply');
  });

  test('can’t be made much larger by references to a long string', () => {
    const text = Buffer.alloc(60_000, 'x');
    const length = (bytes: number, width: number) => [...Buffer.from(Uint32Array.of(bytes).buffer).subarray(0, width)];
    const again = Array.from({ length: 1_000 }, () => [0xc3, 6]).flat();
    const content = [0xc1, ...length(text.length, 2), ...text, ...again];
    const { shape } = refusal(() => decode(0xe4, ...length(content.length, 4), ...content));
    expect(shape.status).toBe(413);
  });

  test('creates the same item as text', async () => {
    const app = await shop();
    const body = Buffer.from([0x80, 0xea, 13, 0x2c, 0x82, ...Buffer.from('o1'), 0x88, ...Buffer.from('customer')]);
    const sent = Buffer.concat([body, Buffer.from([0x83, ...Buffer.from('ann')])]);
    sent[2] = sent.length - 3;
    const created = await call(app, 'POST', DOCS, { headers: keyHeader('ann'), body: sent });
    expect(created.status).toBe(201);
    expect(created.json).toMatchObject({ id: 'o1', customer: 'ann' });
    expect((await call(app, 'GET', `${DOCS}/o1`, { headers: keyHeader('ann') })).json).toEqual(created.json);
  });
});
