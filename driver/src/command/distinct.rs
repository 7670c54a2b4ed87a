//! Distinct values (CRUD, `distinct`).

use std::borrow::Cow;

use bson::Bson;
use bson::raw::cstr;
use sdam_core::wire::ReplyDocument;

use super::fields::{Fields, Value, document, get, options};
use super::{Command, Facts, Operation, Progress, Route, Scope, left_out};
use crate::error::{Error, ReplyError};
use crate::value::IntoDocument;

/// The different values of a field, in the documents that a filter matches.
#[derive(Clone, Debug)]
pub struct Distinct {
    field: String,
    filter: Value,
    options: Fields,
}

options! {
    Distinct {
        /// Sets the rules for comparing texts.
        collation: document = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the index to be used (MongoDB 7.1).
        hint: hint = "hint";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Reads the documents of time series as they are stored (MongoDB 8.2); not for
        /// applications.
        raw_data: truth = "rawData";
    }
}

impl Distinct {
    /// Asks for the values of a field in the documents that a filter matches.
    pub fn new(field: impl Into<String>, filter: impl IntoDocument) -> Self {
        Self { field: field.into(), filter: document(filter), options: Fields::default() }
    }
}

impl Operation for Distinct {
    type Output = Vec<Bson>;

    fn name(&self) -> Cow<'static, str> {
        "distinct".into()
    }

    fn route(&self) -> Route {
        Route::Read
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        let mut body = super::on_collection(cstr!("distinct"), scope);
        body.append(cstr!("key"), self.field.as_str());
        body.append(cstr!("query"), get(&self.filter)?);
        self.options.write(&mut body, &left_out(scope, facts, &[]))?;
        Ok(Command::read(scope, body))
    }

    fn reply(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Progress<Vec<Bson>>, Error> {
        let missing = |_| ReplyError { command: "distinct", field: "values" };
        let values = reply.get_array("values").map_err(missing)?;
        let values = values.into_iter().map(|value| Bson::try_from(value?));
        values.collect::<Result<_, _>>().map(Progress::Done).map_err(Error::Deserialize)
    }
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::super::testing::{NEW, scope, written};
    use super::super::{Operation, Progress};
    use super::Distinct;

    #[test]
    fn distinct_has_a_key_and_a_query_and_returns_values_of_any_type() {
        let mut distinct = Distinct::new("a.b", doc! { "c": 1 }).collation(doc! { "locale": "de" });
        let expected = rawdoc! {
            "distinct": "things",
            "key": "a.b",
            "query": { "c": 1 },
            "collation": { "locale": "de" },
        };
        assert_eq!(written(&mut distinct, NEW).body, expected);
        let reply = ReplyDocument::from(rawdoc! { "values": [1, "x"], "ok": 1 });
        let values = vec![Bson::Int32(1), Bson::String("x".to_owned())];
        assert_eq!(distinct.reply(&scope(), &reply).unwrap(), Progress::Done(values));
        assert!(distinct.reply(&scope(), &ReplyDocument::from(rawdoc! { "ok": 1 })).is_err());
    }
}
