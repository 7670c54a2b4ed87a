//! One source: the module it is, what it names, and which types it gives methods.

use std::collections::BTreeSet;
use std::path::Path;

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemImpl, ItemMod, ItemUse, Macro, Meta, Type, UseTree};

use super::{StructureError, promise};

/// A source that is no test.
#[derive(Debug)]
pub(super) struct Source {
    /// Its path within the crate.
    pub(super) file: String,
    /// The names of the modules that lead to it, its own last; none for the root of the crate.
    pub(super) module: Vec<String>,
    /// The paths that it names, from the root of the crate on.
    pub(super) named: BTreeSet<Vec<String>>,
    /// The types that it has inherent impls of, by their last names.
    pub(super) impls: BTreeSet<String>,
    /// The types that it defines.
    pub(super) defines: BTreeSet<String>,
    /// The public types that may never have other fields or variants.
    pub(super) exhaustive: BTreeSet<String>,
    /// The public fields and variants that are there with a feature only.
    pub(super) conditional: BTreeSet<String>,
}

impl Source {
    pub(super) fn read(path: &Path, within: &Path, text: &str) -> Result<Self, StructureError> {
        let file = syn::parse_file(text)
            .map_err(|error| StructureError::Syntax { path: path.to_owned(), error })?;
        let mut source = Self {
            file: within.display().to_string(),
            module: module_of(within),
            named: BTreeSet::new(),
            impls: BTreeSet::new(),
            defines: BTreeSet::new(),
            exhaustive: BTreeSet::new(),
            conditional: BTreeSet::new(),
        };
        let mut reader = Reader { module: source.module.clone(), source: &mut source };
        reader.visit_file(&file);
        Ok(source)
    }
}

/// Returns the module that a file is: `src/a/b.rs` and `src/a/b/mod.rs` are `a::b`.
fn module_of(within: &Path) -> Vec<String> {
    let without = within.with_extension("");
    let mut parts: Vec<String> =
        without.iter().skip(1).map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod")
        || parts.len() == 1 && matches!(parts[0].as_str(), "lib" | "main")
    {
        parts.pop();
    }
    parts
}

struct Reader<'s> {
    /// The module that is being read.
    module: Vec<String>,
    source: &'s mut Source,
}

impl Reader<'_> {
    /// Notes a path if it begins at the root of the crate or goes up to it.
    fn note(&mut self, path: &[String]) {
        let up = path.iter().take_while(|part| *part == "super").count();
        let base = match path.first().map(String::as_str) {
            Some("crate") => &[][..],
            Some("super") => &self.module[..self.module.len().saturating_sub(up)],
            _ => return,
        };
        let rest = &path[up.max(1)..];
        let whole: Vec<String> = base.iter().chain(rest).cloned().collect();
        self.source.named.insert(whole);
    }
}

/// Returns the paths of a `use`; one of all names is that of their module.
pub(super) fn used(tree: &UseTree) -> Vec<Vec<String>> {
    fn walk(prefix: &[String], tree: &UseTree, found: &mut Vec<Vec<String>>) {
        let with = |name: &dyn ToString| {
            let mut path = prefix.to_vec();
            path.push(name.to_string());
            path
        };
        match tree {
            UseTree::Path(path) => walk(&with(&path.ident), &path.tree, found),
            UseTree::Name(name) => found.push(with(&name.ident)),
            UseTree::Rename(rename) => found.push(with(&rename.ident)),
            UseTree::Glob(_) => found.push(prefix.to_vec()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| walk(prefix, tree, found)),
        }
    }
    let mut found = Vec::new();
    walk(&[], tree, &mut found);
    found
}

/// Returns the paths in what a macro or an attribute is given, which need be no Rust.
pub(super) fn paths(tokens: TokenStream) -> Vec<Vec<String>> {
    let (mut found, mut path) = (Vec::new(), Vec::<String>::new());
    // Whether the path goes on behind its last name.
    let mut is_open = false;
    for token in tokens {
        match &token {
            TokenTree::Ident(name) => {
                if !is_open {
                    found.push(std::mem::take(&mut path));
                }
                path.push(name.to_string());
                is_open = false;
                continue;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => {
                // One alone ends it, as that behind the name of a field.
                is_open = !path.is_empty() && (is_open || punct.spacing() == Spacing::Joint);
                if is_open {
                    continue;
                }
            }
            TokenTree::Group(group) => found.extend(paths(group.stream())),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                let text = text.trim_matches('"');
                if text.starts_with("crate::") {
                    found.push(text.split("::").map(str::to_owned).collect());
                }
            }
            TokenTree::Punct(_) => {}
        }
        found.push(std::mem::take(&mut path));
        is_open = false;
    }
    found.push(path);
    found.retain(|path| !path.is_empty());
    found
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Struct(it) => drop(self.source.defines.insert(it.ident.to_string())),
            Item::Enum(it) => drop(self.source.defines.insert(it.ident.to_string())),
            _ => {}
        }
        self.source.exhaustive.extend(promise::exhaustive(item));
        self.source.conditional.extend(promise::conditional(item));
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if module.attrs.iter().any(is_test) {
            return;
        }
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        if block.trait_.is_none()
            && let Type::Path(path) = &*block.self_ty
            && let Some(last) = path.path.segments.last()
        {
            self.source.impls.insert(last.ident.to_string());
        }
        visit::visit_item_impl(self, block);
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        used(&item.tree).iter().for_each(|path| self.note(path));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        self.note(&parts);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, found: &'ast Macro) {
        paths(found.tokens.clone()).iter().for_each(|path| self.note(path));
        visit::visit_macro(self, found);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        // Docs may name what the code does not know.
        if let Meta::List(list) = &attribute.meta {
            paths(list.tokens.clone()).iter().for_each(|path| self.note(path));
        }
    }
}

/// Returns whether an attribute is `#[cfg(test)]`.
pub(super) fn is_test(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    list.path.is_ident("cfg") && list.tokens.to_string() == "test"
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Source;

    fn read(file: &str, text: &str) -> Source {
        Source::read(Path::new(file), Path::new(file), text).unwrap()
    }

    #[test]
    fn paths_are_found_wherever_they_are_named() {
        let text = r#"
            use super::c::{self, D as E};
            #[serde(with = "crate::of_attribute::f")]
            struct S(crate::of_type::T);
            impl<T> S<T> { fn f() { log!(1, crate::of_macro::X, super::up); } }
            impl Clone for Other {}
            #[cfg(test)]
            mod tests { use crate::of_test::T; }
        "#;
        let source = read("src/a/b.rs", text);
        let named: Vec<String> = source.named.iter().map(|path| path.join("::")).collect();
        let expected = ["a::c::D", "a::c::self", "a::up", "of_attribute::f", "of_macro::X"];
        assert_eq!(named[..5], expected);
        assert_eq!(named[5..], ["of_type::T"]);
        assert_eq!(source.impls.iter().collect::<Vec<_>>(), ["S"]);
        assert_eq!(source.defines.iter().collect::<Vec<_>>(), ["S"]);
    }

    #[test]
    fn a_file_is_the_module_that_its_path_says() {
        for (file, module) in [
            ("src/lib.rs", vec![]),
            ("src/a.rs", vec!["a"]),
            ("src/a/mod.rs", vec!["a"]),
            ("src/a/b.rs", vec!["a", "b"]),
        ] {
            assert_eq!(read(file, "").module, module, "{file}");
        }
    }
}
