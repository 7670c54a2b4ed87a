//! A value in a file together with its place, and an object whose every field must be read.

use bson::{Bson, Document};

use super::error::FormatError;

/// A value, and its place in the file.
#[derive(Clone, Debug)]
pub struct Node {
    place: String,
    value: Bson,
}

impl Node {
    /// Takes a whole file.
    pub(super) fn root(value: Bson) -> Self {
        Self { place: String::new(), value }
    }

    /// Takes a value that stands at a place, as the arguments of an operation do.
    pub fn at(place: impl Into<String>, value: impl Into<Bson>) -> Self {
        Self { place: place.into(), value: value.into() }
    }

    /// Returns the place.
    pub fn place(&self) -> &str {
        match self.place.as_str() {
            "" => "the file",
            place => place,
        }
    }

    /// Returns whether the value is an array.
    pub(super) fn is_array(&self) -> bool {
        matches!(self.value, Bson::Array(_))
    }

    /// Returns the error that the value breaks a rule, as in `must be a string`.
    pub fn refuse(&self, rule: &str) -> FormatError {
        let shown = match self.value.clone().into_relaxed_extjson().to_string() {
            long if long.chars().count() > 60 => long.chars().take(60).chain(['…']).collect(),
            short => short,
        };
        FormatError::Broken {
            place: self.place().to_owned(),
            rule: format!("is {shown}, and {rule}"),
        }
    }

    /// Takes any value.
    ///
    /// # Errors
    ///
    /// Never fails: it is one of several readers of this form.
    pub fn any(self) -> Result<Bson, FormatError> {
        Ok(self.value)
    }

    /// Reads a string.
    ///
    /// # Errors
    ///
    /// Fails if it is none.
    pub fn string(self) -> Result<String, FormatError> {
        match self.value {
            Bson::String(text) => Ok(text),
            _ => Err(self.refuse("must be a string")),
        }
    }

    /// Reads a boolean.
    ///
    /// # Errors
    ///
    /// Fails if it is none.
    pub fn boolean(self) -> Result<bool, FormatError> {
        match self.value {
            Bson::Boolean(value) => Ok(value),
            _ => Err(self.refuse("must be true or false")),
        }
    }

    /// Reads a whole number.
    ///
    /// # Errors
    ///
    /// Fails if it is none.
    pub fn integer(self) -> Result<i64, FormatError> {
        match self.value {
            Bson::Int32(number) => Ok(number.into()),
            Bson::Int64(number) => Ok(number),
            _ => Err(self.refuse("must be a whole number")),
        }
    }

    /// Reads a number that counts something, or is a time in milliseconds.
    ///
    /// # Errors
    ///
    /// Fails if it is no whole number, or less than zero.
    pub fn count(self) -> Result<u64, FormatError> {
        let place = self.place().to_owned();
        let number = self.integer()?;
        u64::try_from(number).map_err(|_| FormatError::Broken {
            place,
            rule: format!("is {number}, and must not be less than zero"),
        })
    }

    /// Reads a document whose fields are not those of the format.
    ///
    /// # Errors
    ///
    /// Fails if it is none.
    pub fn document(self) -> Result<Document, FormatError> {
        match self.value {
            Bson::Document(document) => Ok(document),
            _ => Err(self.refuse("must be an object")),
        }
    }

    /// Reads one of several names.
    ///
    /// # Errors
    ///
    /// Fails if it is none of them; the error lists them.
    pub fn one_of<T: Copy>(self, names: &[(&str, T)]) -> Result<T, FormatError> {
        let found = match &self.value {
            Bson::String(text) => names.iter().find(|(name, _)| name == text),
            _ => None,
        };
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            self.refuse(&format!("must be one of {}", names.join(", ")))
        })
    }

    /// Reads an array with this reader of its elements.
    ///
    /// # Errors
    ///
    /// Fails if it is none, or if an element is refused.
    pub fn list<T>(
        self,
        mut read: impl FnMut(Self) -> Result<T, FormatError>,
    ) -> Result<Vec<T>, FormatError> {
        let Bson::Array(values) = self.value else {
            return Err(self.refuse("must be an array"));
        };
        let nodes = values.into_iter().enumerate();
        nodes
            .map(|(index, value)| read(Self::at(format!("{}[{index}]", self.place), value)))
            .collect()
    }

    /// Reads an array as [`list`](Self::list) does, which must not be empty.
    ///
    /// # Errors
    ///
    /// Fails as `list` does, and if it is empty.
    pub fn filled<T>(
        self,
        read: impl FnMut(Self) -> Result<T, FormatError>,
    ) -> Result<Vec<T>, FormatError> {
        match &self.value {
            Bson::Array(values) if values.is_empty() => Err(self.refuse("must not be empty")),
            _ => self.list(read),
        }
    }

    /// Reads an object, field by field.
    ///
    /// # Errors
    ///
    /// Fails if it is none.
    pub fn object(self) -> Result<Object, FormatError> {
        let place = self.place.clone();
        Ok(Object { place, fields: self.document()? })
    }

    /// Reads an object that has exactly one field; returns its name and its value.
    ///
    /// # Errors
    ///
    /// Fails if it is none, or has another number of fields.
    pub fn single(self) -> Result<(String, Self), FormatError> {
        match &self.value {
            Bson::Document(document) if document.len() != 1 => {
                Err(self.refuse("must have exactly one field"))
            }
            _ => {
                let place = self.place.clone();
                let mut fields = self.document()?.into_iter();
                let (name, value) = fields.next().expect("exactly one field");
                let place = below(&place, &name);
                Ok((name, Self { place, value }))
            }
        }
    }
}

/// An object, whose fields are taken one after the other; what is left at the end is refused.
#[derive(Debug)]
pub struct Object {
    place: String,
    fields: Document,
}

impl Object {
    /// Returns whether there is nothing left to read.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Reads a field that must be there.
    ///
    /// # Errors
    ///
    /// Fails if it is missing or refused.
    pub fn required<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(Node) -> Result<T, FormatError>,
    ) -> Result<T, FormatError> {
        match self.optional(name, read)? {
            Some(value) => Ok(value),
            None => Err(self.broken(format!("has no field {name:?}, which is required"))),
        }
    }

    /// Reads a field that may be there.
    ///
    /// # Errors
    ///
    /// Fails if it is refused.
    pub fn optional<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(Node) -> Result<T, FormatError>,
    ) -> Result<Option<T>, FormatError> {
        let value = self.fields.remove(name);
        let node = value.map(|value| Node { place: below(&self.place, name), value });
        node.map(read).transpose()
    }

    /// Returns the fields that were not read.
    pub fn rest(self) -> Document {
        self.fields
    }

    /// Ends the reading.
    ///
    /// # Errors
    ///
    /// Fails if a field was not read, as the format then does not have it.
    pub fn finish(self) -> Result<(), FormatError> {
        match self.fields.keys().next() {
            Some(name) => Err(self.broken(format!("has a field {name:?}, which is unknown here"))),
            None => Ok(()),
        }
    }

    /// Returns the error that the object as a whole breaks a rule.
    pub fn broken(&self, rule: impl Into<String>) -> FormatError {
        let place = if self.place.is_empty() { "the file" } else { &self.place };
        FormatError::Broken { place: place.to_owned(), rule: rule.into() }
    }
}

fn below(place: &str, name: &str) -> String {
    match place {
        "" => name.to_owned(),
        place => format!("{place}.{name}"),
    }
}
