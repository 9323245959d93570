import { queryError } from '../errors.ts';
import { finite, isObject } from '../values/values.ts';
import type { Json, Value } from '../values/values.ts';
import { type BuiltIn, type BuiltIns, pure } from './builtin.ts';
import { globe } from './globe.ts';
import { plane } from './plane.ts';
import { type Ring, type Segment, segmentsOfLine, type Surface } from './surface.ts';

/** The parts of a geometry: its polygons, its lines and its single points. */
interface Shape<Point> {
  readonly points: readonly Point[];
  readonly lines: readonly (readonly Point[])[];
  /** Each polygon is an outer ring followed by its holes. */
  readonly polygons: readonly (readonly Ring<Point>[])[];
}

const MAX_COMPARISONS = 10_000_000;

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

/** The first two numbers of a position. */
function numbersOf(position: Value): readonly [x: number, y: number] | undefined {
  const [x, y] = Array.isArray(position) ? position : [];
  return typeof x === 'number' && typeof y === 'number' ? [x, y] : undefined;
}

const POLYGON_FAULT =
  'The rings of a Polygon need at least four valid positions each, and the last must equal the first.';

/** The spatial functions over GeoJSON on a surface. */
function spatialFunctionsOn<Point>(surface: Surface<Point>): BuiltIns {
  function readPosition(value: Value): Point | undefined {
    const numbers = numbersOf(value);
    return numbers && surface.pointAt(...numbers);
  }

  function faultOf(position: Value): string {
    const numbers = numbersOf(position);
    return numbers === undefined ? 'A position needs two numbers.' : surface.faultOf(...numbers);
  }

  function readLine(value: Value, atLeast: number): Point[] | undefined {
    const line = readAll(value, readPosition);
    return line !== undefined && line.length >= atLeast ? line : undefined;
  }

  function readPolygon(value: Value): Ring<Point>[] | undefined {
    const rings = readAll(value, (ring) => {
      const line = readLine(ring, 4);
      return line !== undefined && surface.isSame(line[0]!, line.at(-1)!) ? line : undefined;
    });
    return rings !== undefined && rings.length > 0 ? rings : undefined;
  }

  /** Reads GeoJSON. If it is invalid, returns a message. */
  function readShape(value: Value): Shape<Point> | string {
    if (!isObject(value)) return 'Input is not a GeoJSON object.';
    const { type, coordinates } = value;
    const empty = { points: [], lines: [], polygons: [] };
    switch (type) {
      case 'Point': {
        const point = readPosition(coordinates);
        return point === undefined ? faultOf(coordinates) : { ...empty, points: [point] };
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

  const segmentsOf = (shape: Pick<Shape<Point>, 'lines' | 'polygons'>): Segment<Point>[] =>
    [...shape.lines, ...shape.polygons.flat()].flatMap((line) => segmentsOfLine(line));

  const positionsOf = (shape: Shape<Point>): Point[] => [
    ...shape.points,
    ...shape.lines.flat(),
    ...shape.polygons.flat(2),
  ];

  /** The edge of a polygon belongs to it. */
  const isIn = (point: Point, rings: readonly Ring<Point>[]): boolean =>
    isOnEdge(point, rings) || surface.isInPolygon(point, rings);

  const isOnEdge = (point: Point, rings: readonly Ring<Point>[]): boolean =>
    rings.some((ring) => isOnLine(point, ring));

  const isOnLine = (point: Point, line: readonly Point[]): boolean =>
    line.some((end, index) => index > 0 && surface.isOnSegment(point, [line[index - 1]!, end]));

  const isPartOf = (point: Point, { points, lines, polygons }: Shape<Point>): boolean =>
    polygons.some((polygon) => isIn(point, polygon)) ||
    lines.some((line) => isOnLine(point, line)) ||
    points.some((position) => surface.isSame(position, point));

  /** Shapes are compared edge by edge, so two outlines of a hundred thousand points each would take minutes. */
  function assertComparable(a: Shape<Point>, b: Shape<Point>): void {
    if (positionsOf(a).length * positionsOf(b).length > MAX_COMPARISONS) {
      throw queryError('tooComplex', 'Two GeoJSON shapes have too many points to be compared.');
    }
  }

  function intersect(a: Shape<Point>, b: Shape<Point>): boolean {
    if (positionsOf(a).some((point) => isPartOf(point, b)) || positionsOf(b).some((point) => isPartOf(point, a))) {
      return true;
    }
    const segments = segmentsOf(b);
    return segmentsOf(a).some((first) => segments.some((second) => surface.areCrossing(first, second)));
  }

  /** Whether every position is inside, and no edge crosses the boundary: edges may touch it, but not leave and come back. */
  function isWithin(inner: Shape<Point>, outer: Shape<Point>): boolean {
    if (!positionsOf(inner).every((point) => isPartOf(point, outer))) return false;
    const own = segmentsOf(inner);
    if (own.length === 0) return true;
    const edges = segmentsOf({ ...outer, lines: [] });
    const isInside = own.every(
      (segment) =>
        isPartOf(surface.middle(segment), outer) && !edges.some((edge) => surface.areCrossing(segment, edge)),
    );
    // The edges alone don't show whether the inner shape surrounds a hole, or everything outside.
    return (
      isInside &&
      !inner.polygons.some((polygon) =>
        outer.polygons.flat(2).some((point) => !isOnEdge(point, polygon) && surface.isInPolygon(point, polygon)),
      )
    );
  }

  function distance(a: Shape<Point>, b: Shape<Point>): number {
    if (intersect(a, b)) return 0;
    let nearest = Number.POSITIVE_INFINITY;
    let within = nearest;
    const take = (found: number): void => {
      if (!(found < nearest)) return;
      nearest = found;
      within = surface.straightWithin(nearest);
    };
    for (const [one, other] of [
      [a, b],
      [b, a],
    ] as const) {
      const around = segmentsOf(other).map((segment) => {
        const middle = surface.middle(segment);
        return { segment, middle, reach: surface.straight(middle, segment[0]) };
      });
      for (const point of positionsOf(one)) {
        for (const position of other.points) take(surface.distance(point, position));
        for (const { segment, middle, reach } of around) {
          // Most segments are certainly further away, and computing their exact distance takes a hundred times as long.
          if (surface.straight(point, middle) - reach > within) continue;
          take(surface.distanceToSegment(point, segment));
        }
      }
    }
    return nearest;
  }

  const area = ({ polygons }: Shape<Point>): number =>
    polygons.reduce((sum, polygon) => sum + surface.area(polygon), 0);

  /** Makes a function of shapes. The shape of a constant is read once, and that of a document's value is cached with it. */
  function ofShapes(count: 1 | 2, compute: (a: Shape<Point>, b: Shape<Point>) => Value): BuiltIn {
    const create = () => {
      const known = new WeakMap<object, Shape<Point> | string>();
      const shapeOf = (value: Value): Shape<Point> | undefined => {
        if (!isObject(value)) return undefined;
        let shape = known.get(value);
        if (shape === undefined) {
          shape = readShape(value);
          known.set(value, shape);
        }
        return typeof shape === 'string' ? undefined : shape;
      };
      return (first: Value, second: Value): Value => {
        const a = shapeOf(first);
        const b = count === 1 ? a : shapeOf(second);
        if (a === undefined || b === undefined) return undefined;
        if (count === 2) assertComparable(a, b);
        return compute(a, b);
      };
    };
    return { minArguments: count, maxArguments: count, create, pure: true, unitsPerCharacter: 2 };
  }

  return {
    ST_AREA: ofShapes(1, (shape) => finite(area(shape))),
    ST_DISTANCE: ofShapes(2, (a, b) => finite(distance(a, b))),
    ST_INTERSECTS: ofShapes(2, intersect),
    ST_ISVALID: pure(1, 1, (value) => (value === undefined ? undefined : typeof readShape(value) !== 'string')),
    ST_ISVALIDDETAILED: pure(1, 1, (value) => {
      if (value === undefined) return undefined;
      const shape = readShape(value);
      return typeof shape === 'string' ? { valid: false, reason: shape } : { valid: true };
    }),
    ST_WITHIN: ofShapes(2, isWithin),
  };
}

/** For containers of the type "Geography": distances in metres and areas in square metres on the globe. */
export const spatialFunctions: BuiltIns = spatialFunctionsOn(globe);

/** For containers of the type "Geometry": distances and areas in the unit of the positions. */
export const planarFunctions: BuiltIns = spatialFunctionsOn(plane);
