//! Rules for comparing texts.

use bson::{Document, RawDocumentBuf};
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

use crate::value::IntoDocument;

/// Declares what a collation may have besides its locale.
macro_rules! collation {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $name:literal;)+) => {
        /// The rules for comparing texts, of a language or of a locale.
        ///
        /// Methods take this, or a document of it; structs of options have this. Read from a
        /// document, fields that there are not are refused; `version`, which servers add, is left
        /// out, as other servers refuse it.
        ///
        /// ```
        /// use bson::doc;
        /// use sdam::operation::Find;
        /// use sdam::options::{Collation, CollationStrength};
        ///
        /// let german = Collation::new("de").strength(CollationStrength::Primary);
        /// let built = Collation::builder().locale("de").strength(CollationStrength::Primary);
        /// assert_eq!(german, built.build());
        /// let mueller = Find::new(doc! { "name": "Müller" }).collation(german);
        /// # let _ = mueller;
        /// ```
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct Collation {
            /// The language, or the locale, as ICU names it, such as `de` or `fr_CA`; `simple`
            /// compares bytes.
            pub locale: String,
            $(
                $(#[$doc])*
                #[serde(rename = $name, skip_serializing_if = "Option::is_none")]
                pub $field: Option<$type>,
            )+
        }

        impl Collation {
            /// Compares texts as a language does, or a locale.
            pub fn new(locale: impl Into<String>) -> Self {
                Self { locale: locale.into(), $($field: None,)+ }
            }

            $(
                $(#[$doc])*
                #[must_use]
                pub const fn $field(mut self, value: $type) -> Self {
                    self.$field = Some(value);
                    self
                }
            )+
        }

        impl<L> CollationBuilder<L> {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $field(self, value: $type) -> Self {
                    Self { collation: self.collation.$field(value), ..self }
                }
            )+
        }

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct CollationDocument {
            locale: String,
            $(
                #[serde(rename = $name)]
                $field: Option<$type>,
            )+
            #[serde(rename = "version")]
            _version: Option<de::IgnoredAny>,
        }

        impl<'de> Deserialize<'de> for Collation {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let read = CollationDocument::deserialize(deserializer)?;
                Ok(Self { locale: read.locale, $($field: read.$field,)+ })
            }
        }
    };
}

collation! {
    /// Lets case count, or not, also where the strength is primary or secondary.
    case_level: bool = "caseLevel";
    /// Puts one case first, where case is the only difference.
    case_first: CollationCaseFirst = "caseFirst";
    /// Says how much has to be equal, by default as tertiary does.
    strength: CollationStrength = "strength";
    /// Compares digits as numbers, or not, so that 10 comes behind 2.
    numeric_ordering: bool = "numericOrdering";
    /// Lets spaces and punctuation count, or not.
    alternate: CollationAlternate = "alternate";
    /// Names the characters that `shifted` is about.
    max_variable: CollationMaxVariable = "maxVariable";
    /// Normalises texts before they are compared, or not.
    normalization: bool = "normalization";
    /// Compares accents from the end of the text, or not, as in Canadian French.
    backwards: bool = "backwards";
}

/// Collects a [`Collation`], which has to have a locale.
///
/// ```compile_fail
/// sdam::options::Collation::builder().backwards(true).build();
/// ```
#[derive(Clone, Debug)]
pub struct CollationBuilder<L> {
    locale: L,
    collation: Collation,
}

impl Collation {
    /// Starts without a locale.
    pub fn builder() -> CollationBuilder<()> {
        CollationBuilder { locale: (), collation: Self::new("") }
    }
}

impl<L> CollationBuilder<L> {
    /// Sets the language, or the locale, as ICU names it.
    #[must_use]
    pub fn locale(self, locale: impl Into<String>) -> CollationBuilder<String> {
        CollationBuilder { locale: locale.into(), collation: self.collation }
    }
}

impl CollationBuilder<String> {
    /// Returns the collation.
    pub fn build(self) -> Collation {
        Collation { locale: self.locale, ..self.collation }
    }
}

/// The differences that make texts different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CollationStrength {
    /// Letters: 1.
    Primary = 1,
    /// Letters and accents: 2.
    Secondary = 2,
    /// Letters, accents and case: 3, the default of servers.
    Tertiary = 3,
    /// Those and punctuation, where that does not count otherwise: 4.
    Quaternary = 4,
    /// All, code points at last: 5.
    Identical = 5,
}

impl Serialize for CollationStrength {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i32(*self as i32)
    }
}

impl<'de> Deserialize<'de> for CollationStrength {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match i64::deserialize(deserializer)? {
            1 => Self::Primary,
            2 => Self::Secondary,
            3 => Self::Tertiary,
            4 => Self::Quaternary,
            5 => Self::Identical,
            other => {
                let other = de::Unexpected::Signed(other);
                return Err(de::Error::invalid_value(other, &"a number from 1 to 5"));
            }
        })
    }
}

/// The case that comes first, where case is the only difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CollationCaseFirst {
    /// `upper`.
    Upper,
    /// `lower`.
    Lower,
    /// `off`: nearly as `lower`, with differences between locales.
    Off,
}

/// The part that spaces and punctuation have in comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CollationAlternate {
    /// `non-ignorable`: they count as letters do.
    NonIgnorable,
    /// `shifted`: they count with a strength of quaternary and identical only.
    Shifted,
}

/// The characters that `shifted` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CollationMaxVariable {
    /// `punct`: spaces and punctuation.
    Punct,
    /// `space`: spaces.
    Space,
}

impl From<Collation> for Document {
    fn from(collation: Collation) -> Self {
        Self::from(&collation)
    }
}

impl From<&Collation> for Document {
    fn from(collation: &Collation) -> Self {
        bson::serialize_to_document(collation).expect("it has texts, numbers and booleans alone")
    }
}

impl IntoDocument for Collation {
    fn into_document(self) -> Result<RawDocumentBuf, bson::error::Error> {
        (&self).into_document()
    }
}

impl IntoDocument for &Collation {
    fn into_document(self) -> Result<RawDocumentBuf, bson::error::Error> {
        Document::from(self).into_document()
    }
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc, rawdoc};

    use super::{
        Collation, CollationAlternate, CollationCaseFirst, CollationMaxVariable, CollationStrength,
    };
    use crate::command::testing::{NEW, written};
    use crate::operation::Find;

    #[test]
    fn a_collation_has_a_document_with_the_names_of_servers() {
        let collation = Collation::builder()
            .case_level(true)
            .case_first(CollationCaseFirst::Off)
            .strength(CollationStrength::Identical)
            .locale("fr_CA")
            .numeric_ordering(false)
            .alternate(CollationAlternate::NonIgnorable)
            .max_variable(CollationMaxVariable::Space)
            .normalization(true)
            .backwards(true)
            .build();
        let document = doc! {
            "locale": "fr_CA",
            "caseLevel": true,
            "caseFirst": "off",
            "strength": 5,
            "numericOrdering": false,
            "alternate": "non-ignorable",
            "maxVariable": "space",
            "normalization": true,
            "backwards": true,
        };
        assert_eq!(bson::serialize_to_document(&collation).unwrap(), document);
        let read = |document: Document| bson::deserialize_from_document::<Collation>(document);
        let mut of_server = document.clone();
        of_server.insert("version", "57.1");
        assert_eq!(read(document).unwrap(), collation);
        assert_eq!(read(of_server).unwrap(), collation);
        assert_eq!(read(doc! { "locale": "de" }).unwrap(), Collation::new("de"));
        for strength in 1..=5 {
            let document = doc! { "locale": "de", "strength": strength };
            let collation = read(document.clone()).unwrap();
            assert_eq!(bson::serialize_to_document(&collation).unwrap(), document);
        }
    }

    #[test]
    fn an_option_takes_a_collation_or_its_document() {
        let collation = || Collation::new("de").strength(CollationStrength::Secondary);
        let document = doc! { "locale": "de", "strength": 2 };
        let (find, kept) = (|| Find::new(doc! {}), collation());
        for mut find in
            [find().collation(collation()), find().collation(&kept), find().collation(document)]
        {
            let expected = rawdoc! { "locale": "de", "strength": 2 };
            let body = written(&mut find, NEW).body;
            assert_eq!(body.get_document("collation").unwrap(), &*expected);
        }
        assert_eq!(kept, collation());
    }

    #[test]
    fn what_is_wrong_in_a_document_is_named_with_what_is_allowed() {
        let error = |document: Document| {
            bson::deserialize_from_document::<Collation>(document).unwrap_err().to_string()
        };
        let unknown = error(doc! { "locale": "de", "strenght": 1 });
        assert!(
            unknown.contains("unknown field `strenght`, expected one of `locale`, `caseLevel`")
        );
        let strength = error(doc! { "locale": "de", "strength": 6 });
        assert!(strength.contains("expected a number from 1 to 5"), "{strength}");
        let case = error(doc! { "locale": "de", "caseFirst": "Upper" });
        assert!(case.contains("expected one of `upper`, `lower`, `off`"), "{case}");
        assert!(error(doc! {}).contains("missing field `locale`"));
    }
}
