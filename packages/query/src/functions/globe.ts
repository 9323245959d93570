import { type Ring, type Segment, segmentsOfLine, type Surface } from './surface.ts';

/**
 * A place on the ellipsoid, as its normal vector of length 1. Lines are great ellipses: intersections of the ellipsoid with planes through
 * the earth's centre. For these vectors, and for all linear images of them, lines are great circles.
 */
type Point = readonly [number, number, number];

/** The ellipsoid of WGS 84. */
const EQUATORIAL_RADIUS_METRES = 6_378_137;
const FLATTENING = 1 / 298.257_223_563;
const ECCENTRICITY_SQUARED = FLATTENING * (2 - FLATTENING);
/** In radians: a point this close to a line counts as on it. It is less than a micrometre on the ground. */
const TOLERANCE = 1e-13;
const WHOLE = 4 * Math.PI;
/** The number of terms for the length of an ellipse. Further terms are less than a micrometre. */
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
  // hypot also works for vectors so short that their squares underflow, as those of edges may be.
  const by = Math.hypot(a[0], a[1], a[2]) || 1;
  return [a[0] / by, a[1] / by, a[2] / by];
}

/** A vector, of any length, to the left of the way from one point to another. It is exact also for points close together. */
const towardsLeft = (a: Point, b: Point): Point => cross(plus(a, b), minus(b, a));
/** The same vector with length 1; zero if the points are equal or opposite. */
const leftOf = (a: Point, b: Point): Point => unit(towardsLeft(a, b));

/** Six times the volume between a triangle and the earth's centre. It is positive if the triangle turns left. */
const turn = (a: Point, b: Point, c: Point): number => dot(a, cross(minus(b, a), minus(c, a)));

const isSame = (a: Point, b: Point): boolean =>
  Math.abs(a[0] - b[0]) <= TOLERANCE && Math.abs(a[1] - b[1]) <= TOLERANCE && Math.abs(a[2] - b[2]) <= TOLERANCE;

const angle = (a: Point, b: Point): number => Math.atan2(length(towardsLeft(a, b)) / 2, dot(a, b));

/** Whether the perpendicular from a point to a great circle ends between two points of the circle. */
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
  // The last condition: the great circles meet at two opposite places, and both segments must be at the same one.
  return ofC * ofD < 0 && ofA * ofB < 0 && ofC * ofB > 0;
}

/** Places on an edge at which a way to it may end. Others are tried if the way leads through a corner. */
const SHARES = [0.5, 0.382, 0.618, 0.271, 0.729];
/** The largest number of edges that are tried. */
const MAX_EDGES = 16;

/**
 * Whether a point is to the left of a ring. A way from the point to an edge crosses other edges. The number of crossings, and the side from
 * which the edge is reached, determine on which side of the ring the point is.
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

/** How often a way crosses a ring, except one edge; undefined if it leads through a corner, or if its direction is not unique. */
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

/** The length, in metres, of the shorter way along the great ellipse between two places. */
function greatEllipse(first: Point, second: Point): number {
  const a = stretched(first);
  const b = stretched(second);
  // Opposite places have many planes in common, and `left` is zero: the shortest way between them is over a pole.
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

/** A place after the ellipsoid is stretched to a sphere. */
const stretched = ([x, y, z]: Point): Point => unit([x, y, z * (1 - FLATTENING)]);

/** A place, projected to the sphere of the same area so that the areas of all parts stay the same. */
function ofEqualArea([x, y, z]: Point): Point {
  const sine = areaBelow(z) / areaBelow(1);
  const aside = Math.hypot(x, y);
  const by = aside === 0 ? 0 : Math.sqrt(Math.max(0, 1 - sine * sine)) / aside;
  return [x * by, y * by, sine];
}

/** The area between the equator and a latitude, in units of 2π times half of the squared equatorial radius. */
function areaBelow(sine: number): number {
  const eccentricity = Math.sqrt(ECCENTRICITY_SQUARED);
  const shape = sine / (1 - ECCENTRICITY_SQUARED * sine * sine) + Math.atanh(eccentricity * sine) / eccentricity;
  return (1 - ECCENTRICITY_SQUARED) * shape;
}

/** The area of a square radian of the sphere of the same area, in square metres. */
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
 * The globe, for containers of the type "Geography". Lines are great ellipses. The inside of a polygon is to the left of each of its rings.
 * So a clockwise polygon is the whole globe except the part that it surrounds.
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
    // The earth's curvature is largest along the meridians at the equator.
    const turned = distance / (EQUATORIAL_RADIUS_METRES * (1 - ECCENTRICITY_SQUARED));
    return turned < Math.PI ? 2 * Math.sin(turned / 2) + TOLERANCE : Number.POSITIVE_INFINITY;
  },
  distanceToSegment: (point, segment) => {
    const left = leftOf(...segment);
    const foot = minus(point, scaled(left, dot(left, point)));
    // On a sphere the end of the perpendicular is the nearest place of a line; on the ellipsoid it is very close to that.
    return length(left) > 0 && length(foot) > TOLERANCE && isBeside(point, segment, left)
      ? greatEllipse(point, unit(foot))
      : Math.min(greatEllipse(point, segment[0]), greatEllipse(point, segment[1]));
  },
  area: ([outer, ...holes]) => {
    const left = leftArea(outer!) - holes.reduce((sum, hole) => sum + WHOLE - leftArea(hole), 0);
    return Math.max(0, left) * SQUARE_RADIAN_METRES;
  },
};
