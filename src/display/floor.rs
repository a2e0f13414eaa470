//! The line that sets a result beside this host's floor.

use std::fmt::Write;

use super::time;
use crate::report::Floor;

/// What an endpoint that does nothing gives on this host, and how much of the result that is.
/// `service_p50_ns`: of the run.
pub fn line(floor: &Floor, service_p50_ns: Option<u64>) -> String {
    let pair = |name: &str, p50_ns: Option<u64>, p99_ns: Option<u64>| {
        let figures = [("p50", p50_ns), ("p99", p99_ns)];
        let known = figures.into_iter().filter_map(|(p, ns)| Some(format!(" {p} {}", time(ns?))));
        let known: String = known.collect();
        (!known.is_empty()).then(|| format!("{name}{known}"))
    };
    let service = pair("service", floor.service_p50_ns, floor.service_p99_ns);
    let lateness = pair("lateness", floor.lateness_p50_ns, floor.lateness_p99_ns);
    let figures: Vec<String> = service.into_iter().chain(lateness).collect();
    if figures.is_empty() {
        return "  floor        too few answers in 1 s to tell this host's".to_owned();
    }
    let mut line = format!("  floor        this host's: {}", figures.join(", "));
    if let (Some(floor_ns), Some(p50_ns @ 1..)) = (floor.service_p50_ns, service_p50_ns) {
        let share = 100.0 * floor_ns as f64 / p50_ns as f64;
        match floor_ns > p50_ns {
            true => line.push_str("; above your p50, so something disturbed it: measure again"),
            false => write!(line, "; {share:.0} % of your p50").expect("a string takes any text"),
        }
    }
    if floor.is_shared {
        line.push_str(" (its endpoint shared a core with us, so it is lower in truth)");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_told_beside_the_median_of_the_run() {
        let floor = Floor {
            service_p50_ns: Some(21_000),
            service_p99_ns: Some(60_000),
            ..Floor::default()
        };
        assert_eq!(
            line(&floor, Some(52_500)),
            "  floor        this host's: service p50 21 µs p99 60 µs; 40 % of your p50"
        );
        let open = Floor { lateness_p50_ns: Some(80), is_shared: true, ..floor };
        assert_eq!(
            line(&open, None),
            "  floor        this host's: service p50 21 µs p99 60 µs, lateness p50 80 ns (its \
             endpoint shared a core with us, so it is lower in truth)"
        );
        let slower = line(&open, Some(20_000));
        assert!(slower.contains("above your p50") && !slower.contains('%'), "{slower}");
        assert!(line(&Floor::default(), Some(1)).contains("too few"));
    }
}
