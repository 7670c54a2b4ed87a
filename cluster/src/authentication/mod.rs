//! Users as they are stored, and logins as values: the server's side of SCRAM.

mod by_certificate;
mod credentials;
mod external;
mod login;
mod messages;
mod scram;
mod scripted_gssapi;

pub(crate) use by_certificate::refusal as certificate_refusal;
pub(crate) use credentials::{Account, random_bytes};
pub(crate) use external::{EXTERNAL, GSSAPI, OIDC, check_external};
pub(crate) use login::{Conversation, GssapiConversation, GssapiState, Login, UserName};
pub(crate) use messages::{
    CONVERSATION_ID, Payload, conversation_id, mechanism, skips_empty_exchange,
};
pub(crate) use scram::{ClientFirst, malformed, refused};
pub use scripted_gssapi::ScriptedGssapi;
pub(crate) use scripted_gssapi::{SERVER as SERVER_TOKEN, unwrapped, user_of, wrapped};
