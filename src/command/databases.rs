//! Databases: enumerated and dropped (Enumerate Databases).

use bson::RawDocumentBuf;
use bson::raw::{CStr, cstr};
use sdam_core::wire::ReplyDocument;

use super::Scope;
use super::single::{Body, Rules, SingleCommand, Target};
use crate::error::{Error, ReplyError, WriteConcernError};

operation! {
    /// The databases of a deployment.
    #[derive(Clone, Debug, Default)]
    pub struct ListDatabases as ListDatabasesOptions { names_only: bool }

    arguments {
        /// Asks for all databases.
        new();
    }

    options {
        /// Leaves out databases that the user may not use, or does not.
        authorized_databases: bool = "authorizedDatabases";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Asks for those only that a filter matches.
        filter: document = "filter";
    }
}

impl ListDatabases {
    /// Asks for names alone, "using nameOnly".
    #[must_use]
    pub const fn names(mut self) -> Self {
        self.names_only = true;
        self
    }
}

impl SingleCommand for ListDatabases {
    /// The databases, as the server describes them.
    type Output = Vec<RawDocumentBuf>;

    const COMMAND: &'static CStr = cstr!("listDatabases");
    const RULES: Rules = Rules::LIST;

    fn target(&self) -> Target<'_> {
        Target::Deployment
    }

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        body.options(&self.options, &[])?;
        if self.names_only {
            body.append(cstr!("nameOnly"), true);
        }
        Ok(())
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Vec<RawDocumentBuf>, Error> {
        let missing = |_| ReplyError::new(Self::COMMAND.as_str(), "databases");
        let databases = reply.get_array("databases").map_err(missing)?;
        let databases = databases.into_iter().filter_map(|database| database.ok()?.as_document());
        Ok(databases.map(ToOwned::to_owned).collect())
    }
}

operation! {
    /// The removal of a database with all its collections.
    #[derive(Clone, Debug, Default)]
    pub struct DropDatabase as DropDatabaseOptions {}

    arguments {
        /// Drops the database.
        new();
    }

    options {
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
    }
}

impl SingleCommand for DropDatabase {
    type Output = ();

    const COMMAND: &'static CStr = cstr!("dropDatabase");
    const RULES: Rules = Rules::WRITE_ONCE;

    fn target(&self) -> Target<'_> {
        Target::Database
    }

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        body.options(&self.options, &[])
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<(), Error> {
        WriteConcernError::check(reply)
    }
}

#[cfg(test)]
mod tests {
    use bson::{doc, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::super::testing::{NEW, majority, scope, written_in};
    use super::super::{Operation, Progress, Route};
    use super::{DropDatabase, ListDatabases};

    /// Enumerate Databases: the form of the command, on admin, on the primary, and repeated.
    #[test]
    fn databases_are_listed_whole_or_by_name() {
        let list = ListDatabases::new().filter(doc! { "name": "a" }).authorized_databases(true);
        let mut whole = list;
        let command = whole.command(&scope(), &NEW).unwrap();
        let expected = rawdoc! {
            "listDatabases": 1, "filter": { "name": "a" }, "authorizedDatabases": true,
        };
        assert!(command.retryable);
        assert_eq!((&*command.database, command.body), ("admin", expected));
        assert_eq!(whole.route(), Route::ReadPrimary);
        let first = rawdoc! { "name": "a", "sizeOnDisk": 1.0, "empty": false };
        let reply = ReplyDocument::from(rawdoc! { "ok": 1, "databases": [first.clone()] });
        assert_eq!(whole.reply(&scope(), &reply).unwrap(), Progress::Done(vec![first]));
        let mut names = ListDatabases::new().names();
        let body = names.command(&scope(), &NEW).unwrap().body;
        assert_eq!(body, rawdoc! { "listDatabases": 1, "nameOnly": true });
        assert!(names.reply(&scope(), &ReplyDocument::from(rawdoc! { "ok": 1 })).is_err());
    }

    #[test]
    fn a_database_is_dropped_with_a_write_concern() {
        let body = written_in(&mut DropDatabase::new(), &majority(), NEW).body;
        assert_eq!(body, rawdoc! { "dropDatabase": 1, "writeConcern": { "w": "majority" } });
    }
}
