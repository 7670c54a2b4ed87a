//! GSSAPI (RFC 4752): Kerberos, by a security context that is asked for its tokens.

use bson::RawDocument;
use zeroize::Zeroizing;

use super::sasl::Sasl;
use super::{
    AuthError, AuthStep, Canonicalization, Conversation, CredentialCache, CredentialRequest,
    CredentialResponse, GssapiLogin, GssapiRequest, GssapiResponse, GssapiService, GssapiStep,
    GssapiToken, MAX_TOKEN_LEN,
};
use crate::config::{AuthMechanism, Credential, Secret, ServerAddress};

/// The most tokens of the server's that a context is given; Kerberos has one.
const MAX_ROUNDS: u32 = 8;

/// The bit of an offer and of its answer that stands for "no security layer" (RFC 4752, section
/// 3.3).
const NO_LAYER: u8 = 1;

pub(super) struct Gssapi {
    sasl: Sasl,
    login: GssapiLogin,
    canonicalization: Option<Canonicalization>,
    state: State,
    rounds: u32,
}

/// The step of "Client Side of Authentication Protocol Exchange" (RFC 4752, section 3.1).
enum State {
    /// The canonical name of the host is asked for.
    Host,
    /// The context is asked for a token; it is the first.
    Beginning,
    /// The server is to answer with a token for the context.
    Exchanging,
    /// The context is asked for a token after that.
    Stepping,
    /// The context is established, and the server is to offer security layers.
    Offering,
    /// The context is asked for the content of the offer.
    Unwrapping,
    /// The context is asked for the message that has the answer.
    Wrapping,
    /// The server is to say whether the user is let in.
    Answered,
}

impl Gssapi {
    /// Prepares a conversation with `server`, which names the service unless the credential does.
    pub(super) fn new(
        credential: &Credential,
        server: Option<&ServerAddress>,
    ) -> Result<Self, AuthError> {
        let property = |name| credential.mechanism_properties.get(name).map(Secret::expose);
        let username = credential.username.clone().unwrap_or_default();
        let host = match (property("SERVICE_HOST"), server) {
            (Some(host), _) => host,
            (None, Some(server)) if server.port().is_some() => server.host(),
            (None, server) => return Err(AuthError::NoServiceHost(server.cloned())),
        };
        let of_user = username.rsplit_once('@').map(|(_, realm)| realm);
        let realm = property("SERVICE_REALM").or(of_user).filter(|realm| !realm.is_empty());
        let name = property("SERVICE_NAME").unwrap_or("mongodb");
        let service = GssapiService::new(name, host).with_realm(realm.map(str::to_owned));
        // "`true` equals the "forwardAndReverse" behaviour and `false` equals "none""
        let canonicalization = match property("CANONICALIZE_HOST_NAME") {
            Some("forward") => Some(Canonicalization::Forward),
            Some("forwardAndReverse" | "true") => Some(Canonicalization::ForwardAndReverse),
            _ => None,
        };
        let login = GssapiLogin::new(username, service).with_password(credential.password.clone());
        let sasl = Sasl::new(AuthMechanism::Gssapi.name());
        Ok(Self { sasl, login, canonicalization, state: State::Beginning, rounds: 0 })
    }

    fn ask_for_context(&mut self) -> AuthStep {
        self.state = State::Beginning;
        ask(GssapiRequest::Begin(self.login.clone()))
    }

    /// Sends a token of the context, with which the conversation may begin.
    fn send(&mut self, token: &[u8], is_first: bool) -> Result<AuthStep, AuthError> {
        if token.len() > MAX_TOKEN_LEN {
            return Err(AuthError::TokenLength);
        }
        match is_first {
            true => Ok(AuthStep::Send(self.sasl.start(token))),
            false => self.sasl.proceed(token),
        }
    }

    fn take_step(&mut self, step: GssapiStep, is_first: bool) -> Result<AuthStep, AuthError> {
        match step {
            GssapiStep::Continue(token) if token.as_bytes().is_empty() => {
                Err(AuthError::EmptyToken)
            }
            GssapiStep::Continue(token) => {
                self.state = State::Exchanging;
                self.send(token.as_bytes(), is_first)
            }
            // "If the last call to GSS_Init_sec_context returned an output_token, then the client
            // responds with the output_token, otherwise the client responds with no data."
            GssapiStep::Complete(token) => {
                self.state = State::Offering;
                self.send(token.as_ref().map_or(&[], GssapiToken::as_bytes), is_first)
            }
        }
    }

    /// Reads the layers that the server offers, and chooses none (RFC 4752, section 3.1).
    fn choose_layer(&mut self, offer: &[u8]) -> Result<AuthStep, AuthError> {
        // "If the resulting cleartext is not 4 octets long, the client fails the negotiation."
        let Ok([layers, ..]) = <[u8; 4]>::try_from(offer) else {
            return Err(malformed("offers security layers in another form than that of 4 bytes"));
        };
        if layers & NO_LAYER == 0 {
            return Err(AuthError::SecurityLayer);
        }
        let name = self.login.username.as_bytes();
        let answer = Zeroizing::new([&[NO_LAYER, 0, 0, 0], name].concat());
        self.state = State::Wrapping;
        Ok(ask(GssapiRequest::Wrap(GssapiToken::new(answer.as_slice()))))
    }
}

fn ask(request: GssapiRequest) -> AuthStep {
    AuthStep::Ask(CredentialRequest::Gssapi(request))
}

const fn malformed(what: &'static str) -> AuthError {
    AuthError::Message { mechanism: AuthMechanism::Gssapi.name(), what }
}

impl Conversation for Gssapi {
    fn begin(&mut self, _remembered: &CredentialCache) -> AuthStep {
        match self.canonicalization {
            Some(canonicalization) => {
                self.state = State::Host;
                let host = self.login.service.host.clone();
                ask(GssapiRequest::CanonicalName { host, canonicalization })
            }
            None => self.ask_for_context(),
        }
    }

    fn reply(
        &mut self,
        reply: &RawDocument,
        _remembered: &mut CredentialCache,
    ) -> Result<AuthStep, AuthError> {
        if matches!(self.state, State::Answered) {
            return self.sasl.end(reply);
        }
        let reply = self.sasl.read(reply)?;
        if reply.done {
            return Err(malformed("ends the conversation before a security layer is agreed on"));
        }
        if reply.payload.is_empty() {
            return Err(malformed("has no token"));
        }
        let token = GssapiToken::new(reply.payload);
        if matches!(self.state, State::Offering) {
            self.state = State::Unwrapping;
            return Ok(ask(GssapiRequest::Unwrap(token)));
        }
        self.rounds += 1;
        if self.rounds > MAX_ROUNDS {
            return Err(malformed("asks for more tokens than any context has"));
        }
        self.state = State::Stepping;
        Ok(ask(GssapiRequest::Continue(token)))
    }

    fn answer(
        &mut self,
        answer: CredentialResponse,
        _remembered: &mut CredentialCache,
    ) -> Result<AuthStep, AuthError> {
        let CredentialResponse::Gssapi(answer) = answer else {
            return Err(AuthError::WrongAnswer);
        };
        match (&self.state, answer) {
            (State::Host, GssapiResponse::CanonicalName(name)) => {
                // "The driver MUST fallback to the provided host if any lookup errors or returns
                // no results."
                if let Some(name) = name.filter(|name| !name.is_empty()) {
                    self.login.service.host = name;
                }
                Ok(self.ask_for_context())
            }
            (State::Beginning, GssapiResponse::Step(step)) => self.take_step(step, true),
            (State::Stepping, GssapiResponse::Step(step)) => self.take_step(step, false),
            (State::Unwrapping, GssapiResponse::Unwrapped(offer)) => {
                self.choose_layer(offer.as_bytes())
            }
            (State::Wrapping, GssapiResponse::Wrapped(message)) => {
                self.state = State::Answered;
                self.send(message.as_bytes(), false)
            }
            _ => Err(AuthError::WrongAnswer),
        }
    }
}
