//! Databases: enumerated and dropped (Enumerate Databases).

use std::borrow::Cow;

use bson::RawDocumentBuf;
use bson::raw::cstr;
use sdam_core::wire::ReplyDocument;

use super::collections::unless_write_concern_failed;
use super::fields::{Fields, options};
use super::run::{name, whole};
use super::{Command, Facts, Operation, Progress, Route, Scope};
use crate::error::{Error, ReplyError};

/// The databases of a deployment.
#[derive(Clone, Debug, Default)]
pub struct ListDatabases {
    options: Fields,
}

options! {
    ListDatabases {
        /// Leaves out databases that the user may not use, or does not.
        authorized_databases: truth = "authorizedDatabases";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Asks for those only that a filter matches.
        filter: document = "filter";
    }
}

impl ListDatabases {
    /// Asks for all databases.
    pub fn new() -> Self {
        Self::default()
    }

    fn command(&self, scope: &Scope, names_only: bool) -> Result<Command<'static>, Error> {
        let mut body = RawDocumentBuf::new();
        body.append(cstr!("listDatabases"), 1);
        self.options.write(&mut body, &[])?;
        if names_only {
            body.append(cstr!("nameOnly"), true);
        }
        let scope = Scope { database: "admin".into(), ..scope.clone() };
        Ok(Command { retryable: true, ..Command::run(&scope, body) })
    }
}

/// `listDatabases`, as it is sent: `T` is what is read of each database.
#[derive(Clone, Debug)]
pub struct Databases<T> {
    list: ListDatabases,
    names_only: bool,
    read: fn(&bson::RawDocument) -> Option<T>,
}

impl Databases<String> {
    /// Asks for names alone, "using nameOnly".
    pub const fn names(list: ListDatabases) -> Self {
        Self { list, names_only: true, read: name }
    }
}

impl Databases<RawDocumentBuf> {
    /// Asks for all that is known of each.
    pub const fn whole(list: ListDatabases) -> Self {
        Self { list, names_only: false, read: whole }
    }
}

impl<T> Operation for Databases<T> {
    type Output = Vec<T>;

    fn name(&self) -> Cow<'static, str> {
        "listDatabases".into()
    }

    fn route(&self) -> Route {
        Route::ReadPrimary
    }

    fn command(&mut self, scope: &Scope, _: &Facts) -> Result<Command<'_>, Error> {
        self.list.command(scope, self.names_only)
    }

    fn reply(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Progress<Vec<T>>, Error> {
        let missing = |_| ReplyError { command: "listDatabases", field: "databases" };
        let databases = reply.get_array("databases").map_err(missing)?;
        let databases = databases.into_iter().filter_map(|database| database.ok()?.as_document());
        Ok(Progress::Done(databases.filter_map(self.read).collect()))
    }
}

/// The removal of a database with all its collections.
#[derive(Clone, Debug, Default)]
pub struct DropDatabase {
    options: Fields,
}

options! {
    DropDatabase {
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
    }
}

impl DropDatabase {
    /// Drops the database.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Operation for DropDatabase {
    type Output = ();

    fn name(&self) -> Cow<'static, str> {
        "dropDatabase".into()
    }

    fn is_retryable(&self) -> bool {
        false
    }

    fn command(&mut self, scope: &Scope, _: &Facts) -> Result<Command<'_>, Error> {
        let mut body = RawDocumentBuf::new();
        body.append(cstr!("dropDatabase"), 1);
        self.options.write(&mut body, &[])?;
        Command::write(scope, body, false)
    }

    fn reply(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Progress<()>, Error> {
        unless_write_concern_failed(reply).map(Progress::Done)
    }
}

#[cfg(test)]
mod tests {
    use bson::{doc, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::super::testing::{NEW, majority, scope, written_in};
    use super::super::{Operation, Progress, Route};
    use super::{Databases, DropDatabase, ListDatabases};

    /// Enumerate Databases: the form of the command, on admin, on the primary, and repeated.
    #[test]
    fn databases_are_listed_whole_or_by_name() {
        let list = ListDatabases::new().filter(doc! { "name": "a" }).authorized_databases(true);
        let mut whole = Databases::whole(list.clone());
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
        let mut names = Databases::names(ListDatabases::new());
        let body = names.command(&scope(), &NEW).unwrap().body;
        assert_eq!(body, rawdoc! { "listDatabases": 1, "nameOnly": true });
        assert_eq!(names.reply(&scope(), &reply).unwrap(), Progress::Done(vec!["a".to_owned()]));
        assert!(names.reply(&scope(), &ReplyDocument::from(rawdoc! { "ok": 1 })).is_err());
    }

    #[test]
    fn a_database_is_dropped_with_a_write_concern() {
        let body = written_in(&mut DropDatabase::new(), &majority(), NEW).body;
        assert_eq!(body, rawdoc! { "dropDatabase": 1, "writeConcern": { "w": "majority" } });
    }
}
