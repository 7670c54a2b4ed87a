//! The name of a collection within a deployment.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::command::split_namespace;
use crate::error::Error;

/// The name of a collection within a deployment: that of its database, and its own.
///
/// In documents it is a text, `db.coll`; it is read from a document `{ db, coll }`, too.
///
/// ```
/// use sdam::Namespace;
///
/// let namespace: Namespace = "shop.orders.2026".parse()?;
/// assert_eq!(namespace, Namespace::new("shop", "orders.2026"));
/// assert_eq!(namespace.to_string(), "shop.orders.2026");
/// # Ok::<(), sdam::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Namespace {
    /// The name of the database.
    pub db: String,
    /// The name of the collection, which may have dots in it.
    pub coll: String,
}

impl Namespace {
    /// Names a collection of a database.
    pub fn new(db: impl Into<String>, coll: impl Into<String>) -> Self {
        Self { db: db.into(), coll: coll.into() }
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.db, self.coll)
    }
}

impl FromStr for Namespace {
    type Err = Error;

    /// Reads the name of a database, a dot, and the name of a collection, none of them empty or
    /// with NUL in it.
    fn from_str(text: &str) -> Result<Self, Error> {
        let (db, coll) = split_namespace(text)?;
        Ok(Self::new(db, coll))
    }
}

impl From<Namespace> for String {
    fn from(namespace: Namespace) -> Self {
        namespace.to_string()
    }
}

impl From<&Namespace> for String {
    fn from(namespace: &Namespace) -> Self {
        namespace.to_string()
    }
}

impl Serialize for Namespace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Namespace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NamespaceVisitor)
    }
}

struct NamespaceVisitor;

impl<'de> Visitor<'de> for NamespaceVisitor {
    type Value = Namespace;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text `db.coll`, or a document with `db` and `coll`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Namespace, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Namespace, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Names {
            db: String,
            coll: String,
        }
        let Names { db, coll } = Names::deserialize(de::value::MapAccessDeserializer::new(map))?;
        Ok(Namespace { db, coll })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::Namespace;

    #[test]
    fn a_namespace_is_a_text_in_documents() {
        let namespace = Namespace::new("app", "system.views");
        assert_eq!(to_value(&namespace).unwrap(), "app.system.views");
        for document in [json!("app.system.views"), json!({ "db": "app", "coll": "system.views" })]
        {
            assert_eq!(from_value::<Namespace>(document).unwrap(), namespace);
        }
        assert_eq!(String::from(&namespace), String::from(namespace));
    }

    #[test]
    fn what_is_no_namespace_is_refused() {
        for text in ["", "app", "app.", ".a", "app.a\0"] {
            let error = text.parse::<Namespace>().unwrap_err().to_string();
            let allowed = "which is the name of a database, a dot, and that of a collection";
            assert_eq!(error, format!("{text:?} is no namespace, {allowed}"));
            assert_eq!(from_value::<Namespace>(json!(text)).unwrap_err().to_string(), error);
        }
        let error = from_value::<Namespace>(json!(1)).unwrap_err().to_string();
        assert!(error.ends_with("expected a text `db.coll`, or a document with `db` and `coll`"));
        let error = from_value::<Namespace>(json!({ "db": "a", "collection": "b" }));
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "unknown field `collection`, expected `db` or `coll`");
    }
}
