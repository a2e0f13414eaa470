//! How long must a run be, and how much of its start is not yet the steady state?

use super::{mean, normal_quantile};

/// Requests after which the mean latency is known to +-`half_width` of itself (0.05 for 5 %), for a
/// single server with exponential service, Poisson arrivals and the assumed utilisation `rho`,
/// above 0 and below 1.
///
/// Neighbouring requests meet the same queue, so this grows with 1/(1 - rho)^2. The variance of the
/// mean is that of Daley and Blomqvist for M/M/1.
pub fn requests_for_mean(rho: f64, half_width: f64, confidence: f64) -> u64 {
    let mean = 1.0 / (1.0 - rho);
    let z = normal_quantile(0.5 + confidence / 2.0);
    let variance = single_server_variance(rho);
    ((z / (half_width * mean)).powi(2) * variance).ceil() as u64
}

/// Requests of a single server that are worth one independent one.
pub fn correlation_requests(rho: f64) -> f64 {
    let variance_of_one = rho * (2.0 - rho) / (1.0 - rho).powi(2);
    single_server_variance(rho) / variance_of_one
}

/// Count times variance of the mean wait of many requests, in squares of the service time.
fn single_server_variance(rho: f64) -> f64 {
    rho * (2.0 + 5.0 * rho - 4.0 * rho.powi(2) + rho.powi(3)) / (1.0 - rho).powi(4)
}

/// The factor by which a run must be longer for an interval of `half_width` to shrink to `target`;
/// 1 if it is narrow enough.
pub fn extension_factor(half_width: f64, target: f64) -> f64 {
    (half_width / target).powi(2).max(1.0)
}

/// Values per batch of [`warmup_cut`].
const CUT_BATCH: usize = 5;
/// Batches at the end that no cut leaves alone: the error of very few batches is small by chance.
const CUT_TAIL: usize = 5;

/// How many values at the start to leave out, so that the error of the mean of the rest is
/// smallest (MSER-5); a multiple of 5. `None` if there are fewer than 50 or the cut would fall in
/// the second half, so that the series never settled.
pub fn warmup_cut(values: &[f64]) -> Option<usize> {
    let batches: Vec<f64> = values.chunks_exact(CUT_BATCH).filter_map(mean).collect();
    if batches.len() < 2 * CUT_TAIL {
        return None;
    }
    // From the end, so that each cut adds one batch to the sums of the one after it. Values about
    // the total mean keep the difference of the sums exact enough.
    let center = mean(&batches)?;
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best = (f64::INFINITY, 0);
    for (cut, batch) in batches.iter().enumerate().rev() {
        sum += batch - center;
        squares += (batch - center).powi(2);
        let left = (batches.len() - cut) as f64;
        let error = (squares - sum.powi(2) / left).max(0.0) / left.powi(2);
        if batches.len() - cut >= CUT_TAIL && error <= best.0 {
            best = (error, cut);
        }
    }
    (best.1 <= batches.len() / 2).then_some(best.1 * CUT_BATCH)
}

#[cfg(test)]
mod tests {
    use super::super::Draws;
    use super::super::simulation::{normal, single_server};
    use super::*;

    #[test]
    fn requests_grow_steeply_with_the_load() {
        for (rho, thousands, tau) in [(0.5, 11.0, 9.7), (0.8, 121.0, 82.0), (0.9, 552.0, 363.0)] {
            let requests = requests_for_mean(rho, 0.05, 0.95) as f64;
            assert_eq!((requests / 1000.0).round(), thousands);
            assert!((correlation_requests(rho) / tau - 1.0).abs() < 0.01, "{rho}");
        }
    }

    #[test]
    fn planned_requests_give_the_planned_error() {
        let requests = requests_for_mean(0.5, 0.10, 0.95) as usize;
        let inside = (0..200).filter(|seed| {
            let times = single_server(&mut Draws(*seed), 0.5, requests);
            mean(&times).is_some_and(|mean| (mean / 2.0 - 1.0).abs() <= 0.10)
        });
        let share = inside.count() as f64 / 200.0;
        assert!((0.90..=0.99).contains(&share), "{share}");
    }

    #[test]
    fn half_the_width_takes_four_times_the_run() {
        assert_eq!(extension_factor(0.10, 0.05), 4.0);
        assert_eq!(extension_factor(0.04, 0.05), 1.0);
    }

    #[test]
    fn a_slow_start_is_cut_where_it_ends() {
        let mut draws = Draws(2);
        let noise: Vec<f64> = (0..1000).map(|_| normal(&mut draws)).collect();
        let cut = warmup_cut(&noise).expect("steady");
        assert!(cut <= 100, "{cut}");
        let warming = |until: usize| {
            let start = |index: usize| if index < until { 10.0 } else { 0.0 };
            noise.iter().enumerate().map(|(i, value)| value + start(i)).collect::<Vec<f64>>()
        };
        let cut = warmup_cut(&warming(200)).expect("settles");
        assert!((200..=300).contains(&cut), "{cut}");
        assert_eq!(warmup_cut(&warming(700)), None);
        assert_eq!(warmup_cut(&noise[..49]), None);
        assert_eq!(warmup_cut(&[3.0; 100]), Some(0));
    }
}
