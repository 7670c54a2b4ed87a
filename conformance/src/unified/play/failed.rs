//! Errors of operations, and those that are expected (Unified Test Format, "expectedError").

use bson::{Bson, Document};

use super::wrong;
use crate::spec::Difference;
use crate::unified::format::ExpectedError;
use crate::unified::matching::Matcher;

/// The error of an operation, as far as the client's interface says.
#[derive(Clone, Debug, Default)]
pub struct Failed {
    /// Its text.
    pub message: String,
    /// True if timeoutMS was over.
    pub is_timeout: bool,
    /// The labels.
    pub labels: Vec<String>,
    /// True if the test has arguments that the operation does not have.
    pub is_malformed: bool,
    /// The result of what was done before.
    pub result: Option<Bson>,
    /// The server's reply; `None` if the error comes from the client.
    pub reply: Option<Document>,
    /// The errors of single writes to several collections, by the index of the write.
    pub write_errors: Document,
    /// The errors of write concerns of such writes.
    pub write_concern_errors: Vec<Bson>,
}

impl Failed {
    /// Compares the error with what is expected of it.
    pub(super) fn compare(
        &self,
        place: &str,
        expected: &ExpectedError,
        matcher: Matcher<'_>,
    ) -> Result<(), Difference> {
        self.compare_kind(place, expected)?;
        self.compare_reply(place, expected)?;
        self.compare_writes(place, expected, matcher)?;
        if let Some(response) = &expected.response {
            let (response, reply) =
                (Bson::Document(response.clone()), self.reply.clone().map(Bson::Document));
            matcher.root(&format!("{place}.errorResponse"), &response, reply.as_ref())?;
        }
        if let Some(result) = &expected.result {
            matcher.root(&format!("{place}.expectResult"), result, self.result.as_ref())?;
        }
        Ok(())
    }

    fn compare_kind(&self, place: &str, expected: &ExpectedError) -> Result<(), Difference> {
        let differs = |what: &str, is: bool| {
            let not = if is { "not " } else { "" };
            Err(wrong(place, format!("an error that is {not}{what}"), &self.message))
        };
        let is_client_error = self.reply.is_none();
        if expected.is_client_error.is_some_and(|wanted| wanted != is_client_error) {
            return differs("the client's", is_client_error);
        }
        if expected.is_timeout_error.is_some_and(|wanted| wanted != self.is_timeout) {
            return differs("a time-out of timeoutMS", self.is_timeout);
        }
        let lower = self.message.to_lowercase();
        match &expected.error_contains {
            Some(part) if !lower.contains(&part.to_lowercase()) => {
                Err(wrong(place, format!("an error that says {part:?}"), &self.message))
            }
            _ => Ok(()),
        }
    }

    fn compare_reply(&self, place: &str, expected: &ExpectedError) -> Result<(), Difference> {
        let reply = self.reply.clone().unwrap_or_default();
        let code = reply.get_i32("code").ok().map(i64::from);
        if expected.error_code.is_some() && expected.error_code != code {
            let wanted = format!("an error of code {:?}", expected.error_code);
            return Err(wrong(place, wanted, &self.message));
        }
        let name = reply.get_str("codeName").unwrap_or_default();
        if let Some(wanted) = &expected.error_code_name
            && !wanted.eq_ignore_ascii_case(name)
        {
            return Err(wrong(place, format!("an error called {wanted}"), &self.message));
        }
        let found = format!("the labels {:?}: {}", self.labels, self.message);
        for (labels, wanted) in [(&expected.labels, true), (&expected.omitted_labels, false)] {
            let odd = labels.iter().find(|label| self.labels.contains(label) != wanted);
            if let Some(label) = odd {
                let not = if wanted { "" } else { "no " };
                return Err(wrong(place, format!("{not}label {label:?}"), found));
            }
        }
        Ok(())
    }

    /// Compares the errors of writes to several collections: none may be missing, and none be more.
    fn compare_writes(
        &self,
        place: &str,
        expected: &ExpectedError,
        matcher: Matcher<'_>,
    ) -> Result<(), Difference> {
        if let Some(wanted) = &expected.write_errors {
            let place = format!("{place}.writeErrors");
            if !wanted.keys().eq(self.write_errors.keys()) {
                return Err(wrong(place, wanted.to_string(), &self.write_errors));
            }
            for (index, wanted) in wanted {
                let place = format!("{place}.{index}");
                matcher.root(&place, wanted, self.write_errors.get(index))?;
            }
        }
        if let Some(wanted) = &expected.write_concern_errors {
            let wanted = wanted.iter().cloned().map(Bson::Document).collect();
            let found = Bson::Array(self.write_concern_errors.clone());
            let place = format!("{place}.writeConcernErrors");
            matcher.roots(&place, &Bson::Array(wanted), Some(&found))?;
        }
        Ok(())
    }
}
