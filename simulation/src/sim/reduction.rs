//! The parts of a simulation that are left out: its seed draws all of it, and less of that happens.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sdam_core::time::Instant;

use super::fault::Fault;
use super::plan::Plan;
use super::shrink::Outline;

/// The parts of a simulation that are left out. The rest happens as it would have, as far as it
/// does not depend on what is left out: everything draws from a stream of its own.
///
/// Its text, as in `clients=0/faults=2,5/beginning=2:0,5:900/lasting=5:250/work=0-2000/calm=1150`,
/// is what the runner takes; times are in milliseconds. Faults and clients are numbered from 0, as
/// they are drawn. Nothing happens later, or for longer, than it is drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reduction {
    /// The clients there are; all if `None`.
    pub clients: Option<Vec<usize>>,
    /// The faults that happen; all if `None`.
    pub faults: Option<Vec<usize>>,
    /// At which millisecond a fault begins, if not as late as drawn.
    pub beginning: BTreeMap<usize, u64>,
    /// The number of milliseconds that a fault lasts, if not as long as drawn.
    pub lasting: BTreeMap<usize, u64>,
    /// From which millisecond to which operations begin, if not as drawn.
    pub work: Option<(u64, u64)>,
    /// At which millisecond all faults are over and views begin to be waited for, if not as drawn.
    pub calm: Option<u64>,
    /// At which millisecond all clients are closed, whatever they know by then, if not as soon as
    /// their views have been right for a while; all faults are over before.
    pub close: Option<u64>,
}

/// The reason why a text says nothing that can be left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReductionError {
    /// A part of the text is malformed.
    #[error(
        "{0:?} is none of clients=NUMBERS, faults=NUMBERS, beginning=FAULT:MS,…, \
         lasting=FAULT:MS,…, work=MS-MS, calm=MS and close=MS, with / between them, as in \
         clients=0/faults=2,5/beginning=2:0,5:900/work=0-9000"
    )]
    Malformed(String),
    /// There is no such fault or client.
    #[error("there is no {what} {number}; this seed draws {count}, numbered from 0")]
    Unknown {
        /// A fault or a client.
        what: &'static str,
        /// Its number.
        number: usize,
        /// Their number.
        count: usize,
    },
}

impl Reduction {
    /// Returns whether nothing is left out.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn has_fault(&self, index: usize) -> bool {
        self.faults.as_ref().is_none_or(|faults| faults.contains(&index))
    }

    pub(super) fn has_client(&self, index: usize) -> bool {
        self.clients.as_ref().is_none_or(|clients| clients.contains(&index))
    }

    /// Returns when all clients are closed in a plan that this was taken out of, if that is said.
    pub(super) fn closes(&self, plan: &Plan) -> Option<Instant> {
        self.close.map(|millis| at(millis).max(plan.calm))
    }

    /// Takes it out of a plan.
    pub(super) fn apply(&self, plan: &mut Plan) {
        self.apply_to(&mut plan.faults);
        if let Some((from, to)) = self.work {
            for client in &mut plan.clients {
                client.workload_begins = at(from);
                client.workload_ends = client.workload_ends.min(at(to));
            }
        }
        plan.calm = self.calm(plan.calm);
        plan.reduction = self.clone();
    }

    /// Returns when all faults have ended, which was drawn to be then.
    pub(super) fn calm(&self, drawn: Instant) -> Instant {
        self.calm.map_or(drawn, |millis| drawn.min(at(millis)))
    }

    /// Has faults begin and end as it says.
    pub(super) fn apply_to(&self, faults: &mut [Fault]) {
        for (index, fault) in faults.iter_mut().enumerate() {
            fault.clients.retain(|client| self.has_client(*client));
            if let Some(millis) = self.beginning.get(&index) {
                let lasts = fault.lasts();
                fault.begins = fault.begins.min(at(*millis));
                fault.ends = fault.begins + lasts;
            }
            if let Some(millis) = self.lasting.get(&index) {
                fault.ends = fault.ends.min(fault.begins + Duration::from_millis(*millis));
            }
        }
    }

    /// Fails if it names what is not there.
    pub(super) fn check(&self, plan: &Outline) -> Result<(), ReductionError> {
        let known = |what, count, numbers: &mut dyn Iterator<Item = &usize>| {
            let mut unknown = numbers.filter(|number| **number >= count);
            unknown.next().map_or(Ok(()), |number| {
                Err(ReductionError::Unknown { what, number: *number, count })
            })
        };
        known("client", plan.clients, &mut self.clients.iter().flatten())?;
        let faults = self.faults.iter().flatten();
        let faults = faults.chain(self.beginning.keys()).chain(self.lasting.keys());
        known("fault", plan.faults.len(), &mut { faults })
    }
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |numbers: &[usize]| {
            let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
            numbers.join(",")
        };
        let each = |name: &str, millis: &BTreeMap<usize, u64>| {
            let each: Vec<String> =
                millis.iter().map(|(fault, millis)| format!("{fault}:{millis}")).collect();
            (!each.is_empty()).then(|| format!("{name}={}", each.join(",")))
        };
        let parts = [
            self.clients.as_deref().map(|clients| format!("clients={}", list(clients))),
            self.faults.as_deref().map(|faults| format!("faults={}", list(faults))),
            each("beginning", &self.beginning),
            each("lasting", &self.lasting),
            self.work.map(|(from, to)| format!("work={from}-{to}")),
            self.calm.map(|millis| format!("calm={millis}")),
            self.close.map(|millis| format!("close={millis}")),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join("/"))
    }
}

impl FromStr for Reduction {
    type Err = ReductionError;

    fn from_str(text: &str) -> Result<Self, ReductionError> {
        let mut reduction = Self::default();
        for part in text.split('/') {
            let malformed = || ReductionError::Malformed(part.to_owned());
            reduction.read(part).ok_or_else(malformed)?;
        }
        Ok(reduction)
    }
}

impl Reduction {
    fn read(&mut self, part: &str) -> Option<()> {
        let (name, value) = part.split_once('=')?;
        let numbers = || {
            let numbers = value.split(',').filter(|number| !number.is_empty());
            numbers.map(|number| number.parse::<usize>().ok()).collect::<Option<Vec<_>>>()
        };
        let of_faults = || {
            let entries = value.split(',').map(|entry| {
                let (fault, millis) = entry.split_once(':')?;
                Some((fault.parse().ok()?, millis.parse().ok()?))
            });
            entries.collect::<Option<BTreeMap<usize, u64>>>()
        };
        match name {
            "clients" => self.clients = Some(numbers()?),
            "faults" => self.faults = Some(numbers()?),
            "beginning" => self.beginning = of_faults()?,
            "lasting" => self.lasting = of_faults()?,
            "work" => {
                let (from, to) = value.split_once('-')?;
                self.work = Some((from.parse().ok()?, to.parse().ok()?));
            }
            "calm" => self.calm = Some(value.parse().ok()?),
            "close" => self.close = Some(value.parse().ok()?),
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Reduction, ReductionError};

    #[test]
    fn a_reduction_reads_back_as_it_is_written() {
        for text in [
            "clients=0",
            "faults=",
            "clients=0,2/faults=1,5/beginning=1:0,5:40/lasting=1:20,5:250/work=1000-2000/calm=30000\
             /close=30000",
        ] {
            let read: Reduction = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_reduction_is_refused_with_what_is_allowed() {
        for text in
            ["", "faults", "faults=x", "work=1", "beginning=3", "lasting=3", "close=", "a=b"]
        {
            let error = text.parse::<Reduction>().unwrap_err();
            assert!(matches!(error, ReductionError::Malformed(_)), "{text}: {error}");
            assert!(error.to_string().contains("beginning=FAULT:MS,…"), "{error}");
        }
    }
}
