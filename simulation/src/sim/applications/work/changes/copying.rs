//! Copies of events, which are written in a transaction together with the token.

use std::sync::Arc;

use bson::Document;
use sdam::error::Error;
use sdam::generic::ClientSession;
use sdam::results::ResumeToken;
use sdam_core::bson;
use sdam_core::config::WriteConcern;

use super::super::super::stories::Seen;
use super::super::transactions::{Attempt, Held, check_within};
use super::super::within::Patience;
use super::stores::Store;
use super::{COPIED, OWN, Reader};
use crate::virtual_time::Runtime;

/// Copies an event; returns whether that is done for sure.
pub(super) async fn copy(
    reader: &mut Reader,
    store: Store,
    seen: &Seen,
    token: &ResumeToken,
) -> bool {
    let Some(held) = Held::start(&reader.application).await else { return false };
    let held = Arc::new(held);
    let number = reader.application.document().get_i64("_id").unwrap_or_default();
    let random = &mut reader.application.random;
    let patience = match random.below(10) {
        0..8 => Patience::Endless,
        8 => Patience::Time(random.millis(0, 400)),
        _ => Patience::Polls(1 + random.below(30)),
    };
    let application = reader.application.clone();
    let ending = held.begin_end(&application, true);
    let (copy, token) = (seen.to_copy(reader.story, number), token.clone());
    let shared = Arc::new((application, Arc::clone(&held), store, copy, token));
    // What is acknowledged is not rolled back.
    let start = held.session.start_transaction().write_concern(WriteConcern::majority());
    let run = start.and_run(move |session: ClientSession<Runtime>| -> Attempt {
        let shared = Arc::clone(&shared);
        Box::pin(async move {
            let (application, held, store, copy, token) = &*shared;
            let client = application.client.with_session(&session);
            let copies = client.database(OWN).collection::<Document>(COPIED);
            let failed = |error: &Error| check_within(application, held, error);
            copies.insert_one(copy).await.inspect_err(failed)?;
            store.save_in(&session, token).await.inspect_err(failed)?;
            held.note_commit(application);
            Ok(())
        })
    });
    let outcome = patience.with(&reader.application.time, run).await;
    reader.application.over(ending);
    held.end(&reader.application);
    matches!(outcome, Some(Ok(())))
}
