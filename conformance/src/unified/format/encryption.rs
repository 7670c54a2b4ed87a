//! Options of encryption: where keys are, and what encrypts the keys (Unified Test Format,
//! "clientEncryption").

use bson::{Bson, Document};

use super::error::FormatError;
use super::object::{Node, Object};

/// The options of explicit encryption.
#[derive(Clone, Debug)]
pub struct EncryptionOptions {
    /// The client that finds keys.
    pub key_vault_client: String,
    /// The collection of keys.
    pub key_vault_namespace: String,
    /// The providers that encrypt keys, by name.
    pub kms_providers: Document,
    /// The time for which keys are kept, in milliseconds.
    pub key_expiration_ms: Option<u64>,
}

/// The kinds of providers, and their credentials.
const PROVIDERS: &[(&str, &[&str])] = &[
    ("aws", &["accessKeyId", "secretAccessKey", "sessionToken"]),
    ("azure", &["tenantId", "clientId", "clientSecret", "identityPlatformEndpoint", "accessToken"]),
    ("gcp", &["email", "privateKey", "endpoint", "accessToken"]),
    ("kmip", &["endpoint"]),
    ("local", &["key"]),
];

pub(super) fn encryption_options(node: Node) -> Result<EncryptionOptions, FormatError> {
    let mut object = node.object()?;
    let options = EncryptionOptions {
        key_vault_client: object.required("keyVaultClient", Node::string)?,
        key_vault_namespace: object.required("keyVaultNamespace", Node::string)?,
        kms_providers: object.required("kmsProviders", providers)?,
        key_expiration_ms: object.optional("keyExpirationMS", Node::count)?,
    };
    object.finish()?;
    Ok(options)
}

/// Reads the options of automatic encryption, which stay as they are.
pub(super) fn auto_encryption(node: Node) -> Result<Document, FormatError> {
    let (place, whole) = (node.place().to_owned(), node.document()?);
    let mut object = Node::at(place, whole.clone()).object()?;
    object.optional("keyVaultNamespace", Node::string)?;
    object.optional("bypassAutoEncryption", Node::boolean)?;
    object.optional("kmsProviders", providers)?;
    for documents in ["schemaMap", "extraOptions", "encryptedFieldsMap"] {
        object.optional(documents, Node::document)?;
    }
    object.optional("bypassQueryAnalysis", Node::boolean)?;
    object.optional("keyExpirationMS", Node::count)?;
    object.finish()?;
    Ok(whole)
}

/// Reads the providers, which stay as they are.
fn providers(node: Node) -> Result<Document, FormatError> {
    let (place, whole) = (node.place().to_owned(), node.document()?);
    let mut object = Node::at(place, whole.clone()).object()?;
    for name in whole.keys() {
        if let Some(credentials) = credentials(name) {
            object.required(name, |node| provider(node.object()?, credentials))?;
        }
    }
    object.finish()?;
    Ok(whole)
}

/// Returns the credentials that a provider has, by its name: a kind, or a kind, a colon and a word.
fn credentials(name: &str) -> Option<&'static [&'static str]> {
    let kind = match name.split_once(':') {
        Some((kind, word)) => {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            (!word.is_empty() && word.bytes().all(allowed)).then_some(kind)?
        }
        None => name,
    };
    PROVIDERS.iter().find(|(known, _)| *known == kind).map(|(_, credentials)| *credentials)
}

fn provider(mut object: Object, credentials: &[&str]) -> Result<(), FormatError> {
    for name in credentials {
        object.optional(name, credential)?;
    }
    object.finish()
}

/// Reads a credential: as it is, or a placeholder for one.
fn credential(node: Node) -> Result<(), FormatError> {
    let place = node.place().to_owned();
    match node.any()? {
        Bson::String(_) | Bson::Binary(_) => Ok(()),
        Bson::Document(document)
            if document.len() == 1 && document.contains_key("$$placeholder") =>
        {
            Ok(())
        }
        other => Err(Node::at(place, other).refuse("must be a string or a placeholder")),
    }
}
