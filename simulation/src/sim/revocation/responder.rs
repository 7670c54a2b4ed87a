//! Responders: each has its moods, and each request is answered as the mood of the moment has it.

use std::time::Duration;

use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::http::{HttpRequest, HttpResponse};
use sdam_core::revocation::Status;

use super::authority::{Authority, CERTIFICATES, Signer, later, responders};
use super::clock::sleep;
use super::ledger::Known;
use super::{Shared, World, lock, wall};
use crate::sim::random::Random;

/// A responder.
pub(super) struct Responder {
    /// The number of requests in a hundred that it answers as it should.
    honesty: u64,
    /// The time for which its responses are valid, in seconds; 0 if they do not say.
    validity: u64,
}

impl Responder {
    /// Draws those of a certificate.
    pub(super) fn draw_all(random: &mut Random, certificate: usize) -> Vec<Self> {
        let draw = |_| {
            let honesty = random.pick(&[100, 90, 50, 0]);
            let validity = match random.percent(10) {
                true => 0,
                false => 20 + random.below(300),
            };
            Self { honesty, validity }
        };
        (0..responders(certificate)).map(draw).collect()
    }
}

/// The answer to a request: when, and what.
struct Reply {
    after: Option<Duration>,
    outcome: Result<Vec<u8>, Failure>,
    /// The statement, if it may be believed.
    says: Option<Known>,
    http: u16,
}

/// Answers a request of an inquiry, which the ledger notes.
pub(super) async fn answer(
    world: Shared,
    inquiry: u64,
    request: HttpRequest,
) -> Result<HttpResponse, Failure> {
    let host = request.endpoint.host;
    let parts: Vec<usize> = host.split('.').filter_map(|it| it.parse().ok()).collect();
    let (responder, certificate) = (parts[0], parts[1]);
    let reply = {
        let mut world = lock(&world);
        let now = world.clock.now;
        world.ledger.asked(certificate, inquiry, responder, now);
        world.draw(certificate, responder)
    };
    match reply.after {
        Some(time) => sleep(world.clone(), time).await,
        None => std::future::pending().await,
    }
    let mut shared = lock(&world);
    let now = shared.clock.now;
    // What it says counts only while that is so: it may have been under way for long.
    let says = reply.says.filter(|(.., until)| wall(now).as_secs() < *until);
    shared.ledger.answered(certificate, inquiry, says, now);
    drop(shared);
    reply.outcome.map(|body| HttpResponse::new(reply.http, body))
}

impl World {
    fn draw(&mut self, certificate: usize, responder: usize) -> Reply {
        let random = &mut self.random;
        let Responder { honesty, validity } = self.responders[certificate][responder];
        let after = match random.percent(90) {
            true => random.millis(1, 800),
            false => random.millis(800, 9000),
        };
        let now = wall(self.clock.now);
        let is_revoked = self.revoked_at[certificate].is_some_and(|at| at <= self.clock.now);
        let revoked = || Status::Revoked { at: String::new(), reason: None };
        let truth = if is_revoked { revoked() } else { Status::Good };
        let authority = Authority::shared();
        let valid = (now, (validity > 0).then(|| later(now, Duration::from_secs(validity))));
        let mut reply =
            Reply { after: Some(after), outcome: Ok(Vec::new()), says: None, http: 200 };
        if random.percent(honesty) {
            let signer = random.pick(&[Signer::Authority, Signer::Delegate]);
            reply.outcome = Ok(authority.sign(certificate, truth.clone(), valid, signer));
            // One that does not say until when is valid from when it is read.
            let until = valid.1.map_or(u64::MAX, |until| until.as_secs());
            reply.says = Some((truth, now.as_secs(), until));
            return reply;
        }
        // A lie says the contrary.
        let lie = if is_revoked { Status::Good } else { revoked() };
        match random.below(9) {
            0 => reply.after = None,
            1 => {
                let detail = "connection refused";
                reply.outcome = Err(Failure::new(Stage::Connect, Cause::Refused, detail));
            }
            2 => reply.outcome = Ok(vec![0x30, 3, 0x0a, 1, 3]),
            3 => {
                let other = (certificate + 1) % CERTIFICATES;
                reply.outcome = Ok(authority.sign(other, lie, valid, Signer::Authority));
            }
            4 => reply.outcome = Ok(authority.sign(certificate, lie, valid, Signer::Stranger)),
            5 => reply.outcome = Ok(authority.sign(certificate, lie, valid, Signer::Impostor)),
            6 => {
                let past = wall(self.clock.now.saturating_sub(Duration::from_secs(900)));
                let past = later(past, Duration::ZERO);
                let over = (past, Some(now));
                reply.outcome = Ok(authority.sign(certificate, lie, over, Signer::Authority));
            }
            7 => {
                reply.outcome =
                    Ok(authority.sign(certificate, Status::Unknown, valid, Signer::Delegate));
                let until = valid.1.map_or(u64::MAX, |it| it.as_secs());
                reply.says = Some((Status::Unknown, now.as_secs(), until));
            }
            _ => {
                reply.outcome = Ok(authority.sign(certificate, lie, valid, Signer::Authority));
                reply.http = 503;
            }
        }
        reply
    }
}
