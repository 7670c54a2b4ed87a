//! The methods of collections, databases and clients that begin an action: the same for handles
//! that are awaited, and for those of threads. Each handle has a method `act` that makes one.

/// Writes the actions of a collection whose documents are of any type.
macro_rules! actions_of_collections {
    ($on:ty) => {
        /// Returns the action of an operation that was made before.
        pub fn operation<O: View<T>>(&self, operation: O) -> Action<O, $on, O::Form> {
            self.act(operation)
        }

        /// Counts the documents that a filter matches, exactly.
        ///
        /// The server runs an aggregation for it, whose filters have no `$where`, `$near` and
        /// `$nearSphere`: `$expr`, and `$geoWithin` with `$center` or `$centerSphere`, take their
        /// places.
        ///
        /// Options: those of [`CountDocuments`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn count_documents(
            &self,
            filter: impl Into<CountDocuments>,
        ) -> Action<CountDocuments, $on> {
            self.act(filter.into())
        }

        /// Returns the number of documents as the collection's metadata have it.
        ///
        /// Options: those of [`EstimatedDocumentCount`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn estimated_document_count(&self) -> Action<EstimatedDocumentCount, $on> {
            self.act(EstimatedDocumentCount::new())
        }

        /// Counts the documents that a filter matches by the command `count`, which is deprecated.
        ///
        /// Options: those of [`Count`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn count(&self, filter: impl Into<Count>) -> Action<Count, $on> {
            self.act(filter.into())
        }

        /// Returns the different values of a field in the documents that a filter matches.
        ///
        /// Options: those of [`Distinct`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error, and if a value is of another type.
        pub fn distinct(
            &self,
            field: impl Into<String>,
            filter: impl IntoDocument,
        ) -> Action<Distinct, $on, Each<Bson>> {
            self.act(Distinct::new(field, filter))
        }

        /// Runs a map-reduce operation, and returns the documents that it makes, `{ _id, value }`;
        /// none if they go into a collection.
        ///
        /// It is sent once, whatever happens.
        ///
        /// Options: those of [`MapReduce`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, with an error, if the write concern is not met, and
        /// if a document is not of this type.
        #[deprecated(note = "MongoDB 5.0 deprecates mapReduce; `aggregate` does the same, faster")]
        pub fn map_reduce(
            &self,
            map: impl Into<String>,
            reduce: impl Into<String>,
            output: MapReduceOutput,
        ) -> Action<MapReduce, $on, Each<Document>> {
            self.act(MapReduce::new(map, reduce, output))
        }

        /// Runs a pipeline.
        ///
        /// Options: those of [`Aggregate`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn aggregate(
            &self,
            pipeline: impl Into<Aggregate>,
        ) -> Action<Aggregate, $on, Many<Document>> {
            self.act(pipeline.into())
        }

        /// Watches the changes of the collection.
        ///
        /// Options: those of [`Watch`], a pipeline among them.
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error, as one that is no member of a
        /// replica set and no mongos.
        pub fn watch(&self) -> Action<Watch, $on, Changes<ChangeStreamEvent<T>>> {
            self.act(Watch::new())
        }

        /// Updates the first document that a filter matches, by operators or a pipeline.
        ///
        /// Options: those of [`Update`].
        ///
        /// # Errors
        ///
        /// Fails if the update has no operator, if no server answers in time, and if it refuses the
        /// write.
        pub fn update_one(
            &self,
            filter: impl IntoDocument,
            update: impl Into<Modifications>,
        ) -> Action<Update, $on> {
            self.act(Update::new(filter, update))
        }

        /// Updates all documents that a filter matches, by operators or a pipeline.
        ///
        /// Options: those of [`Update`].
        ///
        /// # Errors
        ///
        /// Fails as [`update_one`](Self::update_one) does.
        pub fn update_many(
            &self,
            filter: impl IntoDocument,
            update: impl Into<Modifications>,
        ) -> Action<Update, $on> {
            self.act(Update::many(filter, update))
        }

        /// Deletes the first document that a filter matches.
        ///
        /// Options: those of [`Delete`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, and if it refuses the write.
        pub fn delete_one(&self, filter: impl Into<Delete>) -> Action<Delete, $on> {
            self.act(filter.into())
        }

        /// Deletes all documents that a filter matches.
        ///
        /// Options: those of [`Delete`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, and if it refuses the write.
        pub fn delete_many(&self, filter: impl Into<Delete>) -> Action<Delete, $on> {
            self.act(filter.into().multi(true))
        }

        /// Does many writes, in as few commands as their kinds, number and length allow.
        ///
        /// Options: those of [`BulkWrite`].
        ///
        /// # Errors
        ///
        /// Fails if an argument is invalid, before anything is sent; if no server answers in time,
        /// or with an error; and if it refuses any of the writes, with the error of a bulk write,
        /// which has the partial result.
        pub fn bulk_write(&self, models: impl Into<BulkWrite>) -> Action<BulkWrite, $on> {
            self.act(models.into())
        }

        /// Drops the collection; it is no error if there is none.
        ///
        /// Options: those of [`DropCollection`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn drop(&self) -> Action<DropCollection, $on> {
            self.act(DropCollection::new())
        }

        /// Gives the collection a new name, `database.name`; this handle keeps the old one.
        ///
        /// Options: those of [`RenameCollection`].
        ///
        /// # Errors
        ///
        /// Fails if the new name has no database, if no server answers in time, or with an error.
        pub fn rename(&self, to: impl Into<String>) -> Action<RenameCollection, $on> {
            self.act(RenameCollection::new(to))
        }

        /// Changes options of the collection.
        ///
        /// Options: those of [`ModifyCollection`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn modify(&self) -> Action<ModifyCollection, $on> {
            self.act(ModifyCollection::new())
        }

        /// Creates an index, and returns its name.
        ///
        /// Options: those of [`CreateIndexes`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn create_index(
            &self,
            index: impl Into<IndexModel>,
        ) -> Action<CreateIndexes, $on, First> {
            self.act(CreateIndexes::new([index.into()]))
        }

        /// Creates indexes, and returns their names.
        ///
        /// Options: those of [`CreateIndexes`].
        ///
        /// # Errors
        ///
        /// Fails if there are none, if no server answers in time, or with an error.
        pub fn create_indexes(
            &self,
            indexes: impl IntoIterator<Item = IndexModel>,
        ) -> Action<CreateIndexes, $on> {
            self.act(CreateIndexes::new(indexes))
        }

        /// Drops an index.
        ///
        /// Options: those of [`DropIndexes`].
        ///
        /// # Errors
        ///
        /// Fails if its name is `*`, if no server answers in time, or with an error, as where there
        /// is no such index.
        pub fn drop_index(&self, name: impl AsRef<str>) -> Action<DropIndexes, $on> {
            self.act(DropIndexes::one(name.as_ref()))
        }

        /// Drops all indexes but that of `_id`.
        ///
        /// Options: those of [`DropIndexes`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn drop_indexes(&self) -> Action<DropIndexes, $on> {
            self.act(DropIndexes::all())
        }

        /// Lists the indexes; none if there is no such collection.
        ///
        /// Options: those of [`ListIndexes`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn list_indexes(&self) -> Action<ListIndexes, $on, Many<IndexModel>> {
            self.act(ListIndexes::new())
        }

        /// Lists the names of the indexes.
        ///
        /// Options: those of [`ListIndexes`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn list_index_names(&self) -> Action<ListIndexes, $on, Names> {
            self.act(ListIndexes::new())
        }

        /// Creates an index for searches, and returns its name.
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn create_search_index(
            &self,
            index: SearchIndexModel,
        ) -> Action<CreateSearchIndexes, $on, First> {
            self.act(CreateSearchIndexes::new([index]))
        }

        /// Creates indexes for searches, and returns their names.
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn create_search_indexes(
            &self,
            indexes: impl IntoIterator<Item = SearchIndexModel>,
        ) -> Action<CreateSearchIndexes, $on> {
            self.act(CreateSearchIndexes::new(indexes))
        }

        /// Drops an index for searches; it is no error if there is none.
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn drop_search_index(&self, name: impl Into<String>) -> Action<DropSearchIndex, $on> {
            self.act(DropSearchIndex::new(name))
        }

        /// Gives an index for searches another definition.
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn update_search_index(
            &self,
            name: impl Into<String>,
            definition: impl IntoDocument,
        ) -> Action<UpdateSearchIndex, $on> {
            self.act(UpdateSearchIndex::new(name, definition))
        }

        /// Lists the indexes for searches.
        ///
        /// Options: those of [`ListSearchIndexes`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn list_search_indexes(&self) -> Action<ListSearchIndexes, $on, Many<Document>> {
            self.act(ListSearchIndexes::new())
        }
    };
}

/// Writes the actions of a collection whose documents can be written.
macro_rules! actions_of_writable_collections {
    ($on:ty) => {
        /// Inserts a document, with an `_id` if it has none: the document itself, or a reference.
        ///
        /// Options: those of [`InsertOne`].
        ///
        /// # Errors
        ///
        /// Fails if the document cannot be written as BSON, if no server answers in time, and if it
        /// refuses the write.
        pub fn insert_one(&self, document: impl Borrow<T>) -> Action<InsertOne, $on> {
            self.act(InsertOne::new(document.borrow()))
        }

        /// Inserts documents, each with an `_id` if it has none, in as few commands as their number
        /// and length allow.
        ///
        /// Options: those of [`InsertMany`].
        ///
        /// # Errors
        ///
        /// Fails if there are none, if one cannot be written as BSON, if no server answers in time,
        /// or with an error; and if it refuses any of them, with the error of a bulk write, which
        /// has the partial result.
        pub fn insert_many(
            &self,
            documents: impl IntoIterator<Item = impl Borrow<T>>,
        ) -> Action<InsertMany, $on> {
            self.act(InsertMany::new::<T>(documents))
        }

        /// Replaces the first document that a filter matches.
        ///
        /// Options: those of [`Replace`].
        ///
        /// # Errors
        ///
        /// Fails if the replacement begins with an operator, if no server answers in time, and if
        /// it refuses the write.
        pub fn replace_one(
            &self,
            filter: impl IntoDocument,
            replacement: impl Borrow<T>,
        ) -> Action<Replace, $on> {
            self.act(Replace::new(filter, replacement.borrow()))
        }

        /// Replaces the first document that a filter matches, and returns it: as it was, unless it
        /// is to be returned as it is then.
        ///
        /// `None` says that none matches, or that the write is not acknowledged: with `w: 0` the
        /// server says nothing of the document.
        ///
        /// Options: those of [`FindOneAndReplace`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error, if the document is of another
        /// type, and if the replacement begins with an operator.
        pub fn find_one_and_replace(
            &self,
            filter: impl IntoDocument,
            replacement: impl Borrow<T>,
        ) -> Action<FindOneAndReplace, $on, One<T>> {
            self.act(FindOneAndReplace::new(filter, replacement.borrow()))
        }
    };
}

/// Writes the actions of a collection that read its documents. The type is to be one that can be
/// read where documents are handed out, and not before: a cursor may be read in place, as a type
/// that borrows.
macro_rules! actions_of_readable_collections {
    ($on:ty) => {
        /// Looks for documents.
        ///
        /// A filter is a `Document`, as `doc!` makes it, or a raw document; of a type of the
        /// application's, [`bson::serialize_to_document`] makes one.
        ///
        /// Options: those of [`Find`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn find(&self, filter: impl Into<Find>) -> Action<Find, $on, Many<T>> {
            self.act(filter.into())
        }

        /// Returns the first document that matches, if any does.
        ///
        /// Options: those of [`FindOne`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error, and if the document is of another
        /// type.
        pub fn find_one(&self, filter: impl Into<FindOne>) -> Action<FindOne, $on, One<T>> {
            self.act(filter.into())
        }

        /// Deletes the first document that matches, and returns it.
        ///
        /// `None` says that none matches, or that the write is not acknowledged: with `w: 0` the
        /// server says nothing of the document.
        ///
        /// Options: those of [`FindOneAndDelete`].
        ///
        /// # Errors
        ///
        /// Fails as [`find_one`](Self::find_one) does.
        pub fn find_one_and_delete(
            &self,
            filter: impl Into<FindOneAndDelete>,
        ) -> Action<FindOneAndDelete, $on, One<T>> {
            self.act(filter.into())
        }

        /// Updates the first document that matches, and returns it: as it was, unless it is to be
        /// returned as it is then.
        ///
        /// `None` says that none matches, or that the write is not acknowledged: with `w: 0` the
        /// server says nothing of the document.
        ///
        /// Options: those of [`FindOneAndUpdate`].
        ///
        /// # Errors
        ///
        /// Fails as [`find_one`](Self::find_one) does, and if the update has no operator.
        pub fn find_one_and_update(
            &self,
            filter: impl IntoDocument,
            update: impl Into<Modifications>,
        ) -> Action<FindOneAndUpdate, $on, One<T>> {
            self.act(FindOneAndUpdate::new(filter, update))
        }
    };
}

/// Writes the actions of a database.
macro_rules! actions_of_databases {
    ($on:ty) => {
        /// Returns the action of an operation that was made before.
        pub fn operation<O: View<Document>>(&self, operation: O) -> Action<O, $on, O::Form> {
            self.act(operation)
        }

        /// Runs a command as it is written, with no concern of this handle and never twice, on the
        /// primary unless it says otherwise (Run Command). Its concerns are those that are written
        /// in it.
        ///
        /// Options: those of [`RunCommand`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error; an error of a write concern is in
        /// the reply.
        pub fn run_command(
            &self,
            command: impl Into<RunCommand>,
        ) -> Action<RunCommand, $on, Reply> {
            self.act(command.into())
        }

        /// Runs a command that opens a cursor, as it is written.
        ///
        /// Options: those of [`RunCursorCommand`].
        ///
        /// # Errors
        ///
        /// Fails as [`run_command`](Self::run_command) does, and if the reply has no cursor.
        pub fn run_cursor_command(
            &self,
            command: impl Into<RunCursorCommand>,
        ) -> Action<RunCursorCommand, $on, Many<Document>> {
            self.act(command.into())
        }

        /// Runs a pipeline that begins without a collection, as `$currentOp` does.
        ///
        /// Options: those of [`Aggregate`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn aggregate(
            &self,
            pipeline: impl Into<Aggregate>,
        ) -> Action<Aggregate, $on, Many<Document>> {
            self.act(pipeline.into())
        }

        /// Watches the changes of all collections of the database.
        ///
        /// Options: those of [`Watch`], a pipeline among them.
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error, as one that is no member of a
        /// replica set and no mongos.
        pub fn watch(&self) -> Action<Watch, $on, Changes<ChangeStreamEvent>> {
            self.act(Watch::new())
        }

        /// Lists the collections, each with its options.
        ///
        /// Options: those of [`ListCollections`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn list_collections(
            &self,
        ) -> Action<ListCollections, $on, Many<CollectionSpecification>> {
            self.act(ListCollections::new())
        }

        /// Lists the names of the collections.
        ///
        /// Options: those of [`ListCollections`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn list_collection_names(&self) -> Action<ListCollections, $on, Names> {
            self.act(ListCollections::new())
        }

        /// Creates a collection, or a view; writing to a collection creates it, too.
        ///
        /// Options: those of [`CreateCollection`].
        ///
        /// # Errors
        ///
        /// Fails if there is one of that name, and if no server answers in time, or with an error.
        pub fn create_collection(
            &self,
            name: impl Into<CreateCollection>,
        ) -> Action<CreateCollection, $on> {
            self.act(name.into())
        }

        /// Drops the database with all its collections.
        ///
        /// Options: those of [`DropDatabase`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn drop(&self) -> Action<DropDatabase, $on> {
            self.act(DropDatabase::new())
        }
    };
}

/// Writes the actions of a client.
macro_rules! actions_of_clients {
    ($on:ty) => {
        /// Returns the action of an operation that was made before.
        pub fn operation<O: View<Document>>(&self, operation: O) -> Action<O, $on, O::Form> {
            self.act(operation)
        }

        /// Lists the databases.
        ///
        /// Options: those of [`ListDatabases`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn list_databases(&self) -> Action<ListDatabases, $on, Each<DatabaseSpecification>> {
            self.act(ListDatabases::new())
        }

        /// Lists the names of the databases.
        ///
        /// Options: those of [`ListDatabases`].
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error.
        pub fn list_database_names(&self) -> Action<ListDatabases, $on, Names> {
            self.act(ListDatabases::new())
        }

        /// Watches the changes of all databases.
        ///
        /// Options: those of [`Watch`], a pipeline among them.
        ///
        /// # Errors
        ///
        /// Fails if no server answers in time, or with an error, as one that is no member of a
        /// replica set and no mongos.
        pub fn watch(&self) -> Action<Watch, $on, Changes<ChangeStreamEvent>> {
            self.act(Watch::new())
        }

        /// Writes to several collections, in as few commands as their number and length allow
        /// (MongoDB 8.0): each write with the namespace of its collection.
        ///
        /// Options: those of [`ClientBulkWrite`].
        ///
        /// # Errors
        ///
        /// Fails if an argument is invalid, before anything is sent; if no server answers in time,
        /// or with an error; and if it refuses any of the writes, with the error of a bulk write,
        /// which has the partial result.
        pub fn bulk_write(
            &self,
            models: impl Into<ClientBulkWrite>,
        ) -> Action<ClientBulkWrite, $on> {
            self.act(models.into())
        }
    };
}

pub(crate) use {
    actions_of_clients, actions_of_collections, actions_of_databases,
    actions_of_readable_collections, actions_of_writable_collections,
};
