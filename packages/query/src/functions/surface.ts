export type Segment<Point> = readonly [Point, Point];

/** A closed ring: its last point is the same as its first. */
export type Ring<Point> = readonly Point[];

/** The surface on which shapes are: the plane or the globe. */
export interface Surface<Point> {
  /** Cosmos DB's message for a position at which there is no point. */
  readonly faultOf: (x: number, y: number) => string;
  /** The point at a GeoJSON position; undefined if there is none. */
  pointAt(x: number, y: number): Point | undefined;
  isSame(a: Point, b: Point): boolean;
  isOnSegment(point: Point, segment: Segment<Point>): boolean;
  /** Whether two segments cross inside both of them. */
  areCrossing(first: Segment<Point>, second: Segment<Point>): boolean;
  middle(segment: Segment<Point>): Point;
  /** Whether a point is in a polygon, an outer ring with holes. The point must not be on one of the rings. */
  isInPolygon(point: Point, rings: readonly Ring<Point>[]): boolean;
  distance(a: Point, b: Point): number;
  /** The length of the straight line between two points, which may leave the surface. It is fast to compute. */
  straight(a: Point, b: Point): number;
  /** The greatest length of a straight line between points whose distance on the surface is at most `distance`. */
  straightWithin(distance: number): number;
  distanceToSegment(point: Point, segment: Segment<Point>): number;
  area(rings: readonly Ring<Point>[]): number;
}

export function segmentsOfLine<Point>(line: readonly Point[]): Segment<Point>[] {
  return line.slice(1).map((point, index) => [line[index]!, point]);
}
