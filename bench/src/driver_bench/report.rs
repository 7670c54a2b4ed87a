//! The tables of a run, in Markdown.

use std::fs;

use clap::ValueEnum;
use sdam_bench::name;
use sdam_bench::table::Spread;

use crate::Arguments;
use crate::competitor::Competitor;
use crate::score::{PERCENTILES, Timings};
use crate::task::{Composite, Task};

/// The ratio of throughput to the best peer's that is the goal, and that of CPU time which is
/// enough instead.
const RATE_GOAL: f64 = 1.3;
const CPU_GOAL: f64 = 0.7;

/// The ratio of a composite score to that of the official driver which is the goal.
const COMPOSITE_GOAL: f64 = 1.5;

/// The timings of a task, in the order of the competitors; none of those who cannot do it.
pub(crate) struct Row {
    pub(crate) task: Task,
    pub(crate) timings: Vec<Option<Timings>>,
}

impl Row {
    /// Returns the score of a competitor, in megabytes in a second.
    fn score(&self, index: usize) -> Option<f64> {
        let timings = self.timings[index].as_ref()?;
        Some(self.task.megabytes() / timings.wall(50))
    }

    /// Returns the other driver with the best score.
    fn best_peer(&self, competitors: &[Competitor]) -> Option<usize> {
        let scored =
            |index: &usize| competitors[*index].is_peer() && self.timings[*index].is_some();
        let by_score = |one: &usize, other: &usize| {
            let [one, other] = [one, other].map(|index| self.score(*index).unwrap_or(0.0));
            one.total_cmp(&other)
        };
        (0..competitors.len()).filter(scored).max_by(by_score)
    }

    /// Returns the ratios of throughput and of CPU time to the best peer, and whether the goal is
    /// met.
    fn verdict(&self, competitors: &[Competitor], index: usize) -> Option<(f64, f64, bool)> {
        let peer = self.best_peer(competitors)?;
        let rate = self.score(index)? / self.score(peer)?;
        let cpu = self.timings[index].as_ref()?.cpu() / self.timings[peer].as_ref()?.cpu();
        Some((rate, cpu, rate >= RATE_GOAL || cpu <= CPU_GOAL))
    }
}

/// Prints all tables.
pub(crate) fn print(competitors: &[Competitor], rows: &[Row]) {
    print_tasks(competitors, rows);
    print_composites(competitors, rows);
    print_percentiles(competitors, rows);
}

/// Prints the throughput of each task, in MB/s, and the CPU time of an iteration, in ms; then the
/// ratios of this library's to the best peer.
fn print_tasks(competitors: &[Competitor], rows: &[Row]) {
    let own: Vec<usize> =
        (0..competitors.len()).filter(|index| competitors[*index].is_own()).collect();
    print_line(
        "task",
        competitors.iter().map(name),
        own.iter().map(|index| format!("{}: rate, CPU", name(&competitors[*index]))),
    );
    print_rule(competitors.len() + own.len());
    for row in rows {
        let figures = (0..competitors.len()).map(|index| {
            let timings = row.timings[index].as_ref();
            let cpu = timings.map(|timings| format!("{:.0}", timings.cpu() * 1e3));
            match (row.score(index), cpu) {
                (Some(score), Some(cpu)) => format!("{} ({cpu})", shown(score)),
                _ => "–".to_owned(),
            }
        });
        let verdicts = own.iter().map(|index| match row.verdict(competitors, *index) {
            Some((rate, cpu, is_met)) => {
                format!("{rate:.2}, {cpu:.2}{}", if is_met { "" } else { " missed" })
            }
            None => "–".to_owned(),
        });
        print_line(&name(&row.task), figures, verdicts);
    }
}

/// Prints the composite scores, of those tasks that a driver has, and the ratios of this library's
/// to the official driver's, of those tasks that both have.
fn print_composites(competitors: &[Competitor], rows: &[Row]) {
    let official = competitors.iter().position(|one| *one == Competitor::Mongodb);
    let own: Vec<usize> =
        (0..competitors.len()).filter(|index| competitors[*index].is_own()).collect();
    let score = |index: usize, task: Task| {
        rows.iter().find(|row| row.task == task).and_then(|row| row.score(index))
    };
    println!();
    print_line(
        "composite",
        competitors.iter().map(name),
        own.iter().map(|index| format!("{} to mongodb", name(&competitors[*index]))),
    );
    print_rule(competitors.len() + own.len());
    for composite in Composite::value_variants() {
        let all = composite.tasks().count();
        let figures = (0..competitors.len()).map(|index| {
            let count = composite.tasks().filter(|task| score(index, *task).is_some()).count();
            match composite.score(|task| score(index, task)) {
                Some(mean) if count == all => shown(mean),
                Some(mean) => format!("{} ({count} of {all})", shown(mean)),
                None => "–".to_owned(),
            }
        });
        let ratios = own.iter().map(|index| {
            let both = |one: usize, other: usize| {
                composite.score(|task| score(other, task).and_then(|_| score(one, task)))
            };
            let ratio = official.and_then(|it| Some(both(*index, it)? / both(it, *index)?));
            match ratio {
                Some(ratio) if ratio >= COMPOSITE_GOAL => format!("{ratio:.2}"),
                Some(ratio) => format!("{ratio:.2} missed"),
                None => "–".to_owned(),
            }
        });
        print_line(&name(composite), figures, ratios);
    }
}

/// Prints the percentiles of the times, in ms.
fn print_percentiles(competitors: &[Competitor], rows: &[Row]) {
    println!();
    let heads = PERCENTILES.iter().map(|percentile| format!("p{percentile}, ms"));
    print_line("task", ["driver", "iterations"].map(str::to_owned).into_iter(), heads);
    print_rule(2 + PERCENTILES.len());
    for row in rows {
        for (competitor, timings) in competitors.iter().zip(&row.timings) {
            let Some(timings) = timings else { continue };
            let times = PERCENTILES.iter().map(|at| shown(timings.wall(*at) * 1e3));
            let count = timings.0.len().to_string();
            print_line(&name(&row.task), [name(competitor), count].into_iter(), times);
        }
    }
}

fn print_line(head: &str, cells: impl Iterator<Item = String>, more: impl Iterator<Item = String>) {
    let cells: Vec<_> = std::iter::once(head.to_owned()).chain(cells).chain(more).collect();
    println!("| {} |", cells.join(" | "));
}

fn print_rule(cells: usize) {
    println!("| --- |{}", " ---: |".repeat(cells));
}

/// Prints what was measured where, and how noisy it was.
pub(crate) fn print_circumstances(arguments: &Arguments, rows: &[Row], load_before: &str) {
    let Arguments { seconds, iterations, warm_up, workers, .. } = arguments;
    let timings = || rows.iter().flat_map(|row| row.timings.iter().flatten());
    let noise = Spread::of(timings().map(Timings::noise));
    let counts = Spread::of(timings().map(|timings| timings.0.len() as f64));
    println!();
    println!(
        "At least {iterations} iterations and {seconds} s, or {} s; {warm_up} to warm up; \
         {workers} workers.",
        5.0 * seconds
    );
    println!("Iterations: {} to {}, {} in the median.", counts.min, counts.max, counts.median);
    println!(
        "The slowest iteration took {:.0} % of the median more than the fastest, in the median of \
         all cells, and {:.0} % at most.",
        noise.median * 100.0,
        noise.max * 100.0
    );
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor.lines().find_map(|line| line.strip_prefix("model name\t: "));
    let cores = processor.lines().filter(|line| line.starts_with("processor")).count();
    println!(
        "{cores} cores of {}; a load of {load_before} before and {} after.",
        model.unwrap_or("an unknown processor"),
        load()
    );
}

/// Returns the load of the machine in the last minute.
pub(crate) fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}

/// Writes a figure with three digits and more.
fn shown(figure: f64) -> String {
    let digits = match figure {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{figure:.digits$}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Row;
    use crate::competitor::Competitor::{Mongodb, Node, Sdam};
    use crate::score::{Timing, Timings};
    use crate::task::Task;

    fn timings(wall: u64, cpu: u64) -> Option<Timings> {
        let [wall, cpu] = [wall, cpu].map(Duration::from_millis);
        Some(Timings(vec![Timing { wall, cpu }]))
    }

    #[test]
    fn a_goal_is_about_the_best_peer_and_met_by_rate_or_by_processor_time() {
        let verdict = |own| {
            let timings = vec![own, timings(200, 10), timings(100, 100)];
            let row = Row { task: Task::FindMany, timings };
            row.verdict(&[Sdam, Mongodb, Node], 0)
        };
        assert_eq!(verdict(timings(50, 100)), Some((2.0, 1.0, true)));
        assert_eq!(verdict(timings(100, 50)), Some((1.0, 0.5, true)));
        assert_eq!(verdict(timings(100, 100)), Some((1.0, 1.0, false)));
        assert_eq!(verdict(None), None);
    }
}
