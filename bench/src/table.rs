//! The figures of all rounds, as a table.

use crate::sample::Sample;

/// Prints one row for each competitor; `samples` are those of its rounds. The first row is what the
/// others are compared with.
pub fn print(title: &str, competitors: &[String], samples: &[Vec<Sample>]) {
    let allocations = if cfg!(feature = "allocations") { "  allocations" } else { "" };
    println!("\n{title}");
    println!(
        "{:<13} {:>10} {:>17}  {:>11} {:>17}  {:>6} {:>6}{allocations}",
        "", "per second", "min..max", "CPU us each", "min..max", "rate x", "CPU x"
    );
    for (competitor, own) in competitors.iter().zip(samples) {
        let rate = Spread::of(own.iter().map(Sample::per_second));
        let cpu = Spread::of(own.iter().map(Sample::cpu_each));
        let ratio = |figure: fn(&Sample) -> f64| {
            Spread::of_ratios(own.iter().map(figure), samples[0].iter().map(figure))
        };
        print!(
            "{:<13} {:>10.0} {:>17}  {:>11.1} {:>17}  {:>6.2} {:>6.2}",
            competitor,
            rate.median,
            format!("{:.0}..{:.0}", rate.min, rate.max),
            cpu.median,
            format!("{:.1}..{:.1}", cpu.min, cpu.max),
            ratio(Sample::per_second).median,
            ratio(Sample::cpu_each).median,
        );
        if cfg!(feature = "allocations") {
            print!("  {:>11.1}", Spread::of(own.iter().map(Sample::allocations_each)).median);
        }
        println!();
    }
}

/// The least, the middle and the most of some figures; of none, not a number.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The middle, or the mean of both.
    pub median: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// Sorts them.
    pub fn of(figures: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.collect();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let last = sorted.len().saturating_sub(1);
        let median = f64::midpoint(at(last / 2), at(last.div_ceil(2)));
        Self { min: at(0), median, max: at(last) }
    }

    /// Compares figures with others, round by round, so that noise which met the whole round
    /// cancels out.
    pub fn of_ratios(
        figures: impl Iterator<Item = f64>,
        others: impl Iterator<Item = f64>,
    ) -> Self {
        Self::of(figures.zip(others).map(|(figure, other)| figure / other))
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn ratios_are_those_of_each_round() {
        let spread = Spread::of_ratios([2.0, 30.0, 8.0].into_iter(), [1.0, 10.0, 8.0].into_iter());
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.0, 3.0));
    }

    #[test]
    fn the_middle_of_two_is_their_mean_and_of_none_no_number() {
        assert_eq!(Spread::of([4.0, 1.0].into_iter()).median, 2.5);
        assert!(Spread::of(std::iter::empty()).median.is_nan());
    }
}
