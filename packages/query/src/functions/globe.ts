import { type Ring, type Segment, segmentsOfLine, type Surface } from './surface.ts';

/**
 * Straight up from a place on the ellipsoid, of length 1. Lines are great ellipses, which planes through the middle of
 * the earth cut out of it: in these directions, as in all that come from them by stretching, they are great circles.
 */
type Point = readonly [number, number, number];

/** The ellipsoid of WGS 84. */
const EQUATORIAL_RADIUS_METRES = 6_378_137;
const FLATTENING = 1 / 298.257_223_563;
const ECCENTRICITY_SQUARED = FLATTENING * (2 - FLATTENING);
/** In radians, less than a micrometre on the ground: what lies so close to a line lies on it. */
const TOLERANCE = 1e-13;
const WHOLE = 4 * Math.PI;
/** Beyond these the terms of the length of an ellipse are less than a micrometre. */
const ELLIPSE_TERMS = 5;

const radians = (degrees: number): number => (degrees * Math.PI) / 180;

const dot = (a: Point, b: Point): number => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const minus = (a: Point, b: Point): Point => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
const plus = (a: Point, b: Point): Point => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
const cross = (a: Point, b: Point): Point => [
  a[1] * b[2] - a[2] * b[1],
  a[2] * b[0] - a[0] * b[2],
  a[0] * b[1] - a[1] * b[0],
];
const length = (a: Point): number => Math.sqrt(dot(a, a));

function unit(a: Point): Point {
  // Of what is so short that its square is none, too: an edge may be.
  const by = Math.hypot(a[0], a[1], a[2]) || 1;
  return [a[0] / by, a[1] / by, a[2] / by];
}

/** To the left of whoever walks from a point to another, of any length; exact for close ones, too. */
const towardsLeft = (a: Point, b: Point): Point => cross(plus(a, b), minus(b, a));
/** The same of length 1; zero where the points are one or opposite. */
const leftOf = (a: Point, b: Point): Point => unit(towardsLeft(a, b));

/** Positive when a triangle turns left; six times the volume between it and the middle of the earth. */
const turn = (a: Point, b: Point, c: Point): number => dot(a, cross(minus(b, a), minus(c, a)));

const isSame = (a: Point, b: Point): boolean =>
  Math.abs(a[0] - b[0]) <= TOLERANCE && Math.abs(a[1] - b[1]) <= TOLERANCE && Math.abs(a[2] - b[2]) <= TOLERANCE;

const angle = (a: Point, b: Point): number => Math.atan2(length(towardsLeft(a, b)) / 2, dot(a, b));

/** Whether the foot of a point on a great circle lies between two points of it. */
const isBeside = (point: Point, [a, b]: Segment<Point>, left: Point): boolean =>
  dot(cross(left, a), point) >= 0 && dot(cross(left, b), point) <= 0;

function isOnSegment(point: Point, segment: Segment<Point>): boolean {
  if (isSame(point, segment[0]) || isSame(point, segment[1])) return true;
  const left = towardsLeft(segment[0], segment[1]);
  const by = length(left);
  return by > 0 && Math.abs(dot(left, point)) <= TOLERANCE * by && isBeside(point, segment, left);
}

function areCrossing([a, b]: Segment<Point>, [c, d]: Segment<Point>): boolean {
  const ofC = turn(a, b, c);
  const ofD = turn(a, b, d);
  const ofA = turn(c, d, a);
  const ofB = turn(c, d, b);
  // Both from left to right at the same side of the earth: the great circles meet on the other side, too.
  return ofC * ofD < 0 && ofA * ofB < 0 && ofC * ofB > 0;
}

/** Where on an edge a way to it may end: at more than one place, since the way may lead through a corner. */
const SHARES = [0.5, 0.382, 0.618, 0.271, 0.729];
/** Edges that are tried at most. */
const MAX_EDGES = 16;

/**
 * Whether a point lies to the left of a ring. Whoever walks from the point to an edge crosses others on the way; from the
 * side on which the edge is reached it follows on which side the point was.
 */
function isLeftOf(point: Point, ring: Ring<Point>): boolean {
  const tries = Math.min(ring.length - 1, MAX_EDGES);
  for (let edge = 0; edge < tries; edge += 1) {
    const a = ring[edge]!;
    const b = ring[edge + 1]!;
    const side = dot(leftOf(a, b), point);
    if (Math.abs(side) <= TOLERANCE) continue;
    for (const share of SHARES) {
      const crossed = crossings(point, unit(plus(scaled(a, 1 - share), scaled(b, share))), ring, edge);
      if (crossed !== undefined) return (crossed % 2 === 0) === side > 0;
    }
  }
  return false;
}

const scaled = (a: Point, by: number): Point => [a[0] * by, a[1] * by, a[2] * by];

/** How often a way crosses a ring but for one edge; undefined where it leads through a corner, or might as well elsewhere. */
function crossings(from: Point, to: Point, ring: Ring<Point>, except: number): number | undefined {
  if (dot(from, to) < -1 + 1e-9) return undefined;
  const way: Segment<Point> = [from, to];
  const left = leftOf(from, to);
  let count = 0;
  let before = dot(left, ring[0]!);
  for (let edge = 0; edge < ring.length - 1; edge += 1) {
    const c = ring[edge]!;
    const d = ring[edge + 1]!;
    const after = dot(left, d);
    if (Math.abs(before) <= TOLERANCE && isBeside(c, way, left)) return undefined;
    if (edge !== except && before * after <= 0 && areCrossing(way, [c, d])) count += 1;
    before = after;
  }
  return count;
}

/** Metres along the great ellipse between two places, the shorter way. */
function greatEllipse(first: Point, second: Point): number {
  const a = stretched(first);
  const b = stretched(second);
  // Of opposite places, which lie in many planes, none is taken: they are the nearest over a pole.
  const left = leftOf(a, b);
  const riseAtA = cross(left, a)[2];
  const riseAtB = cross(left, b)[2];
  const steepest = 1 - left[2] ** 2;
  // The integral of √(1 − e² · rise²), term by term: of rise², rise⁴, …, each from the one before.
  let integral = angle(a, b);
  let coefficient = 1;
  let sum = integral;
  for (let term = 1; term <= ELLIPSE_TERMS; term += 1) {
    const ends = riseAtB ** (2 * term - 1) * b[2] - riseAtA ** (2 * term - 1) * a[2];
    integral = (ends + steepest * (2 * term - 1) * integral) / (2 * term);
    coefficient *= (ECCENTRICITY_SQUARED * (2 * term - 3)) / (2 * term);
    sum += coefficient * integral;
  }
  return sum * EQUATORIAL_RADIUS_METRES;
}

/** Where a place is once the ellipsoid is stretched to a sphere. */
const stretched = ([x, y, z]: Point): Point => unit([x, y, z * (1 - FLATTENING)]);

/** The same place on the sphere of the same area, on which each part has its area, too. */
function ofEqualArea([x, y, z]: Point): Point {
  const sine = areaBelow(z) / areaBelow(1);
  const aside = Math.hypot(x, y);
  const by = aside === 0 ? 0 : Math.sqrt(Math.max(0, 1 - sine * sine)) / aside;
  return [x * by, y * by, sine];
}

/** What of the ellipsoid lies between the equator and a latitude, in units of 2π times half the equatorial radius squared. */
function areaBelow(sine: number): number {
  const eccentricity = Math.sqrt(ECCENTRICITY_SQUARED);
  const shape = sine / (1 - ECCENTRICITY_SQUARED * sine * sine) + Math.atanh(eccentricity * sine) / eccentricity;
  return (1 - ECCENTRICITY_SQUARED) * shape;
}

/** Square metres of a square radian of the sphere of the same area. */
const SQUARE_RADIAN_METRES = (EQUATORIAL_RADIUS_METRES ** 2 * areaBelow(1)) / 2;

/** The part of the globe to the left of a ring, in square radians of the sphere of the same area. */
function leftArea(line: Ring<Point>): number {
  const ring = line.map(ofEqualArea);
  const [origin] = ring;
  const sum = segmentsOfLine(ring).reduce((whole, [a, b]) => {
    const base = 1 + dot(origin!, a) + dot(a, b) + dot(b, origin!);
    return whole + 2 * Math.atan2(turn(origin!, a, b), base);
  }, 0);
  const area = ((sum % WHOLE) + WHOLE) % WHOLE;
  return WHOLE - area < 1e-15 ? 0 : area;
}

/**
 * The globe: containers of the type "Geography". Lines are great ellipses, and the inside of a polygon is to the left
 * of each of its rings, so that one that is given clockwise is all of the globe but what it surrounds.
 *
 * @see https://learn.microsoft.com/dotnet/api/microsoft.azure.cosmos.spatial.polygon
 */
export const globe: Surface<Point> = {
  faultOf: (_longitude, latitude) =>
    Math.abs(latitude) > 90
      ? 'Latitude values must be between -90 and 90 degrees.'
      : 'Longitude values must be between -180 and 180 degrees.',
  pointAt: (longitude, latitude) => {
    if (Math.abs(longitude) > 180 || Math.abs(latitude) > 90) return undefined;
    const east = radians(longitude);
    const north = radians(latitude);
    return [Math.cos(north) * Math.cos(east), Math.cos(north) * Math.sin(east), Math.sin(north)];
  },
  isSame,
  isOnSegment,
  areCrossing,
  middle: ([a, b]) => unit(plus(a, b)),
  isInPolygon: (point, rings) => rings.every((ring) => isLeftOf(point, ring)),
  distance: greatEllipse,
  straight: ([x, y, z], [otherX, otherY, otherZ]) =>
    Math.sqrt((x - otherX) ** 2 + (y - otherY) ** 2 + (z - otherZ) ** 2),
  straightWithin: (distance) => {
    // The earth is bent the most along the meridians at the equator.
    const turned = distance / (EQUATORIAL_RADIUS_METRES * (1 - ECCENTRICITY_SQUARED));
    return turned < Math.PI ? 2 * Math.sin(turned / 2) + TOLERANCE : Number.POSITIVE_INFINITY;
  },
  distanceToSegment: (point, segment) => {
    const left = leftOf(...segment);
    const foot = minus(point, scaled(left, dot(left, point)));
    // The foot is the nearest place of a line on a sphere; on the ellipsoid it is next to it.
    return length(left) > 0 && length(foot) > TOLERANCE && isBeside(point, segment, left)
      ? greatEllipse(point, unit(foot))
      : Math.min(greatEllipse(point, segment[0]), greatEllipse(point, segment[1]));
  },
  area: ([outer, ...holes]) => {
    const left = leftArea(outer!) - holes.reduce((sum, hole) => sum + WHOLE - leftArea(hole), 0);
    return Math.max(0, left) * SQUARE_RADIAN_METRES;
  },
};
