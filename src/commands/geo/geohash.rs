//! Places on the globe as numbers of 52 bits (geohashes), the cells that cover an area, and distances.
//!
//! A geohash halves the longitudes and the latitudes 26 times; its bits say, in turn, in which half the place is. Places
//! whose first bits agree share a cell, whose geohashes follow each other.
//!
//! Answers agree with Redis' to the last digit, so each sum and product is made in the same order, and a cell that Redis
//! searches is searched. Sources: the haversine formula, with WGS 84's quadratic mean radius; the longitudes and
//! latitudes of EPSG:3857, which ends at 85.05 degrees.

use std::f64::consts::PI;

/// Meters.
const EARTH_RADIUS: f64 = 6_372_797.560_856;
/// Half of the equator in the projection, in meters.
const HALF_EQUATOR: f64 = 20_037_726.37;
const DEGREE: f64 = PI / 180.0;

/// Bits of each coordinate.
const STEPS: u32 = 26;
const LONGITUDES: Span = Span { min: -180.0, max: 180.0 };
const LATITUDES: Span = Span { min: -85.051_128_78, max: 85.051_128_78 };
/// Those of the geohashes that are written as text.
const ALL_LATITUDES: Span = Span { min: -90.0, max: 90.0 };
const DIGITS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

#[derive(Debug, Clone, Copy)]
struct Span {
    min: f64,
    max: f64,
}

impl Span {
    fn size(self) -> f64 {
        self.max - self.min
    }
    fn holds(self, degrees: f64) -> bool {
        self.min <= degrees && degrees <= self.max
    }
    /// The number of the part, of 2^step, in which this is.
    fn part(self, degrees: f64, step: u32) -> u32 {
        ((degrees - self.min) / self.size() * parts(step)) as u32
    }
    /// Where a part begins.
    fn begin(self, part: u32, step: u32) -> f64 {
        self.min + f64::from(part) / parts(step) * self.size()
    }
}

fn parts(step: u32) -> f64 {
    (1u64 << step) as f64
}

/// A place, in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Place {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

impl Place {
    /// None if a geohash cannot name it.
    pub(super) fn new(longitude: f64, latitude: f64) -> Option<Place> {
        let is_on_map = LONGITUDES.holds(longitude) && LATITUDES.holds(latitude);
        is_on_map.then_some(Place { longitude, latitude })
    }

    /// The middle of the smallest cell of a geohash, given as a score.
    pub(super) fn of_score(score: f64) -> Place {
        let area = Cell { bits: bits_of(score), step: STEPS }.area();
        let middle = |min: f64, max: f64, all: Span| ((min + max) / 2.0).clamp(all.min, all.max);
        Place {
            longitude: middle(area.west, area.east, LONGITUDES),
            latitude: middle(area.south, area.north, LATITUDES),
        }
    }

    /// Its geohash, as a score.
    pub(super) fn score(self) -> f64 {
        Cell::around(self, LATITUDES, STEPS).bits as f64
    }

    /// Its geohash as others write it: eleven digits, of which the last one is always 0.
    pub(super) fn text(self) -> String {
        let bits = Cell::around(self, ALL_LATITUDES, STEPS).bits;
        let digit = |n: u32| DIGITS.get((bits >> (52 - 5 * n) & 31) as usize).copied().unwrap_or_default();
        (1..=10).map(digit).chain([b'0']).map(char::from).collect()
    }

    /// Meters between two places.
    pub(super) fn distance(self, other: Place) -> f64 {
        let v = ((other.longitude * DEGREE - self.longitude * DEGREE) / 2.0).sin();
        if v == 0.0 {
            return self.distance_in_latitude(other);
        }
        let (a, b) = (self.latitude * DEGREE, other.latitude * DEGREE);
        let u = ((b - a) / 2.0).sin();
        let haversine = u * u + a.cos() * b.cos() * v * v;
        2.0 * EARTH_RADIUS * haversine.min(1.0).sqrt().asin()
    }

    fn distance_in_latitude(self, other: Place) -> f64 {
        EARTH_RADIUS * (other.latitude * DEGREE - self.latitude * DEGREE).abs()
    }
}

/// The bits of any score, as a processor of the x86 family converts it.
fn bits_of(score: f64) -> u64 {
    const HALF: f64 = (1u64 << 63) as f64;
    let signed = |x: f64| if (-HALF..HALF).contains(&x) { x as i64 } else { i64::MIN };
    match score < HALF {
        true => signed(score).cast_unsigned(),
        false => signed(score - HALF).cast_unsigned() ^ (1 << 63),
    }
}

/// A cell: the first bits of geohashes, two for each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    bits: u64,
    step: u32,
}

/// The ends of a cell, in degrees.
#[derive(Debug, Clone, Copy)]
struct Area {
    west: f64,
    east: f64,
    south: f64,
    north: f64,
}

const LATITUDE_BITS: u64 = 0x5555_5555_5555_5555;
const LONGITUDE_BITS: u64 = !LATITUDE_BITS;

/// Moves each bit to the place of twice its number.
fn spread(x: u32) -> u64 {
    const MASKS: [(u32, u64); 5] = [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, LATITUDE_BITS),
    ];
    MASKS.iter().fold(u64::from(x), |x, (shift, mask)| (x | x << shift) & mask)
}

/// Undoes [`spread`].
fn gather(x: u64) -> u32 {
    const MASKS: [(u32, u64); 5] = [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ];
    MASKS.iter().fold(x & LATITUDE_BITS, |x, (shift, mask)| (x | x >> shift) & mask) as u32
}

impl Cell {
    fn around(place: Place, latitudes: Span, step: u32) -> Cell {
        let (x, y) = (LONGITUDES.part(place.longitude, step), latitudes.part(place.latitude, step));
        Cell { bits: spread(y) | spread(x) << 1, step }
    }

    fn area(self) -> Area {
        let (x, y, step) = (gather(self.bits >> 1), gather(self.bits), self.step);
        Area {
            west: LONGITUDES.begin(x, step),
            east: LONGITUDES.begin(x.wrapping_add(1), step),
            south: LATITUDES.begin(y, step),
            north: LATITUDES.begin(y.wrapping_add(1), step),
        }
    }

    /// The lowest score in it, and the lowest one behind it.
    pub(super) fn scores(self) -> (f64, f64) {
        let unused = 2 * (STEPS - self.step);
        ((self.bits << unused) as f64, ((self.bits + 1) << unused) as f64)
    }

    /// The cell next to it, by steps to the east and to the north. Behind the last one comes the first.
    fn moved(self, east: i64, north: i64) -> Cell {
        let used = u64::MAX >> (64 - 2 * self.step);
        let moved = |bits: u64, others: u64, by: i64| match by {
            0 => bits,
            // The other coordinate's bits pass carries on.
            1 => bits.wrapping_add((others & used).wrapping_add(1)) & !others & used,
            _ => (bits | others & used).wrapping_sub((others & used).wrapping_add(1)) & !others & used,
        };
        let x = moved(self.bits & LONGITUDE_BITS, LATITUDE_BITS, east);
        let y = moved(self.bits & LATITUDE_BITS, LONGITUDE_BITS, north);
        Cell { bits: x | y, ..self }
    }
}

/// A shape, in some unit of length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shape {
    Circle { radius: f64 },
    Box { width: f64, height: f64 },
}

/// An area to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Search {
    pub(super) center: Place,
    pub(super) shape: Shape,
    /// Meters of the shape's unit.
    pub(super) unit: f64,
}

impl Search {
    /// The distance of a place from the center, in meters, if it is in the area.
    pub(super) fn distance(&self, place: Place) -> Option<f64> {
        match self.shape {
            Shape::Circle { radius } => {
                let distance = self.center.distance(place);
                (distance <= radius * self.unit).then_some(distance)
            }
            Shape::Box { width, height } => {
                let beside = Place { longitude: self.center.longitude, ..place };
                let is_in = place.distance_in_latitude(self.center) <= height * self.unit / 2.0
                    && place.distance(beside) <= width * self.unit / 2.0;
                is_in.then(|| self.center.distance(place))
            }
        }
    }

    /// A box around the area.
    fn bounds(&self) -> Area {
        let Place { longitude, latitude } = self.center;
        let (width, height) = match self.shape {
            Shape::Circle { radius } => (radius, radius),
            Shape::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let (width, height) = (self.unit * width, self.unit * height);
        let north = height / EARTH_RADIUS / DEGREE;
        // Meridians are closest at the end that is nearer to a pole.
        let farthest = if latitude < 0.0 { latitude - north } else { latitude + north };
        let east = width / EARTH_RADIUS / (farthest * DEGREE).cos() / DEGREE;
        Area {
            west: longitude - east,
            east: longitude + east,
            south: latitude - north,
            north: latitude + north,
        }
    }

    /// How many steps make cells of which nine cover the area, as estimated.
    fn steps(&self) -> u32 {
        let mut reach = self.unit
            * match self.shape {
                Shape::Circle { radius } => radius,
                Shape::Box { width, height } => {
                    ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
                }
            };
        if reach == 0.0 {
            return STEPS;
        }
        let mut steps = -1i32;
        while reach < HALF_EQUATOR {
            reach *= 2.0;
            steps += 1;
        }
        let latitude = self.center.latitude.abs();
        steps -= i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        steps.clamp(1, STEPS as i32).cast_unsigned()
    }

    /// The cells to search, in this order.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let (bounds, mut steps) = (self.bounds(), self.steps());
        let mut middle = Cell::around(self.center, LATITUDES, steps);
        // Of an endless radius, some bounds are no numbers.
        let falls_short = middle.moved(0, 1).area().north < bounds.north
            || middle.moved(0, -1).area().south > bounds.south
            || middle.moved(1, 0).area().east < bounds.east
            || middle.moved(-1, 0).area().west > bounds.west;
        if steps > 1 && falls_short {
            steps -= 1;
            middle = Cell::around(self.center, LATITUDES, steps);
        }
        let area = middle.area();
        let is_used = |(east, north): &(i64, i64)| {
            steps < 2
                || !(*north < 0 && area.south < bounds.south
                    || *north > 0 && area.north > bounds.north
                    || *east < 0 && area.west < bounds.west
                    || *east > 0 && area.east > bounds.east)
        };
        const AROUND: [(i64, i64); 8] =
            [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let around = AROUND.into_iter().filter(is_used).map(|(east, north)| middle.moved(east, north));
        let mut cells: Vec<Cell> = std::iter::once(middle).chain(around).collect();
        // Of very large cells, opposite neighbours are one.
        cells.dedup();
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(longitude: f64, latitude: f64) -> Place {
        Place::new(longitude, latitude).unwrap()
    }

    /// As redis-server 8.6 answers.
    #[test]
    fn palermo_and_catania() {
        let (palermo, catania) = (place(13.361389, 38.115556), place(15.087269, 37.502669));
        assert_eq!(palermo.score(), 3_479_099_956_230_698.0);
        let read = Place::of_score(palermo.score());
        assert_eq!((read.longitude, read.latitude), (13.361389338970184, 38.1155563954963));
        assert_eq!(read.text(), "sqc8b49rny0");
        let distance = read.distance(Place::of_score(catania.score()));
        assert_eq!(format!("{distance:.4}"), "166274.1516");
    }

    #[test]
    fn what_is_not_on_the_map_has_no_place() {
        assert!(Place::new(180.1, 0.0).is_none() && Place::new(0.0, 85.06).is_none());
        assert!(Place::new(f64::NAN, 0.0).is_none() && Place::new(0.0, f64::INFINITY).is_none());
    }

    #[test]
    fn bits_are_spread_and_gathered() {
        for x in [0, 1, 0xffff_ffff, 0x1234_5678, 0x03ff_ffff] {
            assert_eq!(gather(spread(x)), x);
            assert_eq!(spread(x) & LONGITUDE_BITS, 0);
        }
    }

    /// Each place in the area is in a cell, however large the area is and wherever.
    #[test]
    fn cells_cover_the_area() {
        let mut n = 0u64;
        let mut next = |max: f64| {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (n >> 33) as f64 / (1u64 << 31) as f64 * max
        };
        for _ in 0..3000 {
            let center = place(next(340.0) - 170.0, next(120.0) - 60.0);
            let radius = 10f64.powf(next(5.5));
            let shape = match next(2.0) < 1.0 {
                true => Shape::Circle { radius },
                false => Shape::Box { width: radius, height: next(2.0) * radius },
            };
            let search = Search { center, shape, unit: 1.0 };
            let ranges: Vec<(f64, f64)> = search.cells().into_iter().map(Cell::scores).collect();
            for _ in 0..20 {
                let reach = radius / 60_000.0;
                let (x, y) = (next(2.0) - 1.0, next(2.0) - 1.0);
                let Some(other) = Place::new(center.longitude + x * reach, center.latitude + y * reach)
                else {
                    continue;
                };
                let is_found = ranges.iter().any(|(min, max)| (*min..*max).contains(&other.score()));
                assert!(search.distance(other).is_none() || is_found, "{search:?} {other:?}");
            }
        }
    }

    /// Scores that no geohash is.
    #[test]
    fn any_score_has_a_place() {
        for score in [-1.0, f64::INFINITY, f64::NEG_INFINITY, 1e300, -0.5, 9.3e18] {
            let found = Place::of_score(score);
            assert!(Place::new(found.longitude, found.latitude).is_some(), "{score}");
            found.text();
        }
    }
}
