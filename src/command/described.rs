//! Options as servers describe them: what they were given once, by whichever driver, and what they
//! have added.

use bson::{Bson, Document, doc};
use serde::de::DeserializeOwned;

use super::arguments::Options;
use crate::collation::Collation;
use crate::options::{ClusteredIndex, TimeseriesOptions};

/// Reads what a server says of options: what is not known here, a name or a value, is left out. A
/// flag may be a number, as in `unique: 1`.
pub(crate) fn of_server<O: Options + Clone + Default>(described: Document) -> O {
    let mut options = O::default();
    for (name, value) in described {
        if !O::OPTIONS.contains(&name.as_str()) {
            continue;
        }
        let value = known_part(&name, value);
        let flag = as_flag(&value);
        let set = |value: Bson| options.clone().set(&name, value).ok();
        if let Some(more) = set(value).or_else(|| set(flag?)) {
            options = more;
        }
    }
    options
}

fn as_flag(value: &Bson) -> Option<Bson> {
    match *value {
        Bson::Int32(number) => Some((number != 0).into()),
        Bson::Int64(number) => Some((number != 0).into()),
        Bson::Double(number) => Some((number != 0.0).into()),
        _ => None,
    }
}

/// Returns the value of an option, where that has options itself, without those not known here.
fn known_part(name: &str, value: Bson) -> Bson {
    let Bson::Document(described) = value else { return value };
    let known = match name {
        "clusteredIndex" => {
            readable_part::<ClusteredIndex>(described, &doc! { "key": {}, "unique": true })
        }
        "collation" => readable_part::<Collation>(described, &doc! { "locale": "simple" }),
        "timeseries" => readable_part::<TimeseriesOptions>(described, &doc! { "timeField": "t" }),
        _ => described,
    };
    known.into()
}

/// Returns the fields with which a type can be read, each tried beside `least`, which the type
/// cannot do without.
fn readable_part<T: DeserializeOwned>(described: Document, least: &Document) -> Document {
    let is_readable = |(name, value): &(String, Bson)| {
        let mut alone = least.clone();
        alone.insert(name, value.clone());
        bson::deserialize_from_document::<T>(alone).is_ok()
    };
    described.into_iter().filter(is_readable).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::{Bson, Document, doc};

    use super::of_server;
    use crate::options::{
        ClusteredIndex, Collation, CollationStrength, CreateCollectionOptions, IndexOptions,
        TimeseriesOptions, ValidationAction, ValidationLevel,
    };

    fn collection(described: Document) -> CreateCollectionOptions {
        of_server(described)
    }

    #[test]
    fn options_have_their_types() {
        let read = collection(doc! {
            "capped": true,
            "size": 4096.0,
            "max": 5,
            "validator": { "a": 1 },
            "validationLevel": "moderate",
            "validationAction": "warn",
            "collation": { "locale": "de", "strength": 2, "version": "57.1" },
        });
        let collation = Collation::new("de").strength(CollationStrength::Secondary);
        let expected = CreateCollectionOptions::builder()
            .capped(true)
            .size(4096)
            .max(5)
            .validator(doc! { "a": 1 })
            .validation_level(ValidationLevel::Moderate)
            .validation_action(ValidationAction::Warn)
            .collation(collation);
        assert_eq!(read, expected.build());
    }

    /// Later servers have other options, and other values of those that there are; older ones kept
    /// what they were given.
    #[test]
    fn what_is_not_known_is_left_out_alone() {
        let read = collection(doc! {
            "capped": 1.0,
            "later": { "a": 1 },
            "size": "large",
            "validationLevel": "lax",
            "validationAction": 7,
            "expireAfterSeconds": f64::NAN,
            "collation": { "locale": "de", "strength": 9, "later": 1, "backwards": true },
            "clusteredIndex": { "v": "two", "key": { "_id": 1 }, "unique": true, "later": 1 },
            "timeseries": {
                "timeField": "at", "granularity": "days", "bucketMaxSpanSeconds": 3600,
                "bucketRoundingSeconds": -1, "later": true,
            },
        });
        let series = TimeseriesOptions::new("at").bucket_max_span(Duration::from_secs(3600));
        let expected = CreateCollectionOptions::builder()
            .capped(true)
            .collation(Collation::new("de").backwards(true))
            .clustered_index(ClusteredIndex::default())
            .timeseries(series);
        assert_eq!(read, expected.build());
    }

    #[test]
    fn an_option_without_what_it_needs_is_left_out() {
        for value in [Bson::Null, "de".into(), doc! { "strength": 1 }.into()] {
            let read = collection(doc! {
                "collation": value.clone(), "timeseries": value.clone(), "clusteredIndex": value,
            });
            assert_eq!(read, CreateCollectionOptions::default());
        }
        assert_eq!(collection(doc! { "clusteredIndex": true }).clustered_index.unwrap().v, None);
    }

    #[test]
    fn the_collation_of_an_index_has_its_type() {
        let described = doc! { "collation": { "locale": "fr", "version": "57.1", "later": 1 } };
        let read: IndexOptions = of_server(described);
        assert_eq!(read.collation, Some(Collation::new("fr")));
    }
}
