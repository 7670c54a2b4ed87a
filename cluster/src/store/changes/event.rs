//! Events: what a change of a member's log looks like to a change stream (Change Streams, "Response
//! Format").

use std::sync::Arc;

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use sdam_core::bson;

use super::description::Description;
use super::options::{FullDocument, StreamOptions};
use super::{Past, difference};
use crate::options::ServerVersion;
use crate::store::StoreError;
use crate::store::catalog::{Change, Edit, Note};
use crate::store::definition::{Definition, binary, named};
use crate::store::log::{Entry, Place};

/// The digest of no user, which servers without logins add to the id of a session.
const NO_USER: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// A document that was put, replaced or removed.
#[derive(Clone, Copy)]
struct Written<'a> {
    namespace: &'a str,
    before: Option<&'a Arc<Document>>,
    after: Option<&'a Arc<Document>>,
    note: &'a Note,
}

/// The circumstances in which events are reported.
pub(super) struct Reporter<'a> {
    pub(super) options: &'a StreamOptions,
    pub(super) past: &'a Past<'a>,
}

impl Reporter<'_> {
    /// Returns the event of a change, with this token.
    ///
    /// # Errors
    ///
    /// Fails if it is to have an image that was not kept.
    pub(super) fn event(
        &self,
        entry: &Entry,
        (place, change): (Place, &Change),
        token: Document,
    ) -> Result<Document, StoreError> {
        match change {
            Change::Document { namespace, before, after, note, .. } => {
                let (before, after) = (before.as_ref(), after.as_ref());
                let written = Written { namespace, before, after, note };
                self.written(entry, place, written, token)
            }
            Change::Definition(definition) => Ok(self.defined(entry, place, definition, token)),
            Change::Collection { .. } | Change::Session { .. } => Ok(Document::new()),
        }
    }

    /// Returns the event that ends a stream.
    pub(super) fn invalidate(&self, entry: &Entry, place: Place, token: Document) -> Document {
        self.begin(entry, place, "invalidate", None, token)
    }

    /// Returns the fields that all events have.
    fn begin(
        &self,
        entry: &Entry,
        place: Place,
        kind: &str,
        uuid: Option<[u8; 16]>,
        token: Document,
    ) -> Document {
        let mut event = doc! {
            "_id": token,
            "operationType": kind,
            "clusterTime": place.timestamp(),
        };
        if let Some(uuid) = uuid.filter(|_| self.options.is_expanded) {
            event.insert("collectionUUID", binary(uuid));
        }
        if self.past.version >= ServerVersion::V6_0 {
            event.insert("wallTime", entry.wall);
        }
        if let Some((session, number)) = entry.transaction() {
            let of = |subtype, bytes: &[u8]| Binary { subtype, bytes: bytes.to_vec() };
            let id = of(BinarySubtype::Uuid, session);
            let user = of(BinarySubtype::Generic, &NO_USER);
            event.insert("txnNumber", number);
            event.insert("lsid", doc! { "id": id, "uid": user });
        }
        event
    }

    fn defined(
        &self,
        entry: &Entry,
        place: Place,
        definition: &Definition,
        token: Document,
    ) -> Document {
        let mut event = self.begin(entry, place, definition.name(), definition.uuid, token);
        event.insert("ns", named(&definition.namespace));
        if let Some(to) = definition.to() {
            event.insert("to", named(to));
        }
        if !self.options.is_expanded {
            return event;
        }
        if let Some(description) = definition.description() {
            event.insert("operationDescription", description);
        }
        if let Some(state) = definition.state_before() {
            event.insert("stateBeforeChange", state);
        }
        event
    }

    fn written(
        &self,
        entry: &Entry,
        place: Place,
        written: Written<'_>,
        token: Document,
    ) -> Result<Document, StoreError> {
        let Written { namespace, before, after, note } = written;
        let description = before.zip(after).and_then(|(before, after)| {
            let is_since_5_0 = self.past.version >= ServerVersion::V5_0;
            match &note.edit {
                Edit::Whole => None,
                Edit::At(touched) => {
                    Some(Description::of_operators(before, after, touched, is_since_5_0))
                }
                Edit::Stages if is_since_5_0 => difference::between(before, after),
                Edit::Stages => None,
            }
        });
        let kind = match (before, after, &description) {
            (None, ..) => "insert",
            (_, None, _) => "delete",
            (_, _, None) => "replace",
            (_, _, Some(_)) => "update",
        };
        let mut event = self.begin(entry, place, kind, Some(note.uuid), token);
        let full = match kind {
            "update" => self.full_document(&event, written)?,
            _ => after.map(|it| Document::clone(it).into()),
        };
        if let Some(full) = full {
            event.insert("fullDocument", full);
        }
        event.insert("ns", named(namespace));
        let id = after.or(before).and_then(|it| it.get("_id")).cloned();
        event.insert("documentKey", doc! { "_id": id.unwrap_or(Bson::Null) });
        if let Some(description) = description {
            let has_truncated = self.past.version >= ServerVersion::V5_0;
            let is_new = self.past.version >= ServerVersion::V7_0;
            let disambiguates = is_new && self.options.is_expanded;
            event.insert("updateDescription", description.document(has_truncated, disambiguates));
        }
        if let Some(image) = self.before_change(&event, written)? {
            event.insert("fullDocumentBeforeChange", image);
        }
        Ok(event)
    }

    /// Returns the document that an update is reported with.
    fn full_document(
        &self,
        event: &Document,
        written: Written<'_>,
    ) -> Result<Option<Bson>, StoreError> {
        let image = written.after.filter(|_| written.note.has_images);
        match self.options.after {
            FullDocument::Off => Ok(None),
            FullDocument::Lookup => Ok(Some(self.looked_up(written))),
            FullDocument::Required if image.is_none() => {
                Err(missing("a post-image for all update events", "post-image", event, written))
            }
            FullDocument::Required | FullDocument::WhenAvailable => Ok(Some(or_null(image))),
        }
    }

    /// Returns the document before its change.
    fn before_change(
        &self,
        event: &Document,
        written: Written<'_>,
    ) -> Result<Option<Bson>, StoreError> {
        let image = written.before.filter(|_| written.note.has_images);
        match self.options.before {
            FullDocument::Off | FullDocument::Lookup => Ok(None),
            _ if written.before.is_none() => Ok(None),
            FullDocument::Required if image.is_none() => {
                let what = "a pre-image for all update, delete and replace events";
                let error = missing(what, "pre-image", event, written);
                let code = if self.has_null_for_images() { error.code } else { 51770 };
                Err(StoreError { code, ..error })
            }
            _ if image.is_none() && !self.has_null_for_images() => Ok(None),
            FullDocument::Required | FullDocument::WhenAvailable => Ok(Some(or_null(image))),
        }
    }

    /// Returns whether an image that was not kept is null; before 6.0 there is none in the event.
    fn has_null_for_images(&self) -> bool {
        self.past.version >= ServerVersion::V6_0
    }

    /// Returns the document as a majority has it now.
    fn looked_up(&self, written: Written<'_>) -> Bson {
        let store = self.past.current();
        let collection = store.collection(written.namespace);
        let collection = collection.filter(|it| it.uuid == written.note.uuid);
        let id = written.after.and_then(|it| it.get("_id"));
        or_null(collection.zip(id).and_then(|(collection, id)| collection.by_id(id)))
    }
}

fn or_null(document: Option<&Arc<Document>>) -> Bson {
    document.map_or(Bson::Null, |it| Document::clone(it).into())
}

/// An image is wanted that was not kept.
fn missing(what: &str, image: &str, event: &Document, written: Written<'_>) -> StoreError {
    let reason = format!(
        "Change stream was configured to require {what}, but the {image} was not found for event: \
         {{operationType: {}, ns: {}}}",
        event.get_str("operationType").unwrap_or_default(),
        written.namespace
    );
    StoreError::new(47, reason)
}
