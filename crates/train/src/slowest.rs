//! Which of the processes of a run holds up the others, and by what.
//!
//! All take the same steps, so the slowest of them sets the pace: the others wait for it. Each process takes the time of what it
//! does; the numbers travel with what all exchange in every step anyway.

use std::fmt;

use crate::run::Record;

/// The time, in seconds, after which it is judged who is slow: less says little.
const JUDGED_AFTER: f64 = 1.0;
/// Share of the time that the others must lose before a process is called slow.
const CLEARLY: f64 = 0.1;

/// What a process has done with its time, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spent {
    /// All of it.
    pub whole: f64,
    /// Waiting for data.
    pub data: f64,
    /// With the other processes, above all waiting for them.
    pub others: f64,
}

impl Spent {
    /// The numbers that travel.
    pub(crate) fn to_numbers(self) -> [f64; 3] {
        [self.whole, self.data, self.others]
    }

    /// The counterpart.
    pub(crate) fn of_numbers(numbers: &[f64]) -> Self {
        let number = |i: usize| numbers.get(i).copied().unwrap_or(0.0);
        Self { whole: number(0), data: number(1), others: number(2) }
    }

    /// What the others have to wait for.
    fn own(self) -> f64 {
        self.whole - self.others
    }

    fn compute(self) -> f64 {
        self.own() - self.data
    }
}

/// What makes a process slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It waits for its data.
    Data,
    /// It computes for longer.
    Compute,
}

/// A process that is clearly behind the others. Shares are of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slowest {
    /// Its number.
    pub rank: usize,
    /// Above all.
    pub cause: Cause,
    /// Share in which it waits for data.
    pub data: f64,
    /// Share in which it computes.
    pub compute: f64,
    /// Share that each of the others loses, in the mean.
    pub lost: f64,
}

impl fmt::Display for Slowest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| (100.0 * share).round();
        let (rank, lost) = (self.rank, percent(self.lost));
        match self.cause {
            Cause::Data => write!(
                f,
                "process {rank} waits for data {} % of the time, which holds up the others for {lost} %: its disk is slower, or \
                 too few threads read for it",
                percent(self.data)
            ),
            Cause::Compute => write!(
                f,
                "process {rank} computes {} % of the time, which holds up the others for {lost} %: its cores are slower, or \
                 shared with something else",
                percent(self.compute)
            ),
        }
    }
}

impl Slowest {
    /// Adds it to the record of a step.
    pub(crate) fn note_in(&self, record: Record) -> Record {
        record
            .whole("slowest_process", self.rank as i64)
            .number("slowest_data_wait", self.data)
            .number("slowest_compute", self.compute)
            .number("wait_for_slowest", self.lost)
    }
}

/// Compares the processes of a run.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    spent: Vec<Spent>,
    last: Option<(usize, Cause)>,
    said: Vec<(usize, Cause)>,
}

impl Comparison {
    /// Takes into account what each process has done since the last time; who is clearly behind, where that is known now.
    pub(crate) fn add(&mut self, all: &[Spent]) -> Option<Slowest> {
        self.spent.resize(all.len(), Spent::default());
        for (sum, spent) in self.spent.iter_mut().zip(all) {
            sum.whole += spent.whole;
            sum.data += spent.data;
            sum.others += spent.others;
        }
        if all.len() < 2 || self.spent.iter().any(|spent| spent.whole < JUDGED_AFTER) {
            return None;
        }
        slowest(&std::mem::take(&mut self.spent))
    }

    /// Whether a person should be told: once of the same thing, and only of what was so the last time too. Processes that share busy
    /// cores are slow in turn.
    pub(crate) fn is_news(&mut self, slowest: &Slowest) -> bool {
        let now = (slowest.rank, slowest.cause);
        let is_lasting = self.last.replace(now) == Some(now);
        let is_news = is_lasting && !self.said.contains(&now);
        if is_news {
            self.said.push(now);
        }
        is_news
    }
}

/// The process that the others wait for, if they lose much by it.
fn slowest(all: &[Spent]) -> Option<Slowest> {
    let (rank, slow) = all.iter().enumerate().max_by(|(_, a), (_, b)| a.own().total_cmp(&b.own()))?;
    let mean_of_others = |of: fn(Spent) -> f64| {
        let sum: f64 = all.iter().enumerate().filter(|(other, _)| *other != rank).map(|(_, spent)| of(*spent)).sum();
        sum / (all.len() - 1) as f64
    };
    let data = slow.data - mean_of_others(|spent| spent.data);
    let compute = slow.compute() - mean_of_others(Spent::compute);
    let lost = (data + compute) / slow.whole;
    let cause = if data >= compute { Cause::Data } else { Cause::Compute };
    let found = Slowest { rank, cause, data: slow.data / slow.whole, compute: slow.compute() / slow.whole, lost };
    (lost >= CLEARLY).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(data: f64, others: f64) -> Spent {
        Spent { whole: 10.0, data, others }
    }

    #[test]
    fn the_slow_one_is_named_with_what_it_does() {
        let mut comparison = Comparison::default();
        let found = comparison.add(&[spent(0.1, 3.9), spent(0.0, 4.0), spent(4.0, 0.2), spent(0.1, 4.0)]).unwrap();
        assert_eq!((found.rank, found.cause), (2, Cause::Data));
        let words = found.to_string();
        assert!(
            words.starts_with("process 2 waits for data 40 % of the time, which holds up the others for 38 %:"),
            "{words}"
        );
        let first = found;
        assert_eq!([(); 3].map(|()| comparison.is_news(&first)), [false, true, false], "when it lasts, and once");
        let found = comparison.add(&[spent(0.1, 0.1), spent(0.1, 5.0)]).unwrap();
        assert_eq!((found.rank, found.cause), (0, Cause::Compute));
        assert!(found.to_string().starts_with("process 0 computes 98 % of the time"), "{found}");
        // In turn, as where cores are shared: nobody is told.
        assert!(![found, first, found, first].iter().any(|slowest| comparison.is_news(slowest)));
        assert_eq!([(); 2].map(|()| comparison.is_news(&found)), [false, true]);
    }

    #[test]
    fn the_log_has_who_is_slow_and_the_shares_of_its_time() {
        let found = Comparison::default().add(&[spent(0.0, 7.0), spent(0.0, 5.0), spent(5.0, 2.0)]).unwrap();
        let written: serde_json::Value = serde_json::from_str(&found.note_in(Record::new(3)).to_json()).unwrap();
        let expected = serde_json::json!({
            "step": 3, "slowest_process": 2, "slowest_data_wait": 0.5, "slowest_compute": 0.3, "wait_for_slowest": 0.4,
        });
        assert_eq!(written, expected);
    }

    #[test]
    fn nobody_is_slow_where_all_are_alike_or_alone_or_little_is_known() {
        let mut comparison = Comparison::default();
        assert_eq!(comparison.add(&[spent(3.0, 0.5), spent(3.1, 0.4)]), None);
        assert_eq!(comparison.add(&[spent(9.0, 0.0)]), None);
        let short = |data: f64, others: f64| Spent { whole: 0.4, data, others };
        let mut comparison = Comparison::default();
        assert_eq!(comparison.add(&[short(0.0, 0.3), short(0.3, 0.0)]), None);
        assert_eq!(comparison.add(&[short(0.0, 0.3), short(0.3, 0.0)]), None);
        assert_eq!(comparison.add(&[short(0.0, 0.3), short(0.3, 0.0)]).unwrap().rank, 1, "it adds up");
    }
}
