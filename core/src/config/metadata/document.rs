//! The `client` document, and what is left out of it until it fits.

use bson::RawDocumentBuf;
use bson::raw::cstr;

use super::environment::EnvDetail;
use super::{
    ClientMetadata, DELIMITER, DRIVER_NAME, DRIVER_VERSION, Environment, MAX_DOCUMENT_LEN, Os,
    PLATFORM,
};
use crate::text::beginning;

/// The document that is about to be sent.
struct Draft<'a> {
    metadata: &'a ClientMetadata,
    driver_name: String,
    driver_version: String,
    os_type: String,
    os_details: bool,
    platform: String,
    env: EnvDetail,
}

/// Makes a draft shorter, if it can by at least so many bytes.
type Step = fn(&mut Draft<'_>, usize);

/// Handshake, "Limitations", steps 1 to 5, and then the texts that those leave.
const STEPS: [Step; 8] = [
    |draft, _| draft.env = EnvDetail::NameAndAgent,
    |draft, _| draft.env = EnvDetail::NameOnly,
    |draft, _| draft.os_details = false,
    |draft, _| draft.env = EnvDetail::Nothing,
    |draft, excess| shorten(&mut draft.platform, excess, 0),
    |draft, excess| shorten(&mut draft.driver_version, excess, DRIVER_VERSION.len()),
    |draft, excess| shorten(&mut draft.driver_name, excess, DRIVER_NAME.len()),
    |draft, excess| shorten(&mut draft.os_type, excess, 0),
];

/// Returns the document with as much of the metadata as [`MAX_DOCUMENT_LEN`] allows.
pub(super) fn fitting(metadata: &ClientMetadata) -> RawDocumentBuf {
    let infos = &metadata.appended;
    let mut draft = Draft {
        metadata,
        driver_name: joined(DRIVER_NAME, infos.iter().map(|info| Some(&info.name))),
        driver_version: joined(DRIVER_VERSION, infos.iter().map(|i| i.version.as_ref())),
        os_type: metadata.os.kind.clone(),
        os_details: true,
        platform: joined(PLATFORM, infos.iter().map(|info| info.platform.as_ref())),
        env: EnvDetail::Everything,
    };
    let mut document = draft.document();
    for step in STEPS {
        match document.as_bytes().len().saturating_sub(MAX_DOCUMENT_LEN) {
            0 => break,
            excess => step(&mut draft, excess),
        }
        document = draft.document();
    }
    debug_assert!(document.as_bytes().len() <= MAX_DOCUMENT_LEN);
    document
}

/// Joins our own text and those of the wrapping libraries that have one.
fn joined<'a>(own: &str, appended: impl Iterator<Item = Option<&'a String>>) -> String {
    appended.flatten().fold(own.to_owned(), |mut text, part| {
        text.push(DELIMITER);
        text.push_str(part);
        text
    })
}

/// Cuts at least `excess` bytes off the end, but never into the first `keep`.
fn shorten(text: &mut String, excess: usize, keep: usize) {
    let end = text.len().saturating_sub(excess).max(keep);
    text.truncate(beginning(text, end).len());
    if text.ends_with(DELIMITER) {
        text.pop();
    }
}

impl Draft<'_> {
    fn document(&self) -> RawDocumentBuf {
        let mut client = RawDocumentBuf::new();
        if let Some(name) = self.metadata.application() {
            let mut application = RawDocumentBuf::new();
            application.append(cstr!("name"), name);
            client.append(cstr!("application"), application);
        }
        let mut driver = RawDocumentBuf::new();
        driver.append(cstr!("name"), self.driver_name.as_str());
        driver.append(cstr!("version"), self.driver_version.as_str());
        client.append(cstr!("driver"), driver);
        client.append(cstr!("os"), self.os(&self.metadata.os));
        if !self.platform.is_empty() {
            client.append(cstr!("platform"), self.platform.as_str());
        }
        let nothing = Environment::default();
        let environment = self.metadata.environment.as_ref().unwrap_or(&nothing);
        let env = environment.document(self.env);
        // Handshake, "client.env": an empty document must be omitted.
        if !env.is_empty() {
            client.append(cstr!("env"), env);
        }
        client
    }

    fn os(&self, os: &Os) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("type"), self.os_type.as_str());
        if !self.os_details {
            return document;
        }
        let details = [
            (cstr!("name"), &os.name),
            (cstr!("architecture"), &os.architecture),
            (cstr!("version"), &os.version),
        ];
        for (key, value) in details {
            if let Some(value) = value {
                document.append(key, value.as_str());
            }
        }
        document
    }
}
