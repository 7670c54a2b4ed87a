//! Collections, indexes and databases: what there is, and changes of it.

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, RawDocumentBuf, doc};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::arguments::{Arguments, count};
use super::cursors::raw;
use super::images;
use super::writes::int32;
use crate::model::Cluster;
use crate::options::{MAX_WRITE_BATCH_SIZE, MemberId, ServerVersion};
use crate::store::{
    Collection, Cursor, Filter, Index, PRE_AND_POST_IMAGES, PRE_IMAGES, StoreError, is_true,
};
use crate::wire::CommandError;

/// The arguments of `create` and `collMod` that are no options of the collection.
const NO_OPTIONS: [&str; 13] = [
    "create",
    "collMod",
    "writeConcern",
    "lsid",
    "txnNumber",
    "autocommit",
    "startTransaction",
    "readConcern",
    "comment",
    "maxTimeMS",
    "index",
    "apiVersion",
    "rawData",
];

/// The arguments of a `collMod` that views do not have, in the order of servers.
const OF_COLLECTIONS: [&str; 6] =
    ["index", "validator", "validationLevel", "validationAction", PRE_IMAGES, PRE_AND_POST_IMAGES];

/// The databases that there always are.
const OWN_DATABASES: [&str; 3] = ["admin", "config", "local"];

fn options(body: &Document) -> Document {
    let own = body.iter().filter(|(name, _)| {
        !name.starts_with('$') && !name.starts_with("api") && !NO_OPTIONS.contains(&name.as_str())
    });
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Checks the options of a collection that is made or changed.
fn check_options(options: &Document) -> Result<(), CommandError> {
    let is = |name: &str| options.contains_key(name);
    if let Some(unknown) = ["timeseries", "clusteredIndex"].into_iter().find(|it| is(it)) {
        return Err(StoreError::not_implemented(unknown).into());
    }
    if is("expireAfterSeconds") {
        let reason = "'expireAfterSeconds' is only supported on time-series collections or when \
                      the 'clusteredIndex' option is specified";
        return Err(CommandError::coded(72, reason));
    }
    if is_true(options.get("capped")) && !is("size") {
        return Err(CommandError::coded(72, "the 'size' field is required when 'capped' is true"));
    }
    Ok(())
}

/// Checks what a `collMod` is to change of a view, which has nothing but what it shows. Servers
/// before 5.0 name the first argument that is none of that, whatever it is.
fn check_view(body: &Document, version: ServerVersion) -> Result<(), CommandError> {
    let refused = match version < ServerVersion::V5_0 {
        true => {
            let asked = options(body);
            let others = body.keys().filter(|it| *it == "index" || asked.contains_key(*it));
            others.map(String::as_str).find(|it| !["viewOn", "pipeline"].contains(it))
        }
        false => OF_COLLECTIONS.into_iter().find(|it| body.contains_key(it)),
    };
    let reason = |name| format!("option not supported on a view: {name}");
    refused.map_or(Ok(()), |name| Err(CommandError::coded(72, reason(name))))
}

/// Refuses a command that is run against another database than `admin`.
fn for_admin(arguments: &Arguments, command: &str) -> Result<(), CommandError> {
    let reason = || format!("{command} may only be run against the admin database.");
    let is_for = arguments.database == "admin";
    is_for.then_some(()).ok_or_else(|| CommandError::coded(13, reason()))
}

impl Cluster {
    /// Does what changes collections and indexes; none if the command is another.
    pub(super) fn change_catalogue(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
        name: &str,
    ) -> Option<Result<RawDocumentBuf, CommandError>> {
        Some(match name {
            "create" => self.create(now, member, arguments),
            "drop" => self.drop_collection(now, member, arguments),
            "dropDatabase" => self.drop_database(now, member, arguments),
            "renameCollection" => self.rename(now, member, arguments),
            "collMod" => self.modify(now, member, arguments),
            "createIndexes" => self.create_indexes(now, member, arguments),
            "dropIndexes" | "deleteIndexes" => self.drop_indexes(now, member, arguments, name),
            "shardCollection" => self.shard_collection(now, member, arguments),
            _ => return None,
        })
    }

    fn create(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        let namespace = arguments.namespace("create")?;
        let options = options(&arguments.body);
        check_options(&options)?;
        images::check("create", &arguments.database, &options, self.version_of(member))?;
        self.check_validation(now, arguments)?;
        self.write(now, member, arguments, |writer, _, _| Ok(writer.create(&namespace, options)?))?;
        raw(&doc! { "ok": 1.0 })
    }

    fn drop_collection(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        let namespace = arguments.namespace("drop")?;
        let is_view =
            self.data_of(member).store.collection(&namespace).is_some_and(|it| it.kind() == "view");
        let dropped =
            self.write(now, member, arguments, |writer, _, _| Ok(writer.drop(&namespace)))?;
        let version = self.version_of(member);
        match dropped {
            Some(_) if is_view => raw(&doc! { "ns": namespace, "ok": 1.0 }),
            Some(indexes) => {
                self.kill_cursors_of(&namespace);
                raw(&doc! { "nIndexesWas": int32(indexes), "ns": namespace, "ok": 1.0 })
            }
            None if version >= ServerVersion::V7_0 => raw(&doc! { "ok": 1.0 }),
            None => Err(CommandError::coded(26, "ns not found")),
        }
    }

    /// Forgets the cursors over a collection that is no more.
    fn kill_cursors_of(&mut self, namespace: &str) {
        for member in &mut self.members {
            if let Some(process) = &mut member.process {
                let is_kept = |it: &Cursor| it.namespace != namespace || it.stream.is_some();
                process.cursors.retain(|_, cursor| is_kept(cursor));
            }
        }
    }

    fn drop_database(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        let database = arguments.database.as_str();
        let dropped =
            self.write(now, member, arguments, |writer, _, _| Ok(writer.drop_database(database)))?;
        raw(&match dropped && self.version_of(member) < ServerVersion::V5_0 {
            true => doc! { "dropped": database, "ok": 1.0 },
            false => doc! { "ok": 1.0 },
        })
    }

    fn rename(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        for_admin(arguments, "renameCollection")?;
        let wrong = |_| CommandError::coded(14, "renameCollection and to are texts");
        let from = arguments.body.get_str("renameCollection").map_err(wrong)?;
        let to = arguments.body.get_str("to").map_err(wrong)?;
        let drops_target = arguments.flag("dropTarget");
        self.write(now, member, arguments, |writer, _, _| {
            Ok(writer.rename(from, to, drops_target)?)
        })?;
        self.kill_cursors_of(from);
        raw(&doc! { "ok": 1.0 })
    }

    /// Answers a `shardCollection`: all shards are one, so that it is reported and changes nothing.
    fn shard_collection(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        for_admin(arguments, "shardCollection")?;
        let wrong = |_| CommandError::coded(14, "shardCollection is a text");
        let namespace = arguments.body.get_str("shardCollection").map_err(wrong)?;
        let missing =
            || CommandError::numbered(40414, "BSON field 'shardCollection.key' is missing");
        let key = arguments.document("key")?.ok_or_else(missing)?;
        self.write(now, member, arguments, |writer, _, _| Ok(writer.shard(namespace, key)?))?;
        raw(&doc! { "collectionsharded": namespace, "ok": 1.0 })
    }

    fn modify(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        let namespace = arguments.namespace("collMod")?;
        let (mut options, version) = (options(&arguments.body), self.version_of(member));
        let collection = self.data_of(member).store.collection(&namespace);
        let is_view = collection.is_some_and(|it| it.kind() == "view");
        if is_view && version < ServerVersion::V5_0 {
            check_view(&arguments.body, version)?;
        }
        check_options(&options)?;
        images::check("collMod", &arguments.database, &options, version)?;
        if is_view {
            check_view(&arguments.body, version)?;
        }
        self.check_validation(now, arguments)?;
        if options.contains_key("validator") {
            for (name, implied) in [("validationLevel", "strict"), ("validationAction", "error")] {
                options.entry(name.to_owned()).or_insert_with(|| implied.into());
            }
        }
        let index = arguments.document("index")?;
        let change = index.map(|it| self.index_change(member, &namespace, it)).transpose()?;
        let mut what = self::options(&arguments.body);
        if let Some(index) = index {
            what.insert("index", index.clone());
        }
        self.write(now, member, arguments, |writer, _, _| {
            Ok(writer.modify(&namespace, options, what)?)
        })?;
        let mut reply = Document::new();
        if let Some((name, change)) = change {
            for (option, (old, new)) in change {
                let option = option.as_str();
                self.write(now, member, arguments, |writer, _, _| {
                    Ok(writer.modify_index(&namespace, &name, |description| {
                        if option == "unique" {
                            description.remove("prepareUnique");
                        }
                        description.insert(option, new.clone());
                    })?)
                })?;
                if let Some(old) = old {
                    reply.insert(format!("{option}_old"), old);
                }
                reply.insert(format!("{option}_new"), new);
            }
        }
        reply.insert("ok", 1.0);
        raw(&reply)
    }

    /// Reads how `collMod` is to change an index: which, and each option with its value before and
    /// after.
    fn index_change(
        &self,
        member: MemberId,
        namespace: &str,
        argument: &Document,
    ) -> Result<(String, Vec<OptionChange>), CommandError> {
        let missing = |reason: String| CommandError::coded(27, reason);
        let collection = self.data_of(member).store.collection(namespace);
        let collection = collection.ok_or_else(|| CommandError::coded(26, "ns does not exist"))?;
        let is_meant = |index: &&Index| match (argument.get("name"), argument.get("keyPattern")) {
            (Some(Bson::String(name)), None) => index.name() == name,
            (None, Some(Bson::Document(keys))) => index.keys() == *keys,
            _ => false,
        };
        let index = collection.indexes.iter().find(is_meant);
        let index = index.ok_or_else(|| missing(format!("cannot find index {argument}")))?;
        if argument.len() < 2 {
            let reason = "no expireAfterSeconds, hidden, unique, or prepareUnique field";
            return Err(CommandError::coded(72, reason));
        }
        let mut changes = Vec::new();
        for (option, new) in argument {
            let old = index.description.get(option).cloned();
            let (old, new) = match option.as_str() {
                "name" | "keyPattern" => continue,
                "hidden" | "prepareUnique" => {
                    let flag = is_true(Some(new));
                    (Some(old.unwrap_or(Bson::Boolean(false))), Bson::Boolean(flag))
                }
                "expireAfterSeconds" => (old, new.clone()),
                "unique" if old == Some(Bson::Boolean(true)) => continue,
                "unique" => {
                    check_unique(collection, index)?;
                    (None, Bson::Boolean(true))
                }
                _ => {
                    let reason =
                        format!("BSON field 'collMod.index.{option}' is an unknown field.");
                    return Err(CommandError::numbered(40415, reason));
                }
            };
            if old.as_ref() != Some(&new) {
                changes.push((option.clone(), (old, new)));
            }
        }
        Ok((index.name().to_owned(), changes))
    }

    /// Answers a `checkMetadataConsistency`: there is nothing that could contradict itself.
    pub(super) fn check_metadata(
        &mut self,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        let collection = arguments.body.get_str("checkMetadataConsistency");
        let collection = collection.unwrap_or("$cmd.aggregate");
        let namespace = format!("{}.{collection}", arguments.database);
        self.list(member, namespace, Vec::new(), arguments)
    }

    /// Checks what a collection is to demand of its documents.
    fn check_validation(
        &mut self,
        now: Instant,
        arguments: &Arguments,
    ) -> Result<(), CommandError> {
        let context = self.context(now, arguments)?;
        if let Some(validator) = arguments.document("validator")? {
            Filter::parse(validator, &context)?;
        }
        let options = [
            ("validationLevel", ["off", "strict", "moderate"]),
            ("validationAction", ["error", "warn", "errorAndLog"]),
        ];
        for (name, known) in options {
            let value = arguments.body.get(name);
            if let Some(value) =
                value.filter(|it| it.as_str().is_none_or(|it| !known.contains(&it)))
            {
                let reason =
                    format!("Enumeration value '{value}' for field '{name}' is not a valid value.");
                return Err(CommandError::coded(2, reason));
            }
        }
        Ok(())
    }

    fn create_indexes(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        let namespace = arguments.namespace("createIndexes")?;
        if arguments.body.get_array("indexes").is_ok_and(Vec::is_empty) {
            return Err(CommandError::coded(2, "Must specify at least one index to create"));
        }
        let mut descriptions = arguments.statements("indexes", MAX_WRITE_BATCH_SIZE)?;
        for description in &mut descriptions {
            if !description.contains_key("v") {
                let mut whole = doc! { "v": 2 };
                whole.extend(std::mem::take(description));
                *description = whole;
            }
        }
        let is_new = self.is_new_in_transaction(member, arguments, &namespace);
        let (made, (before, after)) = self.write(now, member, arguments, |writer, _, _| {
            let made = is_new.unwrap_or(writer.store().collection(&namespace).is_none());
            let (before, after) = writer.create_indexes(&namespace, descriptions)?;
            if is_new == Some(false) && before != after {
                let reason = format!(
                    "Cannot create new indexes on existing collection {namespace} in a \
                     multi-document transaction."
                );
                return Err(StoreError::not_in_transaction(reason).into());
            }
            Ok((made, (before, after)))
        })?;
        let mut reply = doc! {
            "numIndexesBefore": int32(before),
            "numIndexesAfter": int32(after),
        };
        if before == after {
            reply.insert("note", "all indexes already exist");
        } else {
            reply.insert("createdCollectionAutomatically", made);
            reply.insert("commitQuorum", "votingMembers");
        }
        reply.insert("ok", 1.0);
        raw(&reply)
    }

    fn drop_indexes(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
        command: &str,
    ) -> Result<RawDocumentBuf, CommandError> {
        let namespace = arguments.namespace(command)?;
        let missing = || CommandError::numbered(40414, "BSON field 'dropIndexes.index' is missing");
        let meant = arguments.body.get("index").ok_or_else(missing)?;
        let names: Vec<Bson> = match meant {
            Bson::Array(names) => names.clone(),
            one => vec![one.clone()],
        };
        let all = Bson::String("*".to_owned());
        let is = |index: &Index, meant: &Bson| match meant {
            Bson::String(name) => name == index.name() || name == "*",
            Bson::Document(keys) => *keys == index.keys(),
            _ => false,
        };
        let before = self.write(now, member, arguments, |writer, _, _| {
            let collection = writer.store().collection(&namespace);
            let indexes = collection.map(|it| it.indexes.clone()).unwrap_or_default();
            for name in names.iter().filter(|_| collection.is_some()) {
                if *name == Bson::String("_id_".to_owned()) {
                    return Err(CommandError::coded(72, "cannot drop _id index"));
                }
                if *name != all && !indexes.iter().any(|it| is(it, name)) {
                    let reason = match name {
                        Bson::String(name) => format!("index not found with name [{name}]"),
                        keys => format!("can't find index with key: {keys}"),
                    };
                    return Err(CommandError::coded(27, reason));
                }
            }
            Ok(writer.drop_indexes(&namespace, |it| names.iter().any(|name| is(it, name)))?)
        })?;
        let mut reply = doc! { "nIndexesWas": int32(before) };
        if names.contains(&all) {
            reply.insert("msg", "non-_id indexes dropped for collection");
        }
        reply.insert("ok", 1.0);
        raw(&reply)
    }

    pub(super) fn list_collections(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        let context = self.context(now, arguments)?;
        let filter = arguments.document("filter")?.cloned().unwrap_or_default();
        let filter = Filter::parse(&filter, &context)?;
        let (name_only, mut listed) = (arguments.flag("nameOnly"), Vec::new());
        for (name, collection) in self.data_of(member).store.of_database(&arguments.database) {
            let whole = described(name, collection);
            if filter.matches(&whole, &context)? {
                listed.push(match name_only {
                    true => doc! { "name": name, "type": collection.kind() },
                    false => whole,
                });
            }
        }
        let namespace = format!("{}.$cmd.listCollections", arguments.database);
        self.list(member, namespace, listed, arguments)
    }

    /// Answers with a cursor over what is listed.
    fn list(
        &mut self,
        member: MemberId,
        namespace: String,
        listed: Vec<Document>,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        let size = match arguments.document("cursor")? {
            Some(cursor) => count(cursor, "batchSize")?,
            None => None,
        };
        let rest = listed.into_iter().map(std::sync::Arc::new).collect();
        self.open(member, Cursor::over(namespace, rest, arguments.owner()), size, false)
    }

    pub(super) fn list_indexes(
        &mut self,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        let namespace = arguments.namespace("listIndexes")?;
        let Some(collection) = self.data_of(member).store.collection(&namespace) else {
            return Err(CommandError::coded(26, format!("ns does not exist: {namespace}")));
        };
        let listed = collection.indexes.iter().map(|it| it.description.clone()).collect();
        self.list(member, namespace, listed, arguments)
    }

    pub(super) fn list_databases(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        let context = self.context(now, arguments)?;
        let filter = arguments.document("filter")?.cloned().unwrap_or_default();
        let filter = Filter::parse(&filter, &context)?;
        let mut names: Vec<&str> = OWN_DATABASES.to_vec();
        let store = &self.data_of(member).store;
        names.extend(store.all().filter_map(|(it, _)| it.split('.').next()));
        names.sort_unstable();
        names.dedup();
        // Each collection takes as much as an empty one does on real servers.
        let size = |name: &str| 8192 * store.of_database(name).count().max(1) as i64;
        let (mut listed, mut total) = (Vec::new(), 0_i64);
        for name in names {
            let whole = doc! { "name": name, "sizeOnDisk": size(name), "empty": false };
            if filter.matches(&whole, &context)? {
                total += size(name);
                listed.push(if arguments.flag("nameOnly") {
                    doc! { "name": name }
                } else {
                    whole
                });
            }
        }
        let version = self.version_of(member);
        let mut reply = doc! { "databases": listed };
        if !arguments.flag("nameOnly") {
            reply.insert("totalSize", total);
            if version >= ServerVersion::V5_0 {
                reply.insert("totalSizeMb", total / (1 << 20));
            }
        }
        reply.insert("ok", 1.0);
        raw(&reply)
    }
}

/// An option of an index, with its value before, if it had one, and after.
type OptionChange = (String, (Option<Bson>, Bson));

/// Checks that an index can become unique: that it was prepared, and no two documents have the same
/// key.
fn check_unique(collection: &Collection, index: &Index) -> Result<(), CommandError> {
    if !index.description.get_bool("prepareUnique").unwrap_or(false) {
        let reason = "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it \
                      first";
        return Err(CommandError::coded(72, reason));
    }
    let violations = collection.duplicates(index);
    if violations.is_empty() {
        return Ok(());
    }
    let violations: Vec<Document> = violations.into_iter().map(|ids| doc! { "ids": ids }).collect();
    let reason = "Cannot convert the index to unique. Please resolve conflicting documents before \
                  running collMod again.";
    let mut error = CommandError::coded(359, reason);
    error.details.insert("violations", violations);
    Err(error)
}

/// Returns what `listCollections` says of a collection.
fn described(name: &str, collection: &Collection) -> Document {
    let mut info = doc! { "readOnly": collection.kind() == "view" };
    if collection.kind() == "collection" {
        let uuid = Binary { subtype: BinarySubtype::Uuid, bytes: collection.uuid.to_vec() };
        info.insert("uuid", uuid);
    }
    let mut whole = doc! {
        "name": name,
        "type": collection.kind(),
        "options": collection.options.clone(),
        "info": info,
    };
    let is_of_id = |it: &&Index| it.name() == "_id_";
    if let Some(index) = collection.indexes.first().filter(is_of_id) {
        whole.insert("idIndex", index.description.clone());
    }
    whole
}
