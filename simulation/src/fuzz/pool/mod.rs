//! Random inputs of a pool at any time, against a naive model of what it may do.

mod model;
#[cfg(test)]
mod tests;

use std::time::Duration;

use sdam_core::config::PoolOptions;
use sdam_core::pool::PoolConfig;

use model::Model;

/// The number of bytes that describe the pool, and the number of bytes of a step.
const CONFIG_LEN: usize = 8;
const STEP_LEN: usize = 3;

/// The number of steps that are taken.
const MAX_STEPS: usize = 400;

/// The first eight bytes say what the pool is like; the others are steps of three bytes: what
/// happens, with what, and how much later.
///
/// # Panics
///
/// Panics if a law is broken.
pub fn pool(bytes: &[u8]) {
    play(bytes);
}

/// Plays an input to its end, and returns the model as it then is.
fn play(bytes: &[u8]) -> Option<Model> {
    let (config, steps) = bytes.split_first_chunk::<CONFIG_LEN>()?;
    let mut model = Model::new(read_config(*config));
    model.begin();
    for step in steps.chunks_exact(STEP_LEN).take(MAX_STEPS) {
        let [kind, choice, millis] = step else { unreachable!("a step has three bytes") };
        // The alarm rings in time, or late.
        model.pass(Duration::from_millis((*millis).into()), choice.is_multiple_of(2));
        model.act(kind % model::KINDS, *choice);
        model.settle();
    }
    model.end();
    Some(model)
}

fn read_config(bytes: [u8; CONFIG_LEN]) -> PoolConfig {
    let [max, min, connecting, flags, idle, wait, connect, asked] = bytes;
    let millis = |byte: u8| Duration::from_millis(byte.into());
    PoolConfig::new(
        "h".parse().expect("an address"),
        PoolOptions::default()
            .with_max_pool_size(u32::from(max % 5))
            .with_min_pool_size(u32::from(min % 4))
            .with_max_connecting(u32::from(connecting % 3) + 1)
            .with_max_idle_time(millis(idle % 40))
            .with_wait_queue_timeout((flags & 1 == 1).then(|| millis(wait % 80 + 1))),
    )
    .with_connect_timeout((flags & 2 == 2).then(|| millis(connect % 50 + 1)))
    .with_handshake_timeout((flags & 8 == 8).then(|| millis(asked % 50 + 1)))
    .with_load_balanced(flags & 4 == 4)
}
