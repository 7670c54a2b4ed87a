//! Uploads under the `_id` of another one, which are given up: they must leave the chunks of that
//! where they are.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::super::super::checks::Source;
use super::uploading::{End, LARGE, MOST_LARGE, Writing};
use super::{Keeper, bucket};

/// The part of uploads under an `_id` of the application's choice that have a rival.
const RIVALLED: u64 = 25;

/// The same, for those of several batches.
const LARGE_RIVALLED: u64 = 60;

/// The number of rivals of such chunks in a simulation, besides files.
const MORE_LARGE: u32 = 3;

/// The times after which the two uploads begin.
#[derive(Clone, Copy, Debug)]
enum Order {
    Beside {
        main: Duration,
        rival: Duration,
    },
    /// The rival begins that long after the other one has ended.
    After(Duration),
}

/// An upload under the `_id` of another one, by the same client or another.
pub(super) struct Rival {
    keeper: Keeper,
    writing: Writing,
    order: Order,
}

impl Rival {
    /// Draws a rival of an upload, or none.
    pub(super) fn draw(keeper: &mut Keeper, main: &Writing) -> Option<Self> {
        let id = main.id.clone()?;
        let is_large = main.source.chunk_size == LARGE;
        let chance = if is_large { LARGE_RIVALLED } else { RIVALLED };
        if !keeper.application.random.percent(chance) {
            return None;
        }
        let (chunk_size, name) = (chunk_size(keeper, is_large), keeper.name());
        let random = &mut keeper.application.random;
        // Whole chunks, none of which is like one of the other upload.
        let length = (1 + random.below(5)) * chunk_size;
        let source = Source { seed: random.bits(), length, chunk_size };
        let in_flight = random.pick(&[1, 2, 2, 3]);
        let end = match random.below(100) {
            0..20 => End::Drop,
            20..45 => End::Abort,
            45..75 => End::Prepare,
            _ => End::Resume,
        };
        let timeout = random.percent(20).then(|| random.millis(300, 6_000));
        let order = match random.below(4) {
            0 => Order::After(random.millis(0, 5_000)),
            1 => Order::Beside { main: random.millis(0, 3_000), rival: Duration::ZERO },
            2 => Order::Beside { main: Duration::ZERO, rival: Duration::ZERO },
            _ => Order::Beside { main: Duration::ZERO, rival: random.millis(0, 3_000) },
        };
        let keeper = beside(keeper);
        let number = {
            let files = &mut keeper.application.state().checks.files;
            let (client, rival) = (keeper.application.number, (&*name, in_flight));
            let number = files.begin_rival(main.number, &id, (client, source), rival);
            if timeout.is_some() {
                files.limits(number);
            }
            number
        };
        let (id, is_read, is_rival) = (Some(id), false, true);
        let writing =
            Writing { number, source, name, id, in_flight, end, timeout, is_read, is_rival };
        Some(Self { keeper, writing, order })
    }

    /// Writes both uploads.
    pub(super) async fn write_beside(self, main: &mut Keeper, of_main: Writing) {
        let Self { keeper: mut rival, writing, order } = self;
        let time = main.application.time.clone();
        match order {
            Order::After(pause) => {
                main.write(of_main).await;
                time.sleep(pause).await;
                rival.write(writing).await;
            }
            Order::Beside { main: before_main, rival: before_rival } => {
                let first = async {
                    time.sleep(before_main).await;
                    main.write(of_main).await;
                };
                let second = async {
                    time.sleep(before_rival).await;
                    rival.write(writing).await;
                };
                both(first, second).await;
            }
        }
    }
}

/// Returns a keeper that works beside another one, with the same client or another.
fn beside(keeper: &mut Keeper) -> Keeper {
    let mut application = keeper.application.clone();
    application.random = keeper.application.random.fork();
    if application.random.percent(50) {
        let index = application.random.index(keeper.clients.len());
        (application.number, application.client) = keeper.clients[index].clone();
    }
    let bucket = bucket(&application.client);
    Keeper { application, bucket, clients: Arc::clone(&keeper.clients) }
}

/// Draws the length of the chunks of a rival: a large one is as large as others, if there are not
/// too many.
fn chunk_size(keeper: &mut Keeper, is_large: bool) -> u64 {
    let random = &mut keeper.application.random;
    let (is_large, otherwise) = (random.percent(if is_large { 70 } else { 10 }), [64, 1_000]);
    let otherwise = random.pick(&otherwise);
    let most = MOST_LARGE + MORE_LARGE;
    let is_large = is_large && keeper.application.state().checks.files.takes_large(most);
    if is_large { LARGE } else { otherwise }
}

/// Waits for both of two things.
async fn both(first: impl Future<Output = ()>, second: impl Future<Output = ()>) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let mut have_ended = [false; 2];
    poll_fn(|cx| {
        let all: [Pin<&mut dyn Future<Output = ()>>; 2] = [first.as_mut(), second.as_mut()];
        for (one, has_ended) in all.into_iter().zip(&mut have_ended) {
            *has_ended = *has_ended || one.poll(cx).is_ready();
        }
        if have_ended == [true; 2] { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
