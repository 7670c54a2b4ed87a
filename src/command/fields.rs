//! The options of an operation, as the fields that a command has for them.

use std::fmt;

use bson::raw::CStr;
use bson::{RawBson, RawBsonRef, RawDocumentBuf};

use crate::error::Error;
pub(crate) use crate::value::Value;
use crate::value::value_without_contents;

/// The fields that the application has set, in the order in which it has.
///
/// The first value that is no BSON is kept as an error until the command is written, so that
/// builders need not fail.
///
/// Printed, they are names, and the types of values.
#[derive(Clone, Default)]
pub(crate) struct Fields {
    fields: Vec<(&'static CStr, RawBson)>,
    error: Option<Error>,
}

impl Fields {
    /// Sets a field, in the place of one of the same name.
    pub(crate) fn set(&mut self, name: &'static CStr, value: impl Into<Value>) {
        let value = match value.into().0 {
            Ok(value) => value,
            Err(error) => {
                self.error.get_or_insert(Error::serialize(error));
                return;
            }
        };
        match self.fields.iter_mut().find(|(set, _)| *set == name) {
            Some((_, place)) => *place = value,
            None => self.fields.push((name, value)),
        }
    }

    /// Returns whether a field is set.
    pub(crate) fn has(&self, name: &CStr) -> bool {
        self.get(name).is_some()
    }

    /// Returns a field.
    pub(crate) fn get(&self, name: &CStr) -> Option<RawBsonRef<'_>> {
        let field = self.fields.iter().find(|(set, _)| *set == name);
        field.map(|(_, value)| value.as_raw_bson_ref())
    }

    /// Returns a field that is an integer.
    pub(crate) fn integer(&self, name: &CStr) -> Option<i64> {
        match self.get(name)? {
            RawBsonRef::Int32(value) => Some(value.into()),
            RawBsonRef::Int64(value) => Some(value),
            _ => None,
        }
    }

    /// Fails if a value is no BSON.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Writes all fields behind what is in a document.
    pub(crate) fn write(&self, document: &mut RawDocumentBuf) -> Result<(), Error> {
        self.write_if(document, |_| true)
    }

    /// Writes these fields behind what is in a document.
    pub(crate) fn write_only(
        &self,
        document: &mut RawDocumentBuf,
        names: &[&CStr],
    ) -> Result<(), Error> {
        self.write_if(document, |name| names.contains(&name))
    }

    /// Writes the fields that are wanted behind what is in a document.
    pub(crate) fn write_if(
        &self,
        document: &mut RawDocumentBuf,
        is_wanted: impl Fn(&CStr) -> bool,
    ) -> Result<(), Error> {
        self.check()?;
        for (name, value) in self.fields.iter().filter(|(name, _)| is_wanted(name)) {
            document.append(*name, value.as_raw_bson_ref());
        }
        Ok(())
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.fields.iter();
        let fields = fields.map(|(name, value)| (name.as_str(), value_without_contents(value)));
        f.debug_map().entries(fields).finish()
    }
}

/// Returns a value, or the error of the application that gave it.
pub(crate) fn get(value: &Value) -> Result<RawBsonRef<'_>, Error> {
    match &value.0 {
        Ok(value) => Ok(value.as_raw_bson_ref()),
        Err(error) => Err(Error::serialize(error.clone())),
    }
}
