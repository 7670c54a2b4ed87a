//! The client's side of SOCKS5: RFC 1928, and RFC 1929 for a user name and password.
//!
//! ```text
//! Method ──▶ Login ──▶ Reply ──▶ done      (without Login if the proxy wants none)
//! ```

use std::fmt;
use std::net::IpAddr;

use zeroize::Zeroizing;

use crate::config::Secret;
use crate::failure::{Cause, Failure, ProxyRefusal, Stage};

const VERSION: u8 = 5;
const LOGIN_VERSION: u8 = 1;
const CONNECT: u8 = 1;

const NO_AUTHENTICATION: u8 = 0;
const USER_NAME_AND_PASSWORD: u8 = 2;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;

const IPV4: u8 = 1;
const DOMAIN_NAME: u8 = 3;
const IPV6: u8 = 4;

/// The longest answer of a proxy: one with a domain name of 255 bytes.
const MAX_ANSWER_LEN: usize = 4 + 1 + 255 + 2;

/// The longest message with a user name and a password.
const MAX_LOGIN_LEN: usize = 1 + 1 + 255 + 1 + 255;

/// A user name and a password for a proxy; neither is shown, and both are wiped from memory when
/// dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    username: Secret,
    password: Secret,
}

/// The reason why a user name or a password cannot be sent to a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {length} bytes long; SOCKS5 allows 1 to 255")]
pub struct LoginError {
    what: &'static str,
    length: usize,
}

impl Login {
    /// Takes a user name and a password.
    ///
    /// # Errors
    ///
    /// Fails if either is empty or longer than 255 bytes (RFC 1929, section 2).
    pub fn new(username: &str, password: &str) -> Result<Self, LoginError> {
        for (what, text) in [("the proxy's user name", username), ("its password", password)] {
            if text.is_empty() || u8::try_from(text.len()).is_err() {
                return Err(LoginError { what, length: text.len() });
            }
        }
        Ok(Self { username: username.into(), password: password.into() })
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(***)")
    }
}

/// A conversation with a proxy, until it has opened the stream.
#[derive(Debug)]
pub(super) struct Socks5 {
    awaiting: Awaiting,
    /// The user name and password, if there are any.
    login: Option<Login>,
    request: Vec<u8>,
    /// The answer that is coming in; it never exceeds [`MAX_ANSWER_LEN`].
    answer: Vec<u8>,
}

/// The answer that is due.
#[derive(Clone, Copy, Debug)]
enum Awaiting {
    Method,
    Login,
    Reply,
}

impl Socks5 {
    /// Offers what SOCKS5 Support, "Connection Establishment" says: no authentication always, and
    /// user name and password only where there are some.
    pub(super) fn start(
        login: Option<&Login>,
        host: &str,
        port: u16,
        wire: &mut Vec<u8>,
    ) -> Result<Self, Failure> {
        let request = connect_message(host, port)?;
        match login {
            None => wire.extend([VERSION, 1, NO_AUTHENTICATION]),
            Some(_) => wire.extend([VERSION, 2, NO_AUTHENTICATION, USER_NAME_AND_PASSWORD]),
        }
        let login = login.cloned();
        Ok(Self { awaiting: Awaiting::Method, login, request, answer: Vec::new() })
    }

    /// Takes the proxy's bytes from the front of `wire`, and returns whether the stream is open;
    /// the rest of `wire` is then the server's.
    pub(super) fn receive(
        &mut self,
        wire: &mut &[u8],
        reply: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        // At most 262 bytes an answer, so byte by byte costs nothing, and splits cannot matter.
        while let Some((byte, rest)) = wire.split_first() {
            *wire = rest;
            self.answer.push(*byte);
            debug_assert!(self.answer.len() <= MAX_ANSWER_LEN);
            let done = match self.awaiting {
                Awaiting::Method => self.method(reply)?,
                Awaiting::Login => self.logged_in(reply)?,
                Awaiting::Reply => self.opened()?,
            };
            if done {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn method(&mut self, reply: &mut Vec<u8>) -> Result<bool, Failure> {
        match (&*self.answer, &self.login) {
            ([VERSION], _) => {}
            ([VERSION, NO_AUTHENTICATION], _) => self.ask(reply),
            ([VERSION, NO_ACCEPTABLE_METHOD], _) => {
                return Err(refused(ProxyRefusal::NoAcceptableMethod));
            }
            ([VERSION, USER_NAME_AND_PASSWORD], Some(login)) => {
                let message = login_message(login);
                // At once, so that growing leaves no copy behind.
                reply.reserve(MAX_LOGIN_LEN);
                reply.extend_from_slice(&message);
                self.expect(Awaiting::Login);
            }
            ([VERSION, ..], _) => {
                return Err(malformed("it chose a method that was not offered"));
            }
            _ => return Err(malformed("it does not speak SOCKS5")),
        }
        Ok(false)
    }

    fn logged_in(&mut self, reply: &mut Vec<u8>) -> Result<bool, Failure> {
        match *self.answer {
            [LOGIN_VERSION] => Ok(false),
            [LOGIN_VERSION, 0] => {
                self.ask(reply);
                Ok(false)
            }
            [LOGIN_VERSION, ..] => Err(refused(ProxyRefusal::Credentials)),
            _ => Err(malformed("its answer to the password is none")),
        }
    }

    /// The address that a positive reply ends with is of no interest.
    fn opened(&self) -> Result<bool, Failure> {
        match *self.answer {
            [VERSION] | [VERSION, 0] | [VERSION, 0, _] => Ok(false),
            [VERSION, code] => Err(refused(refusal(code))),
            [VERSION, 0, _, IPV4, ref address @ ..] => Ok(address.len() == 4 + 2),
            [VERSION, 0, _, IPV6, ref address @ ..] => Ok(address.len() == 16 + 2),
            [VERSION, 0, _, DOMAIN_NAME] => Ok(false),
            [VERSION, 0, _, DOMAIN_NAME, length, ref address @ ..] => {
                Ok(address.len() == usize::from(length) + 2)
            }
            [VERSION, ..] => Err(malformed("it replied with an address of an unknown type")),
            _ => Err(malformed("its reply is not of SOCKS5")),
        }
    }

    fn ask(&mut self, reply: &mut Vec<u8>) {
        reply.extend_from_slice(&self.request);
        self.expect(Awaiting::Reply);
    }

    fn expect(&mut self, awaiting: Awaiting) {
        self.awaiting = awaiting;
        self.answer.clear();
    }
}

/// RFC 1929, section 2.
fn login_message(login: &Login) -> Zeroizing<Vec<u8>> {
    let mut message = Zeroizing::new(Vec::with_capacity(MAX_LOGIN_LEN));
    message.push(LOGIN_VERSION);
    for text in [login.username.expose(), login.password.expose()] {
        message.push(u8::try_from(text.len()).expect("a login has at most 255 bytes"));
        message.extend_from_slice(text.as_bytes());
    }
    message
}

/// RFC 1928, section 4. "Drivers MUST NOT attempt to perform DNS A or AAAA record resolution of the
/// destination hostname and instead pass the hostname to the proxy as-is."
fn connect_message(host: &str, port: u16) -> Result<Vec<u8>, Failure> {
    let mut message = vec![VERSION, CONNECT, 0];
    match host.parse() {
        Ok(IpAddr::V4(address)) => {
            message.push(IPV4);
            message.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            message.push(IPV6);
            message.extend(address.octets());
        }
        Err(_) => {
            let length = u8::try_from(host.len()).map_err(|_| {
                let detail = format!("{} bytes are too many for a name in SOCKS5", host.len());
                Failure::new(Stage::Proxy, Cause::NotResolved, detail)
            })?;
            message.extend([DOMAIN_NAME, length]);
            message.extend_from_slice(host.as_bytes());
        }
    }
    message.extend(port.to_be_bytes());
    Ok(message)
}

const fn refusal(code: u8) -> ProxyRefusal {
    match code {
        1 => ProxyRefusal::GeneralFailure,
        2 => ProxyRefusal::NotAllowed,
        3 => ProxyRefusal::NetworkUnreachable,
        4 => ProxyRefusal::HostUnreachable,
        5 => ProxyRefusal::ConnectionRefused,
        6 => ProxyRefusal::TtlExpired,
        7 => ProxyRefusal::CommandNotSupported,
        8 => ProxyRefusal::AddressTypeNotSupported,
        code => ProxyRefusal::Unassigned(code),
    }
}

fn refused(refusal: ProxyRefusal) -> Failure {
    let detail = format!("the proxy refused: {refusal}");
    Failure::new(Stage::Proxy, Cause::ProxyRefused { refusal }, detail)
}

fn malformed(detail: &str) -> Failure {
    let detail = format!("the proxy's answer is malformed: {detail}");
    Failure::new(Stage::Proxy, Cause::Malformed, detail)
}
