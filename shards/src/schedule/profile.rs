//! The rate over time, its integral, and the inverse of that integral.
//!
//! Up to its last change a profile is a row of pieces, each with a closed form; after it the rate
//! stays as it is. Within a piece `f64` does, since time counts from the begin of the piece and
//! pieces are short (to the nanosecond up to 100 days). The rest has no end, so there the product
//! is exact.

use super::fixed;

/// The lowest rate that is not 0, per second: one query in 32 years.
pub const RATE_MIN: f64 = 1e-9;
/// The highest rate, per second.
pub const RATE_MAX: f64 = 1e9;

/// The rate over the time since the phase began.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    pieces: Box<[Piece]>,
    rest: Rest,
}

/// Why points make no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesError {
    /// There are no points.
    Empty,
    /// The rate of this point is neither 0 nor [`RATE_MIN`] to [`RATE_MAX`].
    Rate {
        /// From 0.
        index: usize,
    },
    /// This point is before the one in front of it.
    Time {
        /// From 0.
        index: usize,
    },
    /// Every rate is 0.
    Zero,
}

impl Profile {
    /// The same rate, per second, for ever. `None` unless it is [`RATE_MIN`] to [`RATE_MAX`].
    pub fn constant(rate: f64) -> Option<Profile> {
        is_rate(rate).then(|| Profile { pieces: Box::new([]), rest: Rest::new(0, 0, rate) })
    }

    /// Rises or falls steadily from one rate to the other, per second, during `over_ns`, and goes
    /// on there. `None` unless both are [`RATE_MIN`] to [`RATE_MAX`] and there is a time to change
    /// in; `from` may be 0.
    pub fn linear(from: f64, to: f64, over_ns: u64) -> Option<Profile> {
        let is_valid = (from == 0.0 || is_rate(from)) && is_rate(to) && over_ns > 0;
        is_valid.then(|| Profile::ramp(Curve::linear(from, to, over_ns), over_ns, to))
    }

    /// Grows or shrinks by the same factor each second, from one rate to the other, per second,
    /// during `over_ns`, and goes on there. `None` unless both are [`RATE_MIN`] to [`RATE_MAX`] and
    /// there is a time to change in.
    pub fn exponential(from: f64, to: f64, over_ns: u64) -> Option<Profile> {
        let is_valid = is_rate(from) && is_rate(to) && over_ns > 0;
        is_valid.then(|| Profile::ramp(Curve::exponential(from, to, over_ns), over_ns, to))
    }

    /// Straight lines between points `(offset_ns, rate per second)`. The first rate holds before
    /// its point too, the last one for ever; after a last rate of 0 nothing more is due. Two points
    /// of the same instant are a jump.
    pub fn series(points: &[(u64, f64)]) -> Result<Profile, SeriesError> {
        let &(_, first_rate) = points.first().ok_or(SeriesError::Empty)?;
        if let Some(index) = points.iter().position(|(_, rate)| *rate != 0.0 && !is_rate(*rate)) {
            return Err(SeriesError::Rate { index });
        }
        if let Some(before) = points.windows(2).position(|pair| pair[1].0 < pair[0].0) {
            return Err(SeriesError::Time { index: before + 1 });
        }
        if points.iter().all(|(_, rate)| *rate == 0.0) {
            return Err(SeriesError::Zero);
        }
        let mut pieces = Vec::with_capacity(points.len());
        let mut units = 0;
        let (mut begin_ns, mut begin_rate) = (0, first_rate);
        for &(end_ns, end_rate) in points {
            if end_ns > begin_ns {
                let curve = Curve::linear(begin_rate, end_rate, end_ns - begin_ns);
                let piece = Piece::new(begin_ns, end_ns, units, curve);
                units = piece.end_units;
                pieces.push(piece);
            }
            (begin_ns, begin_rate) = (end_ns, end_rate);
        }
        Ok(Profile { pieces: pieces.into(), rest: Rest::new(begin_ns, units, begin_rate) })
    }

    fn ramp(curve: Curve, over_ns: u64, to: f64) -> Profile {
        let piece = Piece::new(0, over_ns, 0, curve);
        let rest = Rest::new(over_ns, piece.end_units, to);
        Profile { pieces: Box::new([piece]), rest }
    }

    /// Queries expected up to an instant: the integral of the rate.
    pub fn expected(&self, offset_ns: u64) -> f64 {
        match self.piece_at(offset_ns) {
            Some(piece) => {
                fixed::to_f64(piece.begin_units)
                    + piece.curve.units(seconds(offset_ns - piece.begin_ns))
            }
            None => {
                let rest_ns = offset_ns - self.rest.begin_ns;
                fixed::to_f64(self.rest.begin_units) + self.rest.rate * rest_ns as f64 / 1e9
            }
        }
    }

    /// The rate at an instant, per second; at a jump, the one after it.
    pub fn rate_at(&self, offset_ns: u64) -> f64 {
        match self.piece_at(offset_ns) {
            Some(piece) => piece.curve.rate(seconds(offset_ns - piece.begin_ns)),
            None => self.rest.rate,
        }
    }

    /// `None`: the rest.
    fn piece_at(&self, offset_ns: u64) -> Option<&Piece> {
        self.pieces.get(self.pieces.partition_point(|piece| piece.end_ns <= offset_ns))
    }

    /// The last instant, rounded to the nearest ns, up to which no more than `units` are expected;
    /// `None` if it never comes, or not within 64 bits.
    ///
    /// `piece` starts at 0 and belongs to the caller, whose `units` must not fall between calls.
    pub(super) fn instant(&self, units: u128, piece: &mut usize) -> Option<u64> {
        while let Some(now) = self.pieces.get(*piece) {
            if units < now.end_units {
                return Some(now.instant(units));
            }
            *piece += 1;
        }
        self.rest.instant(units)
    }
}

/// A stretch of time in which the rate follows one curve.
#[derive(Clone, Debug, PartialEq)]
struct Piece {
    begin_ns: u64,
    end_ns: u64,
    /// Fixed point, as below: expected before the piece begins.
    begin_units: u128,
    end_units: u128,
    curve: Curve,
}

impl Piece {
    fn new(begin_ns: u64, end_ns: u64, begin_units: u128, curve: Curve) -> Piece {
        let units = fixed::from_f64(curve.units(seconds(end_ns - begin_ns)));
        Piece { begin_ns, end_ns, begin_units, end_units: begin_units.saturating_add(units), curve }
    }

    fn instant(&self, units: u128) -> u64 {
        let after_s = self.curve.seconds(fixed::to_f64(units - self.begin_units));
        self.begin_ns + ((after_s * 1e9 + 0.5) as u64).min(self.end_ns - self.begin_ns)
    }
}

/// The time after all pieces.
#[derive(Clone, Debug, PartialEq)]
struct Rest {
    begin_ns: u64,
    begin_units: u128,
    rate: f64,
    /// `None` where the rate is 0.
    ns_per_unit: Option<u128>,
}

impl Rest {
    fn new(begin_ns: u64, begin_units: u128, rate: f64) -> Rest {
        let ns_per_unit = (rate > 0.0).then(|| fixed::quotient(1e9, rate));
        Rest { begin_ns, begin_units, rate, ns_per_unit }
    }

    fn instant(&self, units: u128) -> Option<u64> {
        let after_ns = fixed::product(units - self.begin_units, self.ns_per_unit?)?;
        self.begin_ns.checked_add(after_ns)
    }
}

/// The rate as a function of the seconds since a piece began.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Curve {
    /// `rate + slope t`
    Linear { rate: f64, slope: f64 },
    /// `rate exp(growth t)`; the growth is not 0.
    Exponential { rate: f64, growth: f64 },
}

impl Curve {
    fn linear(from: f64, to: f64, over_ns: u64) -> Curve {
        Curve::Linear { rate: from, slope: (to - from) / seconds(over_ns) }
    }

    fn exponential(from: f64, to: f64, over_ns: u64) -> Curve {
        let growth = (libm::log(to) - libm::log(from)) / seconds(over_ns);
        if growth == 0.0 {
            Curve::Linear { rate: from, slope: 0.0 }
        } else {
            Curve::Exponential { rate: from, growth }
        }
    }

    fn rate(self, after_s: f64) -> f64 {
        match self {
            Curve::Linear { rate, slope } => (rate + slope * after_s).max(0.0),
            Curve::Exponential { rate, growth } => rate * libm::exp(growth * after_s),
        }
    }

    /// The integral of the rate.
    fn units(self, after_s: f64) -> f64 {
        match self {
            Curve::Linear { rate, slope } => after_s * (rate + 0.5 * slope * after_s),
            Curve::Exponential { rate, growth } => rate * libm::expm1(growth * after_s) / growth,
        }
    }

    /// The inverse of the integral.
    fn seconds(self, units: f64) -> f64 {
        match self {
            Curve::Linear { rate, slope } => {
                // The other form of the solution subtracts nearly equal numbers on a gentle slope.
                let root = (rate * rate + 2.0 * slope * units).max(0.0).sqrt();
                let sum = rate + root;
                if sum > 0.0 { 2.0 * units / sum } else { 0.0 }
            }
            Curve::Exponential { rate, growth } => libm::log1p(growth * units / rate) / growth,
        }
    }
}

fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e9
}

fn is_rate(rate: f64) -> bool {
    (RATE_MIN..=RATE_MAX).contains(&rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simpson's rule over 2000 steps.
    fn integrated(profile: &Profile, begin_ns: u64, end_ns: u64) -> f64 {
        let steps = 2000;
        let width_ns = (end_ns - begin_ns) / steps;
        let rate = |step: u64| profile.rate_at(begin_ns + step * width_ns);
        let inner: f64 = (1..steps).map(|i| rate(i) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
        (rate(0) + inner + profile.rate_at(end_ns - 1)) * width_ns as f64 / 3e9
    }

    #[test]
    fn expected_is_the_integral_of_the_rate() {
        let second = 1_000_000_000;
        let linear = Profile::linear(10.0, 1000.0, 8 * second).unwrap();
        assert_eq!(linear.expected(8 * second), 4040.0);
        assert_eq!(linear.expected(10 * second), 6040.0);
        let exponential = Profile::exponential(10.0, 1000.0, 8 * second).unwrap();
        // 990 / ln 100 x 8
        assert!((exponential.expected(8 * second) - 1_719.806_148_3).abs() < 1e-6);
        let flat = Profile::exponential(10.0, 10.0, 8 * second).unwrap();
        assert_eq!(flat.expected(8 * second), 80.0);
        for profile in [&linear, &exponential] {
            assert_eq!((profile.rate_at(0), profile.rate_at(8 * second)), (10.0, 1000.0));
            for end_ns in [second, 5 * second, 8 * second] {
                let numeric = integrated(profile, 0, end_ns);
                let exact = profile.expected(end_ns);
                assert!((numeric / exact - 1.0).abs() < 1e-6, "{numeric} {exact}");
            }
            let both =
                integrated(profile, 0, 8 * second) + integrated(profile, 8 * second, 9 * second);
            assert!((both / profile.expected(9 * second) - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn series_that_means_no_load_or_goes_back_is_refused() {
        let refused = |points: &[(u64, f64)]| Profile::series(points).unwrap_err();
        assert_eq!(refused(&[]), SeriesError::Empty);
        assert_eq!(refused(&[(0, 0.0), (5, 0.0)]), SeriesError::Zero);
        assert_eq!(refused(&[(0, 1.0), (5, 1.0), (4, 1.0)]), SeriesError::Time { index: 2 });
        for rate in [-1.0, f64::NAN, f64::INFINITY, 1.1e9, 1e-10] {
            assert_eq!(refused(&[(0, 1.0), (5, rate)]), SeriesError::Rate { index: 1 });
            assert_eq!(Profile::constant(rate), None);
            assert_eq!(Profile::linear(rate, 1.0, 1), None);
            assert_eq!(Profile::linear(1.0, rate, 1), None);
            assert_eq!(Profile::exponential(rate, 1.0, 1), None);
            assert_eq!(Profile::exponential(1.0, rate, 1), None);
        }
        assert_eq!(Profile::constant(0.0), None);
        assert_eq!(Profile::linear(1.0, 0.0, 1), None);
        assert_eq!(Profile::exponential(0.0, 1.0, 1), None);
        assert_eq!(Profile::linear(1.0, 2.0, 0), None);
        assert!(Profile::linear(0.0, 1e9, 1).is_some());
    }
}
