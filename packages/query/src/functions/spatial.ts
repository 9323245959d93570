import { queryError } from '../errors.ts';
import { finite, isObject } from '../values.ts';
import type { Json, Value } from '../values.ts';
import { pure } from './builtin.ts';
import type { BuiltIns } from './builtin.ts';

/** Longitude and latitude in degrees, as GeoJSON writes them. */
type Position = readonly [number, number];

/** A geometry taken apart: what lies inside its polygons, its lines, and its single points. */
interface Shape {
  readonly points: readonly Position[];
  readonly lines: readonly (readonly Position[])[];
  /** Each polygon is an outer ring followed by its holes. */
  readonly polygons: readonly (readonly (readonly Position[])[])[];
}

/** Radius in metres of the sphere of the same surface as the earth. Cosmos DB uses the ellipsoid: up to 0.5 % apart. */
const EARTH_RADIUS_METRES = 6_371_008.8;

const MAX_COMPARISONS = 10_000_000;

const toRadians = (degrees: number): number => (degrees * Math.PI) / 180;

function readPosition(value: Value): Position | undefined {
  if (!Array.isArray(value) || value.length < 2) return undefined;
  const [longitude, latitude] = value;
  if (typeof longitude !== 'number' || typeof latitude !== 'number') return undefined;
  return Math.abs(longitude) <= 180 && Math.abs(latitude) <= 90 ? [longitude, latitude] : undefined;
}

function readAll<T>(value: Value, read: (item: Json) => T | undefined): T[] | undefined {
  if (!Array.isArray(value)) return undefined;
  const result: T[] = [];
  for (const item of value) {
    const found = read(item);
    if (found === undefined) return undefined;
    result.push(found);
  }
  return result;
}

function readLine(value: Value, atLeast: number): Position[] | undefined {
  const line = readAll(value, readPosition);
  return line !== undefined && line.length >= atLeast ? line : undefined;
}

function samePosition(a: Position | undefined, b: Position | undefined): boolean {
  return a !== undefined && b !== undefined && a[0] === b[0] && a[1] === b[1];
}

function readPolygon(value: Value): Position[][] | undefined {
  const rings = readAll(value, (ring) => {
    const line = readLine(ring, 4);
    return line !== undefined && samePosition(line[0], line.at(-1)) ? line : undefined;
  });
  return rings !== undefined && rings.length > 0 ? rings : undefined;
}

/** Reads GeoJSON; otherwise says what is wrong with it. */
function readShape(value: Value): Shape | string {
  if (!isObject(value)) return 'Input is not a GeoJSON object.';
  const { type, coordinates } = value;
  const empty = { points: [], lines: [], polygons: [] };
  switch (type) {
    case 'Point': {
      const point = readPosition(coordinates);
      return point === undefined
        ? 'A position needs a longitude between -180 and 180 degrees and a latitude between -90 and 90 degrees.'
        : { ...empty, points: [point] };
    }
    case 'MultiPoint': {
      const points = readLine(coordinates, 1);
      return points === undefined ? 'A MultiPoint needs valid positions.' : { ...empty, points };
    }
    case 'LineString': {
      const line = readLine(coordinates, 2);
      return line === undefined ? 'A LineString needs at least two valid positions.' : { ...empty, lines: [line] };
    }
    case 'MultiLineString': {
      const lines = readAll(coordinates, (line) => readLine(line, 2));
      return lines === undefined ? 'A LineString needs at least two valid positions.' : { ...empty, lines };
    }
    case 'Polygon': {
      const polygon = readPolygon(coordinates);
      return polygon === undefined ? POLYGON_FAULT : { ...empty, polygons: [polygon] };
    }
    case 'MultiPolygon': {
      const polygons = readAll(coordinates, readPolygon);
      return polygons === undefined ? POLYGON_FAULT : { ...empty, polygons };
    }
    default:
      return 'The type of the GeoJSON object is not known.';
  }
}

const POLYGON_FAULT =
  'The rings of a Polygon need at least four valid positions each, and the last has to be the first again.';

function shapeOf(value: Value): Shape | undefined {
  const shape = readShape(value);
  return typeof shape === 'string' ? undefined : shape;
}

function segmentsOf(shape: Shape): (readonly [Position, Position])[] {
  const segments: (readonly [Position, Position])[] = [];
  for (const line of [...shape.lines, ...shape.polygons.flat()]) {
    for (let index = 1; index < line.length; index += 1) {
      segments.push([line[index - 1] as Position, line[index] as Position]);
    }
  }
  return segments;
}

function positionsOf(shape: Shape): Position[] {
  return [...shape.points, ...shape.lines.flat(), ...shape.polygons.flat(2)];
}

/** Twice the area of a triangle, positive when it turns left. */
function turn(a: Position, b: Position, c: Position): number {
  return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
}

function isOnSegment(point: Position, [a, b]: readonly [Position, Position]): boolean {
  return (
    turn(a, b, point) === 0 &&
    point[0] >= Math.min(a[0], b[0]) &&
    point[0] <= Math.max(a[0], b[0]) &&
    point[1] >= Math.min(a[1], b[1]) &&
    point[1] <= Math.max(a[1], b[1])
  );
}

function cross(first: readonly [Position, Position], second: readonly [Position, Position]): boolean {
  const [a, b] = first;
  const [c, d] = second;
  if (
    Math.sign(turn(a, b, c)) * Math.sign(turn(a, b, d)) < 0 &&
    Math.sign(turn(c, d, a)) * Math.sign(turn(c, d, b)) < 0
  ) {
    return true;
  }
  return isOnSegment(c, first) || isOnSegment(d, first) || isOnSegment(a, second) || isOnSegment(b, second);
}

/** By how often a ray to the east crosses the rings, so that holes count as outside. The edge counts as inside. */
function isInPolygon(point: Position, rings: readonly (readonly Position[])[]): boolean {
  let inside = false;
  for (const ring of rings) {
    for (let index = 1; index < ring.length; index += 1) {
      const a = ring[index - 1] as Position;
      const b = ring[index] as Position;
      if (isOnSegment(point, [a, b])) return true;
      const crosses =
        a[1] > point[1] !== b[1] > point[1] && point[0] < ((b[0] - a[0]) * (point[1] - a[1])) / (b[1] - a[1]) + a[0];
      if (crosses) inside = !inside;
    }
  }
  return inside;
}

/** Shapes are compared edge by edge, so two outlines of a hundred thousand points each would take minutes. */
function assertComparable(a: Shape, b: Shape): void {
  if (positionsOf(a).length * positionsOf(b).length > MAX_COMPARISONS) {
    throw queryError('tooComplex', 'Two GeoJSON shapes have too many points to be compared.');
  }
}

function intersect(a: Shape, b: Shape): boolean {
  const touches = (one: Shape, other: Shape): boolean => {
    const segments = segmentsOf(other);
    return positionsOf(one).some(
      (point) =>
        other.polygons.some((polygon) => isInPolygon(point, polygon)) ||
        segments.some((segment) => isOnSegment(point, segment)) ||
        other.points.some((position) => samePosition(position, point)),
    );
  };
  if (touches(a, b) || touches(b, a)) return true;
  const segments = segmentsOf(b);
  return segmentsOf(a).some((first) => segments.some((second) => cross(first, second)));
}

/** Every position inside, and no edge that leaves and comes back: edges may touch the boundary but not cross it. */
function isWithin(inner: Shape, outer: Shape): boolean {
  const inside = (point: Position): boolean =>
    outer.polygons.some((polygon) => isInPolygon(point, polygon)) ||
    segmentsOf({ ...outer, polygons: [] }).some((segment) => isOnSegment(point, segment)) ||
    outer.points.some((position) => samePosition(position, point));
  if (!positionsOf(inner).every(inside)) return false;
  const edges = segmentsOf({ ...outer, lines: [] });
  return segmentsOf(inner).every(
    ([a, b]) =>
      inside([(a[0] + b[0]) / 2, (a[1] + b[1]) / 2]) &&
      !edges.some(([c, d]) => turn(a, b, c) * turn(a, b, d) < 0 && turn(c, d, a) * turn(c, d, b) < 0),
  );
}

function greatCircle(a: Position, b: Position): number {
  const latitudes = Math.sin(toRadians(b[1] - a[1]) / 2) ** 2;
  const longitudes = Math.sin(toRadians(b[0] - a[0]) / 2) ** 2;
  const h = latitudes + Math.cos(toRadians(a[1])) * Math.cos(toRadians(b[1])) * longitudes;
  return 2 * EARTH_RADIUS_METRES * Math.asin(Math.min(1, Math.sqrt(h)));
}

/** To the nearest point of a segment, found on the plane that touches the earth at the point. */
function toSegment(point: Position, [a, b]: readonly [Position, Position]): number {
  const scale = Math.cos(toRadians(point[1]));
  const x = (b[0] - a[0]) * scale;
  const y = b[1] - a[1];
  const length = x * x + y * y;
  const along = length === 0 ? 0 : ((point[0] - a[0]) * scale * x + (point[1] - a[1]) * y) / length;
  const share = Math.min(1, Math.max(0, along));
  return greatCircle(point, [a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])]);
}

function distance(a: Shape, b: Shape): number {
  if (intersect(a, b)) return 0;
  let nearest = Number.POSITIVE_INFINITY;
  for (const [one, other] of [
    [a, b],
    [b, a],
  ] as const) {
    const segments = segmentsOf(other);
    for (const point of positionsOf(one)) {
      for (const position of other.points) nearest = Math.min(nearest, greatCircle(point, position));
      for (const segment of segments) nearest = Math.min(nearest, toSegment(point, segment));
    }
  }
  return nearest;
}

/** The area of a ring on the sphere, in square metres. */
function ringArea(ring: readonly Position[]): number {
  let sum = 0;
  for (let index = 1; index < ring.length; index += 1) {
    const a = ring[index - 1] as Position;
    const b = ring[index] as Position;
    sum += toRadians(b[0] - a[0]) * (2 + Math.sin(toRadians(a[1])) + Math.sin(toRadians(b[1])));
  }
  return Math.abs((sum * EARTH_RADIUS_METRES ** 2) / 2);
}

function area(shape: Shape): number {
  return shape.polygons
    .map(([outer = [], ...holes]) => ringArea(outer) - holes.map(ringArea).reduce((sum, hole) => sum + hole, 0))
    .reduce((sum, one) => sum + one, 0);
}

function ofShapes(compute: (a: Shape, b: Shape) => Value) {
  return pure(2, 2, (first, second) => {
    const a = shapeOf(first);
    const b = shapeOf(second);
    if (a === undefined || b === undefined) return undefined;
    assertComparable(a, b);
    return compute(a, b);
  });
}

/**
 * Spatial functions over GeoJSON. Inside and crossing are decided on the plane of longitude and latitude, distances
 * and areas on a sphere; what spans the 180th meridian or a pole isn't handled.
 */
export const spatialFunctions: BuiltIns = {
  ST_AREA: pure(1, 1, (value) => {
    const shape = shapeOf(value);
    return shape === undefined ? undefined : finite(area(shape));
  }),
  ST_DISTANCE: ofShapes((a, b) => finite(distance(a, b))),
  ST_INTERSECTS: ofShapes(intersect),
  ST_ISVALID: pure(1, 1, (value) => (value === undefined ? undefined : typeof readShape(value) !== 'string')),
  ST_ISVALIDDETAILED: pure(1, 1, (value) => {
    if (value === undefined) return undefined;
    const shape = readShape(value);
    return typeof shape === 'string' ? { valid: false, reason: shape } : { valid: true };
  }),
  ST_WITHIN: ofShapes(isWithin),
};
