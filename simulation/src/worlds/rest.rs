//! True if a world comes to rest: from the moment when nothing goes wrong any more, how long does
//! the view take to become the truth, and does it stay so?

use std::collections::HashMap;
use std::time::Duration;

use sdam_core::time::Instant;

use super::known::Identity;
use super::laws::{Finding, ensure};
use super::world::World;

/// More worlds than any goes through before it comes to one that it has been in.
const ENDLESS: usize = 10_000;

/// The number of worlds that are remembered at most: some 60 bytes each.
const MOST: usize = 4_000_000;

/// The time until the view is the truth for ever.
#[derive(Clone, Copy)]
enum Until {
    /// It is not known yet: this is the way that is being gone.
    Asking,
    Known(Duration),
    /// Again and again it is not the truth.
    Never,
}

/// A world on the way, when it was, and whether its view was the truth.
type Moment = (u128, Instant, bool);

/// The time that worlds take to come to rest, as far as they were met.
///
/// Where nothing goes wrong and everything comes in turn, a world has one future: ways that meet go
/// on together, and each ends in a circle. So all but the beginning of most is known already.
#[derive(Default)]
pub(super) struct Rest {
    known: HashMap<u128, Until, Identity>,
}

impl Rest {
    /// Lets a world come to rest.
    ///
    /// # Errors
    ///
    /// Says what does not hold on the way, or how the view differs from the truth when it should
    /// have become it.
    pub(super) fn check(&mut self, world: &World) -> Finding {
        if self.known.len() > MOST {
            self.known.clear();
        }
        let until = self.ask(world.clone()).inspect_err(|_| self.known.clear())?;
        if matches!(until, Until::Known(time) if time <= world.patience()) {
            return Ok(());
        }
        // That it is wrong is known; gone alone, the way shows what.
        world.clone().settle()?;
        ensure(false, "the view stays the truth", || "it is wrong again and again".to_owned())
    }

    /// Goes on to a world whose future is known, and learns that of all worlds on the way.
    fn ask(&mut self, mut world: World) -> Result<Until, crate::sim::Violation> {
        world.heal();
        let mut way: Vec<Moment> = Vec::new();
        let mut until = loop {
            let digest = world.digest();
            match self.known.get(&digest) {
                None => {}
                Some(Until::Asking) => break self.circle(&way, digest, world.now)?,
                Some(until) => break *until,
            }
            let endless = way.len() > ENDLESS;
            ensure(!endless, "worlds come to rest", || format!("it is {:?}", world.now))?;
            self.known.insert(digest, Until::Asking);
            way.push((digest, world.now, world.compare().is_ok()));
            world.take(world.next())?;
        };
        let mut later = world.now;
        for (digest, at, is_true) in way.into_iter().rev() {
            until = match until {
                Until::Known(Duration::ZERO) if is_true => until,
                Until::Known(time) => Until::Known(time + (later - at)),
                Until::Asking | Until::Never => Until::Never,
            };
            self.known.insert(digest, until);
            later = at;
        }
        Ok(until)
    }

    /// The way has come back to where it was.
    fn circle(
        &self,
        way: &[Moment],
        digest: u128,
        now: Instant,
    ) -> Result<Until, crate::sim::Violation> {
        let from = way.iter().position(|moment| moment.0 == digest).unwrap_or_default();
        let circle = &way[from..];
        let passes = circle.first().is_some_and(|(_, at, _)| *at < now);
        ensure(passes, "time passes", || format!("it is {now:?} for ever"))?;
        let is_true = circle.iter().all(|(_, _, is_true)| *is_true);
        Ok(if is_true { Until::Known(Duration::ZERO) } else { Until::Never })
    }
}
