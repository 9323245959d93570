export type Segment<Point> = readonly [Point, Point];

/** Closed: its last point is its first again. */
export type Ring<Point> = readonly Point[];

/** What shapes lie on. What is asked of it is the same for the plane and for the globe. */
export interface Surface<Point> {
  /** Why there is no point at a position, in Cosmos DB's words. */
  readonly faultOf: (x: number, y: number) => string;
  /** The point at a GeoJSON position; undefined where there is none. */
  pointAt(x: number, y: number): Point | undefined;
  isSame(a: Point, b: Point): boolean;
  isOnSegment(point: Point, segment: Segment<Point>): boolean;
  /** Whether two segments cross inside both of them. */
  areCrossing(first: Segment<Point>, second: Segment<Point>): boolean;
  middle(segment: Segment<Point>): Point;
  /** Whether a point that is on none of its rings lies in a polygon: an outer ring and its holes. */
  isInPolygon(point: Point, rings: readonly Ring<Point>[]): boolean;
  distance(a: Point, b: Point): number;
  /** The length of the straight way between two points, which need not be on the surface: it is quickly told. */
  straight(a: Point, b: Point): number;
  /** How long that is at most, between points that are no further from each other than a distance. */
  straightWithin(distance: number): number;
  distanceToSegment(point: Point, segment: Segment<Point>): number;
  area(rings: readonly Ring<Point>[]): number;
}

export function segmentsOfLine<Point>(line: readonly Point[]): Segment<Point>[] {
  return line.slice(1).map((point, index) => [line[index]!, point]);
}
