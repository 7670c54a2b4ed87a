//! The files that a majority of the members has: each is there with all of its chunks at any time,
//! and in the end those that were acknowledged are there, and nothing else is.

use bson::{Bson, Document};
use sdam_cluster::{CommittedChange, CommittedChanges};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::{CLEANING, Fate, File, Files, Finding, Violation, ensure};

/// The collections of the bucket, as members name them.
const FILES: &str = "d.fs.files";
const CHUNKS: &str = "d.fs.chunks";

type Found = Result<(), (usize, Violation)>;

impl Files {
    /// Returns the place in the log up to which everything is known.
    pub(in crate::sim::applications) const fn until(&self) -> (i64, u64) {
        self.until
    }

    /// Takes the changes that a majority has since, and judges what is there after each.
    pub(in crate::sim::applications) fn learn(&mut self, committed: CommittedChanges) -> Found {
        if !committed.is_whole {
            let detail = format!("the log does not go back to {:?}", self.until);
            return Err((0, Violation::new("what a majority has lasts", detail)));
        }
        self.until = committed.until;
        for change in committed.changes {
            let CommittedChange { kind, namespace, id, document, .. } = change;
            let judged = match &*namespace {
                FILES => self.file_changes(kind, id.as_ref(), document.as_ref()),
                CHUNKS => self.chunk_changes(kind, id.as_ref(), document.as_ref()),
                _ => Ok(()),
            };
            judged.map_err(|violation| (0, violation))?;
        }
        Ok(())
    }

    pub(super) fn file_changes(
        &mut self,
        kind: &str,
        id: Option<&Bson>,
        document: Option<&Document>,
    ) -> Finding {
        let number = id.and_then(|id| self.number_of(id));
        let Some(file) = number.and_then(|number| self.all.get_mut(number)) else {
            let is_of_none = kind == "insert";
            return ensure(!is_of_none, "files are those of uploads", || format!("{id:?}"));
        };
        let Some(document) = document else {
            file.document = None;
            return Ok(());
        };
        // Who deletes a file before its upload has succeeded may come before the document does, as
        // that is sent again to a primary that has never had it.
        let was_deleted = file.is_going && file.fate != Fate::Acknowledged;
        let is_whole = (0..file.source.chunks()).eq(file.chunks.keys().copied());
        ensure(is_whole || was_deleted, "no file is without its chunks", || {
            format!("{kind} of {file:?}")
        })?;
        let is_its = kind != "insert" || file.is_closing;
        ensure(is_its, "only what is closed is stored", || format!("{file:?}"))?;
        file.document = Some(document.get_str("filename").unwrap_or_default().to_owned());
        Ok(())
    }

    pub(super) fn chunk_changes(
        &mut self,
        kind: &str,
        id: Option<&Bson>,
        document: Option<&Document>,
    ) -> Finding {
        let Some(id) = id.map(ToString::to_string) else { return Ok(()) };
        let is_insert = kind == "insert";
        let owner = match (document, is_insert) {
            (Some(document), true) => {
                let number = document.get("files_id").and_then(|id| self.number_of(id));
                number.zip(document.get_i32("n").ok().map(i64::from))
            }
            _ => self.owners.get(&id).copied(),
        };
        let Some((number, n)) = owner else {
            return ensure(false, "chunks are of a file", || format!("{kind} of {id}"));
        };
        self.owners.insert(id.clone(), (number, n));
        let file = &mut self.all[number];
        let is_free = file.document.is_none();
        ensure(is_free, "the chunks of a file that is stored stay", || {
            format!("{kind} of chunk {n} of {file:?}")
        })?;
        if !is_insert {
            file.chunks.remove(&n);
            return Ok(());
        }
        let bytes = document.and_then(|it| it.get_binary_generic("data").ok());
        let is_its = bytes.is_some_and(|bytes| file.source.is_chunk(n, bytes));
        ensure(is_its, "chunks are what was written", || format!("chunk {n} of {file:?}"))?;
        let is_new = file.chunks.insert(n, id).is_none();
        ensure(is_new, "each chunk is there once", || format!("chunk {n} of {file:?}"))
    }

    /// Judges what is there when everything has come to its end.
    pub(in crate::sim::applications) fn finish(&self) -> Found {
        for (number, file) in self.all.iter().enumerate() {
            let judged = self.judge_document(number, file).and_then(|()| self.judge_rest(file));
            judged.map_err(|violation| (file.client, violation))?;
        }
        Ok(())
    }

    fn judge_document(&self, number: usize, file: &File) -> Finding {
        let Some(name) = &file.document else {
            let is_missing = file.fate == Fate::Acknowledged && !file.is_going;
            return ensure(!is_missing, "what was acknowledged is there", || format!("{file:?}"));
        };
        ensure(!file.is_gone, "what was deleted is gone", || format!("{file:?}"))?;
        let may_be_there = matches!(file.fate, Fate::Acknowledged | Fate::Unknown);
        ensure(may_be_there, "what has failed, or was given up, is not stored", || {
            format!("{file:?}")
        })?;
        ensure(self.may_be_named(number, name), "files have the names that they were given", || {
            format!("{name} of {file:?}")
        })
    }

    /// Judges the chunks that are left without a file.
    fn judge_rest(&self, file: &File) -> Finding {
        let is_stored = file.document.is_some();
        if is_stored || file.chunks.is_empty() && file.fate != Fate::Aborted {
            return Ok(());
        }
        let Some(cleaned) = file.cleaned else {
            ensure(file.fate != Fate::Aborted, "what is aborted is removed", || {
                format!("{file:?}")
            })?;
            let Fate::Dropped { client, at } = file.fate else { return Ok(()) };
            let is_excused = file.is_contested
                || file.not_cleaned.is_some_and(|failed| failed >= at)
                || self.was_troubled(client, at, file.heard.max(at));
            return ensure(is_excused, "what is dropped is removed", || format!("{file:?}"));
        };
        // What was under way then, and has had no reply, may have come later; and so may a batch of
        // a stream that was left for another one.
        let may_be_left = file.lives > 1 || file.fate == Fate::Failed;
        let may_come = |id: &String| {
            file.inserts.get(id).is_some_and(|insert| {
                let is_later = insert.answered.is_none_or(|at| at > cleaned);
                insert.is_lost || may_be_left && is_later
            })
        };
        let left = file.chunks.iter().find(|(_, id)| !may_come(id));
        let is_removed = matches!(file.fate, Fate::Aborted | Fate::Dropped { .. }) || file.is_gone;
        ensure(!is_removed || left.is_none(), "what is removed is gone", || {
            format!("chunk {left:?} of {file:?}")
        })
    }

    /// Returns whether a client may have had no server or no connection while it was to remove
    /// chunks.
    pub(super) fn was_troubled(&self, client: usize, from: Instant, landed: Instant) -> bool {
        let until = landed + CLEANING;
        let troubles = self.troubles.get(&client).into_iter().flatten();
        troubles.into_iter().any(|(begun, ended)| *begun <= until && *ended >= from)
    }
}
