import { finite, isObject } from '../values/values.ts';
import type { Value } from '../values/values.ts';
import { pure } from './builtin.ts';
import type { BuiltIns } from './builtin.ts';

function asVector(value: Value): number[] | undefined {
  if (!Array.isArray(value) || value.length === 0) return undefined;
  return value.every((item) => typeof item === 'number') ? value : undefined;
}

function dotProduct(a: readonly number[], b: readonly number[]): number {
  let sum = 0;
  for (let index = 0; index < a.length; index += 1) sum += (a[index] as number) * (b[index] as number);
  return sum;
}

function euclidean(a: readonly number[], b: readonly number[]): number {
  let sum = 0;
  for (let index = 0; index < a.length; index += 1) sum += ((a[index] as number) - (b[index] as number)) ** 2;
  return Math.sqrt(sum);
}

/**
 * VectorDistance(a, b[, bruteForce[, { distanceFunction, … }]]): the similarity for cosine, which is the default, and for dot product;
 * the distance for euclidean. The result is always exact, so the third argument has no effect.
 */
function distance(first: Value, second: Value, bruteForce: Value, options: Value): Value {
  const a = asVector(first);
  const b = asVector(second);
  if (a === undefined || b === undefined || a.length !== b.length) return undefined;
  if (bruteForce !== undefined && typeof bruteForce !== 'boolean') return undefined;
  const name = (isObject(options) ? options['distanceFunction'] : undefined) ?? 'cosine';
  switch (typeof name === 'string' ? name.toLowerCase() : '') {
    case 'cosine':
      return finite(dotProduct(a, b) / Math.sqrt(dotProduct(a, a) * dotProduct(b, b)));
    case 'dotproduct':
      return finite(dotProduct(a, b));
    case 'euclidean':
      return finite(euclidean(a, b));
    default:
      return undefined;
  }
}

export const vectorFunctions: BuiltIns = { VECTORDISTANCE: pure(2, 4, distance) };
