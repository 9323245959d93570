import { createHmac } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Hmac } from '@epitaph/api/http/hmac.ts';

/** @source RFC 4231, test cases 1, 2 and 6 */
const VECTORS = [
  [Buffer.alloc(20, 0x0b), 'Hi There', 'b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7'],
  [
    Buffer.from('Jefe'),
    'what do ya want for nothing?',
    '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843',
  ],
  [
    Buffer.alloc(131, 0xaa),
    'Test Using Larger Than Block-Size Key - Hash Key First',
    '60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54',
  ],
] as const;

describe('an HMAC', () => {
  test.each(VECTORS)('has the value of the standard (%#)', (key, text, hex) => {
    expect(new Hmac(key).sign(text).toString('hex')).toBe(hex);
  });

  test('has the runtime’s value for any text, also for several texts with the same key', () => {
    const text = fc.string({ unit: fc.oneof(fc.string({ unit: 'binary' }), fc.constant('\uD800')), maxLength: 300 });
    fc.assert(
      fc.property(
        fc.uint8Array({ minLength: 1, maxLength: 140 }),
        fc.array(text, { maxLength: 5 }),
        (key, different) => {
          const hmac = new Hmac(key);
          for (const each of different.flatMap((one) => [one, one])) {
            expect(hmac.sign(each)).toEqual(createHmac('sha256', key).update(each).digest());
          }
        },
      ),
    );
  });
});
