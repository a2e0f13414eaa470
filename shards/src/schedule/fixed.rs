//! Unsigned fixed point numbers: 64 bits before the point and 64 after it, in a `u128`.

/// `number` as it is.
pub(super) fn whole(number: u64) -> u128 {
    u128::from(number) << 64
}

/// The nearest number not above; 0 for what is negative, the largest for what is too large.
pub(super) fn from_f64(number: f64) -> u128 {
    let integer = number as u64;
    let fraction = ((number - integer as f64) * TWO_64) as u64;
    whole(integer) | u128::from(fraction)
}

/// Rounded to 53 bits.
pub(super) fn to_f64(number: u128) -> f64 {
    (number >> 64) as u64 as f64 + number as u64 as f64 / TWO_64
}

/// `dividend / divisor`, for a divisor of 1e-9 to 1e9 and a quotient of 1 to 2^62: exact to the
/// last of the 64 places or to 100 significant bits, where one division of `f64` has only 53.
pub(super) fn quotient(dividend: f64, divisor: f64) -> u128 {
    let near = dividend / divisor;
    // The remainder of a division is exact with a fused multiply-add.
    let rest = libm::fma(-near, divisor, dividend) / divisor;
    let correction = from_f64(rest.abs());
    if rest < 0.0 { from_f64(near) - correction } else { from_f64(near) + correction }
}

/// The product rounded to the nearest integer; `None` if it is 2^64 or more. `right` is below 2^62.
pub(super) fn product(left: u128, right: u128) -> Option<u64> {
    let (left_whole, left_part) = (left >> 64, left & PART);
    let (right_whole, right_part) = (right >> 64, right & PART);
    let first = left_whole * right_part;
    // Below 2^126 + 2^64.
    let second = left_part * right_whole + ((left_part * right_part) >> 64);
    let below_point = (first & PART) + (second & PART) + (1 << 63);
    let sum = left_whole * right_whole + (first >> 64) + (second >> 64) + (below_point >> 64);
    u64::try_from(sum).ok()
}

const PART: u128 = u64::MAX as u128;
const TWO_64: f64 = 18_446_744_073_709_551_616.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_all_their_bits() {
        assert_eq!(from_f64(0.0), 0);
        assert_eq!(from_f64(1.5), (1 << 64) | (1 << 63));
        assert_eq!(from_f64(f64::EPSILON), 1 << 12);
        assert_eq!(from_f64(-3.0), 0);
        assert_eq!(from_f64(f64::INFINITY), u128::MAX);
        assert_eq!(from_f64(f64::NAN), 0);
        for number in [0.0, 0.1, 1.0 / 3.0, 36.7, 1e10, 1e10 + 0.25, 1e18] {
            assert_eq!(to_f64(from_f64(number)), number);
        }
    }

    #[test]
    fn quotients_are_exact_to_the_last_place() {
        // (1e9 << 64) / divisor in whole numbers.
        for divisor in [1u64, 3, 7, 1000, 999_999_937, 1_000_000_000] {
            let exact = whole(1_000_000_000) / u128::from(divisor);
            let found = quotient(1e9, divisor as f64);
            assert!(found.abs_diff(exact) <= 1, "{divisor}: {found} {exact}");
        }
        // A plain division would be wrong by up to 2^-25 ns here: 2^39 units in the last place.
        let plain = from_f64(1e9 / 3.0);
        assert!(plain.abs_diff(whole(1_000_000_000) / 3) > 1 << 30);
        // 1e-9 is not 1e-9 in binary. Of the 124 bits, 100 are right.
        let long = quotient(1e9, 1e-9);
        assert!(long.abs_diff(18_446_744_073_709_550_467_107_421_875_000_071_554) < 1 << 24);
    }

    #[test]
    fn products_round_to_the_nearest_integer_or_are_none() {
        let third = whole(1_000_000_000) / 3;
        assert_eq!(product(whole(30), third), Some(10_000_000_000));
        assert_eq!(product(1 << 63, whole(3)), Some(2));
        assert_eq!(product((1 << 63) - 1, whole(3)), Some(1));
        assert_eq!(product(u128::MAX, whole(1)), None);
        assert_eq!(product(u128::MAX, 1 << 63), Some(1 << 63));
        assert_eq!(product(u128::MAX, u128::MAX >> 2), None);
        assert_eq!(product(whole(u64::MAX), whole(1)), Some(u64::MAX));
        assert_eq!(product(0, whole(5)), Some(0));
        // After 2e10 gaps of a third of a second, still exact to the nanosecond.
        assert_eq!(product(whole(20_000_000_001), third), Some(6_666_666_667_000_000_000));
    }
}
