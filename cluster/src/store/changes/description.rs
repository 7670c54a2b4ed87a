//! `updateDescription`: which fields an update has changed, at which paths (Change Streams, "Server
//! Specification", `UpdateDescription`).

use std::borrow::Cow;

use bson::{Bson, Document, doc};
use sdam_core::bson;

use crate::store::catalog::{Act, Touched};

/// The names of fields, and the indexes of elements, that lead to a value.
pub(super) type Path = Vec<Bson>;

/// Returns the path of a field, or of an element, below another path.
pub(super) fn below(path: &Path, part: impl Into<Bson>) -> Path {
    path.iter().cloned().chain([part.into()]).collect()
}

/// The changes of an update.
#[derive(Clone, Debug, Default)]
pub(super) struct Description {
    updated: Document,
    removed: Vec<String>,
    truncated: Vec<Document>,
    /// The paths that a text can be read of in several ways.
    ambiguous: Document,
}

impl Description {
    /// Describes what operators have changed at their paths; servers since 5.0 name the first field
    /// that was made on the way, older ones the last.
    pub(super) fn of_operators(
        before: &Document,
        after: &Document,
        touched: &[Touched],
        is_since_5_0: bool,
    ) -> Self {
        let mut description = Self::default();
        let (before, after) = (Bson::from(before.clone()), Bson::from(after.clone()));
        for touched in touched {
            let parts: Vec<&str> = touched.path.split('.').collect();
            let walk = Walk { act: touched.act, is_since_5_0 };
            walk.down(Some(&before), Some(&after), &parts, &Path::new(), &mut description);
        }
        description
    }

    pub(super) fn updated(&mut self, path: &Path, value: Bson) {
        let text = self.note(path);
        self.updated.insert(text, value);
    }

    pub(super) fn removed(&mut self, path: &Path) {
        let text = self.note(path);
        if !self.removed.contains(&text) {
            self.removed.push(text);
        }
    }

    pub(super) fn truncated(&mut self, path: &Path, size: i32) {
        let text = self.note(path);
        self.truncated.push(doc! { "field": text, "newSize": size });
    }

    /// Adds what another one describes.
    pub(super) fn extend(&mut self, other: Self) {
        self.updated.extend(other.updated);
        self.removed.extend(other.removed);
        self.truncated.extend(other.truncated);
        self.ambiguous.extend(other.ambiguous);
    }

    /// Returns a path as text, and notes it if that can be read in several ways.
    fn note(&mut self, path: &Path) -> String {
        let text: Vec<Cow<'_, str>> = path
            .iter()
            .map(|part| match part {
                Bson::String(name) => Cow::Borrowed(name.as_str()),
                index => Cow::Owned(index.to_string()),
            })
            .collect();
        let is_number = |it: &Cow<'_, str>| it.parse::<u32>().is_ok();
        let is_ambiguous = text.iter().any(|it| is_number(it) || it.contains('.'));
        let text = text.join(".");
        if is_ambiguous && path.len() > 1 {
            self.ambiguous.insert(text.clone(), path.clone());
        }
        text
    }

    /// Returns the description as events have it.
    pub(super) fn document(self, has_truncated: bool, disambiguates: bool) -> Document {
        let mut document = doc! { "updatedFields": self.updated, "removedFields": self.removed };
        if has_truncated {
            document.insert("truncatedArrays", self.truncated);
        }
        if disambiguates {
            document.insert("disambiguatedPaths", self.ambiguous);
        }
        document
    }
}

/// The way along the path of an operator, through a document before and after.
#[derive(Clone, Copy)]
struct Walk {
    act: Act,
    is_since_5_0: bool,
}

impl Walk {
    fn down(
        self,
        before: Option<&Bson>,
        after: Option<&Bson>,
        parts: &[&str],
        path: &Path,
        out: &mut Description,
    ) {
        if before == after {
            return;
        }
        match (before, after, parts.split_first()) {
            (Some(Bson::Document(before)), Some(Bson::Document(after)), Some((name, rest))) => {
                let path = below(path, *name);
                self.down(before.get(name), after.get(name), rest, &path, out);
            }
            (Some(Bson::Array(before)), Some(Bson::Array(after)), Some((name, rest))) => {
                match element(before, after, name) {
                    Some(index) => {
                        let path = below(path, i32::try_from(index).unwrap_or(i32::MAX));
                        self.down(before.get(index), after.get(index), rest, &path, out);
                    }
                    None => out.updated(path, after.clone().into()),
                }
            }
            (Some(Bson::Array(before)), Some(Bson::Array(after)), None)
                if self.act == Act::Append && after.starts_with(before) =>
            {
                for (index, value) in after.iter().enumerate().skip(before.len()) {
                    let index = i32::try_from(index).unwrap_or(i32::MAX);
                    out.updated(&below(path, index), value.clone());
                }
            }
            (_, Some(Bson::Document(after)), Some((name, rest))) if !self.is_since_5_0 => {
                let path = below(path, *name);
                self.down(None, after.get(name), rest, &path, out);
            }
            (_, Some(Bson::Null), _) if self.act == Act::Remove && !self.is_since_5_0 => {
                out.removed(path);
            }
            (_, Some(after), _) => out.updated(path, after.clone()),
            (_, None, _) => out.removed(path),
        }
    }
}

/// Returns the element of an array that a part of a path means; none if it means several that have
/// changed.
fn element(before: &[Bson], after: &[Bson], part: &str) -> Option<usize> {
    if !part.starts_with("$[") {
        return part.parse().ok();
    }
    let mut changed = before.iter().zip(after).enumerate().filter(|(_, (old, new))| old != new);
    match (changed.next(), changed.next()) {
        (Some((index, _)), None) => Some(index),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use sdam_core::bson::{Document, doc};

    use super::{Act, Description, Touched};

    fn described(before: &Document, after: &Document, path: &str, is_new: bool) -> Document {
        let act = if path == "p" { Act::Append } else { Act::Remove };
        let touched = [Touched { path: path.to_owned(), act }];
        Description::of_operators(before, after, &touched, is_new).document(is_new, false)
    }

    /// As 4.2.6 and 6.0.27 say it.
    #[test]
    fn operators_are_described_by_their_paths() {
        let before = doc! { "_id": 1, "p": [1], "o": [{ "q": 1 }, { "q": 2 }], "z": 1 };
        let cases = [
            ("p", doc! { "p": [1, 2, 3] }, doc! { "p.1": 2, "p.2": 3 }),
            ("p", doc! { "p": [] }, doc! { "p": [] }),
            ("p.0", doc! { "p": [5] }, doc! { "p.0": 5 }),
            ("o.$[].q", doc! { "o": [{ "q": 1 }, { "q": 5 }] }, doc! { "o.1.q": 5 }),
            (
                "o.$[].q",
                doc! { "o": [{ "q": 5 }, { "q": 5 }] },
                doc! { "o": [{ "q": 5 }, { "q": 5 }] },
            ),
        ];
        for (path, change, expected) in cases {
            let mut after = before.clone();
            after.extend(change);
            for is_new in [false, true] {
                let description = described(&before, &after, path, is_new);
                assert_eq!(description.get_document("updatedFields").unwrap(), &expected, "{path}");
            }
        }
        let mut after = before.clone();
        after.insert("b", doc! { "c": 1 });
        for (is_new, expected) in [(false, doc! { "b.c": 1 }), (true, doc! { "b": { "c": 1 } })] {
            let description = described(&before, &after, "b.c", is_new);
            assert_eq!(description.get_document("updatedFields").unwrap(), &expected);
        }
        after.remove("z");
        let description = described(&before, &after, "z", true);
        assert_eq!(description.get_array("removedFields").unwrap(), &vec!["z".into()]);
    }

    /// Change Streams, `disambiguatedPaths`: names and indexes that look alike are distinct.
    #[test]
    fn paths_with_numbers_are_distinguished() {
        let before = doc! { "a": [1], "n": { "1": 1 }, "x": { "y": 1 } };
        let after = doc! { "a": [2], "n": { "1": 2 }, "x": { "y": 2 } };
        let touched = ["a.0", "n.1", "x.y"];
        let touched = touched.map(|it| Touched { path: it.to_owned(), act: Act::Other });
        let description = Description::of_operators(&before, &after, &touched, true);
        let expected = doc! { "a.0": ["a", 0], "n.1": ["n", "1"] };
        let document = description.document(true, true);
        assert_eq!(document.get_document("disambiguatedPaths").unwrap(), &expected);
    }
}
