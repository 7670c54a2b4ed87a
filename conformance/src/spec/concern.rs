//! The suite of Read and Write Concern that compares concerns with what commands declare.

use std::fmt::Debug;
use std::time::Duration;

use bson::{Bson, Document, RawDocumentBuf};
use sdam_core::config::{Acknowledgment, Options, OptionsBuilder, ReadConcern, WriteConcern};
use serde::Deserialize;

use super::difference::Differences;
use super::format::{CaseError, parse};
use super::report::CaseReport;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tests: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Case {
    description: String,
    valid: bool,
    read_concern: Option<ReadConcernDocument>,
    read_concern_document: Option<Document>,
    write_concern: Option<WriteConcernDocument>,
    write_concern_document: Option<Document>,
    is_server_default: Option<bool>,
    is_acknowledged: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadConcernDocument {
    level: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteConcernDocument {
    w: Option<Bson>,
    #[serde(rename = "wtimeoutMS")]
    timeout: Option<i64>,
    journal: Option<bool>,
}

/// The options found in a concern.
struct Found {
    document: RawDocumentBuf,
    is_server_default: bool,
    is_acknowledged: Option<bool>,
}

/// Runs the cases of a file.
pub(super) fn run(text: &str) -> Result<Vec<CaseReport>, CaseError> {
    let file: File = parse(text)?;
    Ok(file.tests.iter().map(Case::run).collect())
}

impl Case {
    fn run(&self) -> CaseReport {
        let mut differences = Differences::default();
        match (&self.read_concern, &self.write_concern) {
            (Some(read), None) => {
                let concern = ReadConcern::default().with_level(read.level.clone());
                let level = concern.level.clone();
                let built =
                    level.iter().fold(Options::builder(), OptionsBuilder::read_concern_level);
                let valid = built.seeds(["a:1".parse().expect("an address")]).build().is_ok();
                differences.equal("valid", &self.valid, &valid);
                let found = Found {
                    document: concern.document(),
                    is_server_default: concern.is_server_default(),
                    is_acknowledged: None,
                };
                self.compare(&found, self.read_concern_document.as_ref(), &mut differences);
            }
            (None, Some(write)) => match write.build() {
                // A number that no concern can have.
                None => differences.equal("valid", &self.valid, &false),
                Some(concern) => self.run_write(concern, &mut differences),
            },
            _ => differences.differs("the case", "one concern", "none, or two"),
        }
        CaseReport::new(self.description.clone(), differences)
    }

    fn run_write(&self, concern: WriteConcern, differences: &mut Differences) {
        let found = Found {
            document: concern.document(),
            is_server_default: concern.is_server_default(),
            is_acknowledged: Some(concern.is_acknowledged()),
        };
        let built = Options::builder().seeds(["a:1".parse().expect("an address")]);
        let valid = built.write_concern(concern).build().is_ok();
        differences.equal("valid", &self.valid, &valid);
        self.compare(&found, self.write_concern_document.as_ref(), differences);
    }

    fn compare(&self, found: &Found, expected: Option<&Document>, differences: &mut Differences) {
        let document = Document::try_from(&*found.document);
        if let Some(expected) = expected
            && document.as_ref().ok().is_none_or(|document| !same(document, expected))
        {
            differences.differs("document", expected, shown(&document));
        }
        let is_server_default = Some(found.is_server_default);
        for (field, expected, found) in [
            ("isServerDefault", self.is_server_default, is_server_default),
            ("isAcknowledged", self.is_acknowledged, found.is_acknowledged),
        ] {
            if expected.is_some() && expected != found {
                differences.differs(field, shown(&expected), shown(&found));
            }
        }
    }
}

impl WriteConcernDocument {
    /// Returns the concern, `None` if none can be like this.
    fn build(&self) -> Option<WriteConcern> {
        let servers = |count: i64| u32::try_from(count).ok().map(Acknowledgment::Servers);
        let w = match &self.w {
            None => None,
            Some(Bson::Int32(count)) => Some(servers((*count).into())?),
            Some(Bson::Int64(count)) => Some(servers(*count)?),
            Some(Bson::String(name)) => Some(Acknowledgment::Named(name.clone())),
            Some(_) => return None,
        };
        let timeout = match self.timeout {
            None => None,
            Some(millis) => Some(Duration::from_millis(u64::try_from(millis).ok()?)),
        };
        Some(WriteConcern::default().with_w(w).with_journal(self.journal).with_timeout(timeout))
    }
}

/// Fields may be in any order; numbers are equal if their values are.
fn same(a: &Document, b: &Document) -> bool {
    let number = |value: &Bson| match value {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        _ => None,
    };
    let equal = |a: &Bson, b: &Bson| a == b || (number(a).is_some() && number(a) == number(b));
    a.len() == b.len()
        && a.iter().all(|(name, value)| b.get(name).is_some_and(|other| equal(value, other)))
}

fn shown(value: &impl Debug) -> String {
    format!("{value:?}")
}
