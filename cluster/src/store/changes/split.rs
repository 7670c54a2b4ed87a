//! Events that are too large for one document, and their fragments (Change Streams,
//! "`$changeStreamSplitLargeEvent`").

use bson::{Bson, Document, doc};
use sdam_core::bson;

use super::token::Token;
use crate::store::StoreError;

/// The largest document that a reply may have.
const MAX_LEN: usize = (16 << 20) + (16 << 10);

/// The largest fragment.
pub(super) const MAX_FRAGMENT_LEN: usize = MAX_LEN - (8 << 10);

/// The bytes that each fragment has besides the fields of its event.
const OVERHEAD: usize = 512;

/// Returns how many bytes a document has.
pub(super) fn length(document: &Document) -> usize {
    document.to_vec().map_or(0, |it| it.len())
}

/// Checks that an event of that length is not too large.
///
/// # Errors
///
/// Fails with `BSONObjectTooLarge` if it is.
pub(super) fn check(length: usize) -> Result<(), StoreError> {
    match length > MAX_LEN {
        true => {
            let reason = format!(
                "BSONObj size: {length} is invalid. Size must be between 0 and {MAX_LEN}(16MB)"
            );
            Err(StoreError::new(10334, reason))
        }
        false => Ok(()),
    }
}

/// Cuts an event into fragments of at most so many bytes, if it is larger: each has whole fields,
/// the smallest first.
///
/// # Errors
///
/// Fails if one field is too large.
pub(super) fn fragments(
    (event, whole): (Document, usize),
    token: Token,
    most: usize,
) -> Result<Vec<Document>, StoreError> {
    if whole <= most {
        return Ok(vec![event]);
    }
    let own = event.into_iter().filter(|(name, _)| name != "_id");
    let mut fields: Vec<(usize, (String, Bson))> = own
        .map(|(name, value)| (length(&doc! { name.clone(): value.clone() }), (name, value)))
        .collect();
    fields.sort_by_key(|(length, _)| *length);
    let mut parts: Vec<Document> = vec![Document::new()];
    let mut taken = OVERHEAD;
    for (length, (name, value)) in fields {
        if length + OVERHEAD > most {
            let reason = format!("Splitting change event failed: the field {name} is too large");
            return Err(StoreError::new(7_182_500, reason));
        }
        if taken + length > most {
            parts.push(Document::new());
            taken = OVERHEAD;
        }
        taken += length;
        if let Some(part) = parts.last_mut() {
            part.insert(name, value);
        }
    }
    let of = i32::try_from(parts.len()).unwrap_or(i32::MAX);
    let fragments = parts.into_iter().zip(0_i32..).map(|(part, index)| {
        let token = Token { fragment: u64::try_from(index).ok(), ..token };
        let mut fragment = doc! {
            "_id": token.document(),
            "splitEvent": { "fragment": index + 1, "of": of },
        };
        fragment.extend(part);
        fragment
    });
    Ok(fragments.collect())
}

#[cfg(test)]
mod tests {
    use sdam_core::bson::{Document, Timestamp, doc};

    use super::super::token::Token;
    use super::{fragments, length};

    /// Change Streams, "`$changeStreamSplitLargeEvent`".
    #[test]
    fn an_event_is_cut_between_its_fields() {
        let token = Token::of_time(Timestamp { time: 1, increment: 1 });
        let cut = |event: &Document, most| fragments((event.clone(), length(event)), token, most);
        let (small, large) = ("a".repeat(100), "b".repeat(1000));
        let event = doc! { "_id": 1, "x": &*large, "y": 5, "z": &*large, "w": small };
        assert_eq!(cut(&event, 4000), Ok(vec![event.clone()]));
        let parts = cut(&event, 1700).unwrap();
        let names = |index: usize| parts[index].keys().skip(2).cloned().collect::<Vec<_>>();
        assert_eq!(
            (names(0), names(1)),
            (vec!["y".into(), "w".into(), "x".into()], vec!["z".into()])
        );
        assert_eq!(parts[1].get_document("splitEvent").unwrap(), &doc! { "fragment": 2, "of": 2 });
        assert_ne!(parts[0].get("_id"), parts[1].get("_id"));
        assert_eq!(cut(&event, 1000).unwrap_err().code, 7_182_500);
    }
}
