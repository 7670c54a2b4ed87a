//! Sessions of an application's: several operations in one, which may be ended at any time.

use std::time::Duration;

use bson::doc;
use sdam::error::Error;
use sdam::generic::ClientSession;
use sdam::operation::Find;
use sdam_core::bson;
use sdam_core::config::{ReadMode, ReadPreference};

use super::within::within;
use super::{Application, Terms};
use crate::virtual_time::Runtime;

pub(super) async fn use_session(application: &mut Application) {
    let Ok(session) = application.client.start_session().await else { return };
    let number = application.state().operations.session(application.number);
    let terms = Terms { session: Some(number), ..application.terms() };
    let count = 1 + application.random.below(4);
    for _ in 1..count {
        step(application, &session, terms).await.ok();
    }
    // One that is ended while an operation uses it ends with that.
    if !(application.random.percent(50) && end_in_use(application, &session, terms).await) {
        session.end();
    }
    application.state().checks.sessions.ended(number);
    if step(application, &session, terms).await.is_ok() {
        let (check, detail) = ("a session that has ended is refused", format!("{number}"));
        application.state().fail(application.number, check, detail);
    }
    drop(session);
    application.over(number);
}

/// One operation in a session.
async fn step(
    application: &mut Application,
    session: &ClientSession<Runtime>,
    terms: Terms,
) -> Result<(), Error> {
    let (document, kind) = (application.document(), application.random.below(3));
    let mode = application.random.pick(&[ReadMode::Primary, ReadMode::SecondaryPreferred]);
    let things = application.collection_of(&application.client.with_session(session), terms);
    let things = things.with_read_preference(ReadPreference::new(mode));
    let step = async |comment| match kind {
        0 => things.insert_one(&document).comment(comment).await.map(drop),
        1 => things.find_one(doc! {}).comment(comment).await.map(drop),
        _ => {
            let find = Find::new(doc! {}).batch_size(2).limit(5).comment(comment);
            let mut cursor = things.find(find).await?;
            while let Some(document) = cursor.next().await {
                document?;
            }
            Ok(())
        }
    };
    let number = application.begin(terms);
    let outcome = step(number).await;
    // A cursor may take more than the time of one command.
    if kind < 2 {
        application.ended(number, outcome.as_ref().err());
    }
    application.over(number);
    outcome
}

/// Ends a session while an operation uses it, unless that is over before; returns whether it
/// was not.
async fn end_in_use(
    application: &mut Application,
    session: &ClientSession<Runtime>,
    terms: Terms,
) -> bool {
    let after = application.random.between(Duration::ZERO, Duration::from_millis(60));
    let (time, other) = (application.time.clone(), session.clone());
    let mut step = Box::pin(step(application, session, terms));
    let is_in_use = within(&time, after, step.as_mut()).await.is_none();
    if is_in_use {
        other.end();
        step.await.ok();
    }
    is_in_use
}
