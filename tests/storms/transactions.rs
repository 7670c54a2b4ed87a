//! Transactions on a real replica set whose primary is killed, stopped and steps down, again and
//! again: money that neither comes nor goes, and lists whose history shows whether transactions are
//! isolated. What was acknowledged lasts; what was not is there whole, or not at all.

mod attempts;
mod bank;
mod lists;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sdam::Client;
use sdam_conformance::mongod::ReplicaSet;
use sdam_core::rng::Rng;
use sdam_simulation::histories::Outcome;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::faults::{Fault, print_recoveries};
use crate::real::{self, GENEROUS, Storm};
use crate::storm::at_rest;
use crate::support::soon;
use attempts::{Failure, Ran, Tally};
use bank::{Audits, Bank};
use lists::Lists;

/// The tasks of each application: tellers, writers of lists, auditors.
const TASKS: [u64; 3] = [4, 4, 2];

/// The number of transactions that each application commits before a fault, and after it: more than
/// may have been under way.
const MORE: u64 = 10;

/// The time that this may take: more than the two minutes after which a transaction fails, whose
/// error says more.
const LIMIT: Duration = Duration::from_secs(150);

/// The time that servers keep transactions which nothing goes on with, and that others wait for: as
/// of a client whose first command comes after its abort.
pub(crate) const LIFETIME: &str = "transactionLifetimeLimitSeconds=10";

/// The pause of a task between two transactions, so that the servers have something left for
/// elections.
const PAUSE: Duration = Duration::from_millis(20);

/// An application that runs transactions.
trait Application: Send + Sync + 'static {
    /// Runs one.
    fn once(&self, rng: &mut Rng) -> impl Future<Output = Result<Ran, Failure>> + Send;
}

/// The truth about transactions whose outcome was unknown.
#[derive(Default)]
struct Resolved {
    done: usize,
    not_done: usize,
}

impl Resolved {
    const fn note(&mut self, is_there: bool) {
        match is_there {
            true => self.done += 1,
            false => self.not_done += 1,
        }
    }
}

impl fmt::Display for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the unknown done, {} not", self.done, self.not_done)
    }
}

pub(crate) const STORM: (&str, Storm) = ("transactions_outlast_primaries", storm);

/// Puts a set of three under transactions while faults happen, and looks at what is left of them.
fn storm(runtime: &Runtime, set: &mut ReplicaSet) -> crate::Outcome {
    runtime.block_on(endure(set)).map_err(|error| error as Box<dyn Error>)
}

/// Runs transactions while faults happen.
async fn endure(set: &mut ReplicaSet) -> Result<(), Failure> {
    let faults = Fault::all()?;
    let client = Client::connect(real::uri(set)).await?;
    let bank = Arc::new(Bank::open(&client).await?);
    let lists = Arc::new(Lists::open(&client, faults.len()).await?);
    let mut load = Load::start(&bank, &lists);
    let mut recoveries = Vec::new();
    for (number, fault) in faults.into_iter().enumerate() {
        lists.turn_to(number);
        recoveries.push((fault, befall(fault, set, &mut load).await?));
    }
    let tallies = load.end().await?;
    set.wait_until_settled(GENEROUS)?;
    let [of_bank, of_lists] = [bank.check().await?, lists.check().await?];
    print_recoveries(&recoveries);
    eprintln!("transfers: {}; {of_bank}", tallies[0]);
    eprintln!("lists: {}; {of_lists}", tallies[1]);
    eprintln!("audits: {}", tallies[2]);
    soon(at_rest(&client.topology().members())).await;
    client.close().await;
    Ok(())
}

/// Lets a fault happen to the primary of a set that is whole; returns how long it took until all
/// applications had committed something after it.
async fn befall(fault: Fault, set: &mut ReplicaSet, load: &mut Load) -> Result<Duration, Failure> {
    let (primary, _) = real::old(set).map_err(|error| error.to_string())?;
    load.goes_on().await?;
    let begun = Instant::now();
    fault.begin(set, primary)?;
    load.goes_on().await?;
    let recovery = begun.elapsed();
    fault.end(set, primary)?;
    Ok(recovery)
}

/// Tasks that run transactions until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Result<(usize, Tally), Failure>>,
    /// The number of transactions that each application has committed.
    committed: watch::Receiver<[u64; TASKS.len()]>,
}

impl Load {
    fn start(bank: &Arc<Bank>, lists: &Arc<Lists>) -> Self {
        let (committing, committed) = watch::channel([0; TASKS.len()]);
        let mut load = Self { stop: Arc::default(), tasks: JoinSet::new(), committed };
        let audits = Arc::new(Audits(Arc::clone(bank)));
        load.add(0, bank, &committing);
        load.add(1, lists, &committing);
        load.add(2, &audits, &committing);
        load
    }

    fn add<A: Application>(
        &mut self,
        kind: usize,
        application: &Arc<A>,
        committing: &watch::Sender<[u64; TASKS.len()]>,
    ) {
        for seed in 0..TASKS[kind] {
            let (application, stop) = (Arc::clone(application), Arc::clone(&self.stop));
            let committing = committing.clone();
            self.tasks.spawn(async move {
                let (mut rng, mut tally) = (Rng::new(seed), Tally::default());
                while !stop.load(Ordering::Relaxed) {
                    let ran = application.once(&mut rng).await?;
                    if ran.outcome == Outcome::Committed {
                        committing.send_modify(|committed| committed[kind] += 1);
                    }
                    tally.note(&ran);
                    tokio::time::sleep(PAUSE).await;
                }
                Ok((kind, tally))
            });
        }
    }

    /// Waits until each application has committed some more.
    async fn goes_on(&mut self) -> Result<(), Failure> {
        let before = *self.committed.borrow();
        let has_more = |now: &[u64; TASKS.len()]| {
            now.iter().zip(before).all(|(now, before)| *now >= before + MORE)
        };
        let is_late = tokio::select! {
            more = tokio::time::timeout(LIMIT, self.committed.wait_for(has_more)) => more.is_err(),
            Some(ended) = self.tasks.join_next() => {
                ended??;
                return Err("a task has ended before it was stopped".into());
            }
        };
        match is_late {
            true => {
                let now = *self.committed.borrow();
                Err(format!("commits went from {before:?} to {now:?} in {LIMIT:?}").into())
            }
            false => Ok(()),
        }
    }

    /// Ends the load, and returns what became of the transactions of each application.
    async fn end(mut self) -> Result<[Tally; TASKS.len()], Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let mut tallies = <[Tally; TASKS.len()]>::default();
        while let Some(ended) = soon(self.tasks.join_next()).await {
            let (kind, tally) = ended??;
            tallies[kind].add(&tally);
        }
        Ok(tallies)
    }
}
