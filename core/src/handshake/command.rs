//! The hello that opens an application's connection, and what is tried with it.

use bson::{RawArrayBuf, RawDocument, cstr};

use crate::auth::{self, AuthError, AuthStep, Conversation, CredentialCache, SecretDocument};
use crate::config::{AuthMechanism, Credential, Options, ServerAddress};
use crate::hello;
use crate::wire::{Compressor, is_compiled_in};

/// The first step of authentication, which goes with hello in the hope that it will do (Handshake,
/// "Speculative Authentication").
pub(super) struct Speculation {
    pub(super) mechanism: AuthMechanism,
    pub(super) conversation: Box<dyn Conversation>,
    command: SecretDocument,
}

impl Speculation {
    /// Without a mechanism, "drivers MUST use the SCRAM-SHA-256 mechanism".
    pub(super) fn new(
        options: &Options,
        credential: &Credential,
        nonce: [u8; 24],
        server: Option<&ServerAddress>,
        credential_cache: &CredentialCache,
    ) -> Result<Option<Self>, AuthError> {
        let mechanism = credential.mechanism.unwrap_or(AuthMechanism::ScramSha256);
        if !auth::is_speculative(mechanism, credential_cache) {
            return Ok(None);
        }
        let mut conversation = auth::conversation(mechanism, options, credential, server, nonce)?;
        let AuthStep::Send(mut command) = conversation.begin(credential_cache) else {
            return Ok(None);
        };
        command.append(cstr!("db"), credential.source.as_str());
        Ok(Some(Self { mechanism, conversation, command }))
    }
}

/// Builds the first command, without its `$db`.
pub(super) fn hello(
    options: &Options,
    client: &RawDocument,
    speculation: Option<&Speculation>,
) -> SecretDocument {
    let mut command = hello::handshake(options, client);
    let mut names = RawArrayBuf::new();
    for compressor in compressors(options) {
        names.push(compressor.name());
    }
    command.append(cstr!("compression"), names);
    if let Some(credential) = options.credential()
        && credential.mechanism.is_none()
        && let Some(username) = &credential.username
    {
        // Not prepared with SASLprep: the server looks for the raw form.
        let user = format!("{}.{username}", credential.source);
        command.append(cstr!("saslSupportedMechs"), user);
    }
    let room = speculation.map_or(0, |speculation| speculation.command.as_bytes().len());
    let mut command = SecretDocument::grown(&command, room);
    if let Some(speculation) = speculation {
        command.append(cstr!("speculativeAuthenticate"), &**speculation.command);
    }
    command
}

/// The compressors that can be offered, the preferred one first.
pub(super) fn compressors(options: &Options) -> impl Iterator<Item = Compressor> {
    options.compressors().iter().copied().filter(|&compressor| is_compiled_in(compressor))
}
