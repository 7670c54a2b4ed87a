//! Names of what differs from run to run, in a source that is to depend on its arguments alone: the
//! clock, the order of hashes, and randomness.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};
use syn::{ImplItemFn, ItemFn, ItemMod, ItemUse, Macro};

use super::source::{is_test, paths, used};

/// Returns each place of a source, tests aside, that names a clock, a type in hash order, or a
/// function that draws: the path as it is written there, behind the function that names it.
///
/// # Errors
///
/// The source is no Rust.
pub fn differing(source: &str) -> Result<BTreeSet<String>, syn::Error> {
    let mut reader = Reader { function: String::new(), found: BTreeSet::new() };
    reader.visit_file(&syn::parse_file(source)?);
    Ok(reader.found)
}

struct Reader {
    /// The function that is being read; empty outside.
    function: String,
    found: BTreeSet<String>,
}

impl Reader {
    fn note(&mut self, path: &[String]) {
        if differs(path) {
            let (path, function) = (path.join("::"), &self.function);
            self.found.insert(match function.is_empty() {
                true => path,
                false => format!("{function}: {path}"),
            });
        }
    }

    fn within(&mut self, function: &dyn ToString, read: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.function, function.to_string());
        read(self);
        self.function = outer;
    }
}

/// Returns whether a path is one of those. Of the standard library's time, only lengths are not; a
/// `use` of the whole module may be of its clocks.
fn differs(path: &[String]) -> bool {
    let names: Vec<&str> = path.iter().map(String::as_str).collect();
    matches!(names[..], ["std" | "core", "time"])
        || matches!(names[..], ["std" | "core", "time", of, ..] if of != "Duration")
        || matches!(names[..], [.., "DateTime", "now"])
        || matches!(names[..], [.., "ObjectId" | "Uuid", "new" | "default"])
        || names.iter().any(|name| {
            matches!(*name, "SystemTime" | "HashMap" | "HashSet" | "RandomState" | "DefaultHasher")
        })
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !module.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.within(&function.sig.ident, |reader| visit::visit_item_fn(reader, function));
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.within(&function.sig.ident, |reader| visit::visit_impl_item_fn(reader, function));
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        used(&item.tree).iter().for_each(|path| self.note(path));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        self.note(&names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, found: &'ast Macro) {
        paths(found.tokens.clone()).iter().for_each(|path| self.note(path));
        visit::visit_macro(self, found);
    }
}

#[cfg(test)]
mod tests {
    use super::differing;

    #[test]
    fn clocks_hash_order_and_randomness_are_found_wherever_they_are_named() {
        let source = r#"
            use std::collections::{BTreeMap, HashMap as Map};
            use std::time::{Duration, Instant};
            use std::time::*;
            use bson::oid::ObjectId;
            struct S(std::collections::HashSet<u8>, std::time::SystemTime);
            struct T(sdam_core::time::Instant);
            impl S {
                fn of(id: ObjectId) {
                    g(doc! { "_id": ObjectId::new(), "at": [DateTime::now()] });
                    vec![S { at: std::time::Instant::now() }];
                }
            }
            fn draw() -> Duration { ids.map(bson::oid::ObjectId::new).or_else(Uuid::default) }
            fn parse(id: &str) { ObjectId::parse_str(id) }
            #[cfg(test)]
            mod tests { use std::time::Instant; }
        "#;
        let expected = [
            "draw: Uuid::default",
            "draw: bson::oid::ObjectId::new",
            "of: DateTime::now",
            "of: ObjectId::new",
            "of: std::time::Instant::now",
            "std::collections::HashMap",
            "std::collections::HashSet",
            "std::time",
            "std::time::Instant",
            "std::time::SystemTime",
        ];
        let found = differing(source).expect("it is Rust");
        assert_eq!(found.iter().collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
    }
}
