//! The beginning and the end of a span.

use std::borrow::Cow;

use bson::RawDocument;

use super::about::{collection, summary};
use crate::operation::OperationError;
use crate::text::beginning;

/// The attribute with the number of a cursor.
pub(super) const CURSOR: &str = "db.mongodb.cursor_id";

/// The beginning of a span, whose kind is "client": its name, and the attributes that are known
/// then.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanStart {
    /// The name: of an operation with what it is about, as `find app.users`, of a command alone.
    pub name: String,
    /// The attributes, in the order of the specification.
    pub attributes: Vec<Attribute>,
}

/// The end of a span: the attributes that were not known before, and what it has failed with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanEnd {
    /// The attributes, none of which the beginning has, but for those of the exception.
    pub attributes: Vec<Attribute>,
    /// The exception that it has failed with, if it has failed.
    pub exception: Option<Exception>,
}

/// The maximum length of [`Exception::stacktrace`], in bytes.
const LONGEST_STACKTRACE: usize = 16 << 10;

/// An exception that a span has failed with ("Exceptions").
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exception {
    /// The name of the type that the error has for applications.
    pub kind: &'static str,
    /// The text of the error.
    pub message: String,
    /// The functions that were active when the span ended, as the code that ends it knows them;
    /// `None` if nothing is known. It is cut after 16 KiB.
    pub stacktrace: Option<String>,
}

/// An attribute of a span: its name, and its value.
pub type Attribute = (&'static str, AttributeValue);

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttributeValue {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Integer(i64),
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(Cow::Owned(text.to_owned()))
    }
}

impl SpanStart {
    /// Begins an operation of that name on a collection, or else on a database ("Instrumenting
    /// Driver Operations").
    ///
    /// ```
    /// use sdam_core::spans::SpanStart;
    ///
    /// assert_eq!(SpanStart::of_operation("find", "app", Some("users")).name, "find app.users");
    /// assert_eq!(SpanStart::of_operation("bulkWrite", "admin", None).name, "bulkWrite admin");
    /// ```
    pub fn of_operation(name: &str, database: &str, collection: Option<&str>) -> Self {
        let summary = summary(name, database, collection);
        Self::about(summary.clone(), database, collection)
            .text("db.operation.name", name)
            .text("db.operation.summary", &summary)
    }

    /// Begins the operation that consists of this command.
    pub fn of_operation_by(database: &str, command: &RawDocument) -> Self {
        let name = command.iter().next().and_then(Result::ok).map_or("", |(name, _)| name.as_str());
        let name = match name {
            "create" => "createCollection",
            "drop" => "dropCollection",
            name => name,
        };
        Self::of_operation(name, database, collection(database, command))
    }

    /// Begins a transaction, within which its operations are ("Transactions").
    ///
    /// ```
    /// use sdam_core::spans::SpanStart;
    ///
    /// assert_eq!(SpanStart::of_transaction().name, "transaction");
    /// ```
    pub fn of_transaction() -> Self {
        Self { name: "transaction".to_owned(), attributes: vec![Self::system()] }
    }

    /// Adds the number of the cursor that it goes on with.
    #[must_use]
    pub fn with_cursor(self, id: Option<i64>) -> Self {
        self.number(CURSOR, id)
    }

    const fn system() -> Attribute {
        ("db.system.name", AttributeValue::Text(Cow::Borrowed("mongodb")))
    }

    /// Begins with what every span has that is about a database, or a collection in it.
    pub(super) fn about(name: String, database: &str, collection: Option<&str>) -> Self {
        let attributes = vec![Self::system(), ("db.namespace", database.into())];
        let mut start = Self { name, attributes };
        start.attributes.extend(collection.map(|name| ("db.collection.name", name.into())));
        start
    }

    pub(super) fn text(mut self, name: &'static str, value: &str) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    pub(super) fn number(mut self, name: &'static str, value: impl Into<Option<i64>>) -> Self {
        let value = value.into().map(AttributeValue::Integer);
        self.attributes.extend(value.map(|value| (name, value)));
        self
    }
}

impl SpanEnd {
    /// Ends an operation that has failed with an error of that type, which is its `error.type`.
    pub fn exception(kind: &'static str, message: impl Into<String>) -> Self {
        let error_type = AttributeValue::Text(Cow::Borrowed(kind));
        Self::failed(kind, message.into(), error_type)
    }

    fn failed(kind: &'static str, message: String, error_type: AttributeValue) -> Self {
        let exception = Some(Exception { kind, message, stacktrace: None });
        Self { attributes: vec![("error.type", error_type)], exception }
    }

    /// Adds a stack trace to the exception, if there is one; `stacktrace` is asked only then.
    ///
    /// ```
    /// use sdam_core::spans::SpanEnd;
    ///
    /// let end = SpanEnd::exception("app::Error", "late").with_stacktrace(|| "0: main".into());
    /// assert_eq!(end.exception.unwrap().stacktrace.as_deref(), Some("0: main"));
    /// assert_eq!(SpanEnd::default().with_stacktrace(|| unreachable!()).exception, None);
    /// ```
    #[must_use]
    pub fn with_stacktrace(mut self, stacktrace: impl FnOnce() -> String) -> Self {
        if let Some(exception) = &mut self.exception {
            let mut text = stacktrace();
            text.truncate(beginning(&text, LONGEST_STACKTRACE).len());
            exception.stacktrace = Some(text);
        }
        self
    }

    /// Ends a command that has failed with an error, which applications have as one of that type:
    /// `error.type` is the server's code, or else that type.
    pub fn of_error(kind: &'static str, error: &OperationError) -> Self {
        let code = match error {
            OperationError::Reply { error, .. } => error.code,
            OperationError::Stream(_) | OperationError::Invalid(_) => None,
        };
        let Some(code) = code else { return Self::exception(kind, error.to_string()) };
        let code = AttributeValue::from(code.to_string().as_str());
        let mut end = Self::failed(kind, error.to_string(), code.clone());
        end.attributes.push(("db.response.status_code", code));
        end
    }
}

impl Exception {
    /// Returns the attributes that describe it: those of the span, and of an event in it that is
    /// called "exception".
    pub fn attributes(&self) -> Vec<Attribute> {
        let kind = AttributeValue::Text(Cow::Borrowed(self.kind));
        let stacktrace = self.stacktrace.as_deref();
        let mut attributes =
            vec![("exception.message", self.message.as_str().into()), ("exception.type", kind)];
        attributes.extend(stacktrace.map(|text| ("exception.stacktrace", text.into())));
        attributes
    }
}
