import { type Ring, type Segment, segmentsOfLine, type Surface } from './surface.ts';

type Point = readonly [number, number];

/** Twice the area of a triangle. It is positive if the triangle turns left. */
const turn = (a: Point, b: Point, c: Point): number => (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);

const isSame = (a: Point, b: Point): boolean => a[0] === b[0] && a[1] === b[1];

const distance = (a: Point, b: Point): number => Math.hypot(a[0] - b[0], a[1] - b[1]);

function distanceToSegment(point: Point, [a, b]: Segment<Point>): number {
  const x = b[0] - a[0];
  const y = b[1] - a[1];
  const length = x * x + y * y;
  const along = length === 0 ? 0 : ((point[0] - a[0]) * x + (point[1] - a[1]) * y) / length;
  const share = Math.min(1, Math.max(0, along));
  return distance(point, [a[0] + share * x, a[1] + share * y]);
}

/** Counts how often a ray to the right crosses the rings. So holes are outside, whatever their direction is. */
function isInPolygon(point: Point, rings: readonly Ring<Point>[]): boolean {
  let inside = false;
  for (const [a, b] of rings.flatMap(segmentsOfLine)) {
    const crosses =
      a[1] > point[1] !== b[1] > point[1] && point[0] < ((b[0] - a[0]) * (point[1] - a[1])) / (b[1] - a[1]) + a[0];
    if (crosses) inside = !inside;
  }
  return inside;
}

function ringArea(ring: Ring<Point>): number {
  const [origin] = ring;
  const twice = segmentsOfLine(ring).reduce((sum, [a, b]) => sum + turn(origin!, a, b), 0);
  return Math.abs(twice) / 2;
}

/** The plane, for containers of the type "Geometry". It has no unit of its own. */
export const plane: Surface<Point> = {
  faultOf: () => 'A position needs two numbers.',
  pointAt: (x, y) => [x, y],
  isSame,
  isOnSegment: (point, [a, b]) =>
    turn(a, b, point) === 0 &&
    point[0] >= Math.min(a[0], b[0]) &&
    point[0] <= Math.max(a[0], b[0]) &&
    point[1] >= Math.min(a[1], b[1]) &&
    point[1] <= Math.max(a[1], b[1]),
  areCrossing: ([a, b], [c, d]) => turn(a, b, c) * turn(a, b, d) < 0 && turn(c, d, a) * turn(c, d, b) < 0,
  middle: ([a, b]) => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2],
  isInPolygon,
  distance,
  straight: distance,
  // On the plane, exact distances are just as fast to compute.
  straightWithin: () => Number.POSITIVE_INFINITY,
  distanceToSegment,
  area: ([outer, ...holes]) => ringArea(outer!) - holes.reduce((sum, hole) => sum + ringArea(hole), 0),
};
