//! The promise of a public type about its fields and variants: that there will be no others.

use syn::{Attribute, Field, Fields, Item, ItemEnum, ItemStruct, Meta, Visibility};

/// Returns the name of a public type whose fields or variants other crates may list as if there
/// would never be more: an enum, or a struct all of whose fields are public, without
/// `#[non_exhaustive]`.
pub(super) fn exhaustive(item: &Item) -> Option<String> {
    let (visibility, attributes, name, lists_all) = match item {
        Item::Enum(ItemEnum { vis, attrs, ident, .. }) => (vis, attrs, ident, true),
        Item::Struct(ItemStruct { vis, attrs, ident, fields, .. }) => {
            let lists_all = !fields.is_empty() && fields.iter().all(|field| is_public(&field.vis));
            (vis, attrs, ident, lists_all)
        }
        _ => return None,
    };
    let may_grow = attributes.iter().any(|it| it.path().is_ident("non_exhaustive"));
    (is_public(visibility) && lists_all && !may_grow).then(|| name.to_string())
}

/// Returns the public fields and the variants of a public type that are there with a feature only:
/// another crate's code would see the type change when somebody else turns the feature on.
pub(super) fn conditional(item: &Item) -> Vec<String> {
    let (owner, visibility, parts) = match item {
        Item::Enum(ItemEnum { vis, ident, variants, .. }) => {
            let of_variants = variants.iter().flat_map(|variant| {
                let own = is_conditional(&variant.attrs).then(|| variant.ident.to_string());
                let name = format!("{}.", variant.ident);
                let fields = conditional_fields(&variant.fields, |_| true);
                own.into_iter().chain(fields.into_iter().map(move |it| format!("{name}{it}")))
            });
            (ident, vis, of_variants.collect())
        }
        Item::Struct(ItemStruct { vis, ident, fields, .. }) => {
            (ident, vis, conditional_fields(fields, |field| is_public(&field.vis)))
        }
        _ => return Vec::new(),
    };
    match is_public(visibility) {
        true => parts.into_iter().map(|part| format!("{owner}.{part}")).collect(),
        false => Vec::new(),
    }
}

fn conditional_fields(fields: &Fields, shown: impl Fn(&Field) -> bool) -> Vec<String> {
    let named = fields.iter().enumerate();
    let found = named.filter(|(_, field)| shown(field) && is_conditional(&field.attrs));
    let name = |(index, field): (usize, &Field)| {
        field.ident.as_ref().map_or_else(|| index.to_string(), ToString::to_string)
    };
    found.map(name).collect()
}

const fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Returns whether there is a `#[cfg(feature = ..)]`, however it is combined.
fn is_conditional(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => {
            list.path.is_ident("cfg") && list.tokens.to_string().contains("feature")
        }
        Meta::Path(_) | Meta::NameValue(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::{conditional, exhaustive};

    fn items(text: &str) -> Vec<syn::Item> {
        syn::parse_file(text).unwrap().items
    }

    #[test]
    fn types_that_promise_to_stay_as_they_are_are_found() {
        let found: Vec<String> = items(
            "pub enum Open { A }
             #[non_exhaustive] pub enum MayGrow { A }
             enum Private { A }
             pub(crate) enum OfTheCrate { A }
             pub struct AllPublic { pub a: u8, pub b: u8 }
             pub struct Newtype(pub u8);
             #[non_exhaustive] pub struct MayGrowToo { pub a: u8 }
             pub struct PartlyPublic { pub a: u8, b: u8 }
             pub struct Closed { a: u8 }
             pub struct Unit;",
        )
        .iter()
        .filter_map(exhaustive)
        .collect();
        assert_eq!(found, ["Open", "AllPublic", "Newtype"]);
    }

    #[test]
    fn fields_and_variants_that_a_feature_brings_are_found() {
        let found: Vec<String> = items(
            r#"pub struct S { #[cfg(feature = "a")] pub a: u8, #[cfg(feature = "a")] b: u8 }
               pub struct T(#[cfg(all(unix, feature = "a"))] pub u8, #[cfg(unix)] pub u8);
               pub enum E { #[cfg(feature = "a")] A, B { #[cfg(feature = "a")] a: u8, b: u8 } }
               struct Private { #[cfg(feature = "a")] pub a: u8 }"#,
        )
        .iter()
        .flat_map(conditional)
        .collect();
        assert_eq!(found, ["S.a", "T.0", "E.A", "E.B.a"]);
    }
}
