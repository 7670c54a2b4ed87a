//! The server's side against published conversations, and against what no client should say.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::{ClientFirst, unescaped};
use crate::authentication::credentials::Credential;
use crate::options::{ScramMechanism, User};

/// A conversation of the user "user" with the password "pencil".
struct Vector {
    mechanism: ScramMechanism,
    client_first: &'static str,
    server_nonce: &'static str,
    salt: &'static str,
    iterations: u32,
    server_first: &'static str,
    client_final: &'static str,
    server_final: &'static str,
}

/// The example of the Authentication specification, "SCRAM-SHA-1".
const SHA_1: Vector = Vector {
    mechanism: ScramMechanism::Sha1,
    client_first: "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
    server_nonce: "Ho+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE",
    salt: "rQ9ZY3MntBeuP3E1TDVC4w==",
    iterations: 10_000,
    server_first: "r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE,\
                   s=rQ9ZY3MntBeuP3E1TDVC4w==,i=10000",
    client_final: "c=biws,r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE,\
                   p=MC2T8BvbmWRckDw8oWl5IVghwCY=",
    server_final: "v=UMWeI25JD1yNYZRMpZ4VHvhZ9e0=",
};

/// The example of RFC 7677, section 3.
const SHA_256: Vector = Vector {
    mechanism: ScramMechanism::Sha256,
    client_first: "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    server_nonce: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    salt: "W22ZaJ0SNY7soEsUEjb6gQ==",
    iterations: 4096,
    server_first: "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                   s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    client_final: "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                   p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    server_final: "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
};

impl Vector {
    fn challenge(&self, password: &str) -> super::Challenge {
        let (mechanism, user) = (self.mechanism, User::new("user", password));
        let salt = BASE64_STANDARD.decode(self.salt).unwrap();
        let credential = Credential::new(mechanism, &user, salt, self.iterations);
        let first = ClientFirst::parse(self.client_first.as_bytes()).unwrap();
        assert_eq!(first.username, "user");
        let (challenge, message) = first.answer(mechanism, Arc::new(credential), self.server_nonce);
        assert_eq!(message, self.server_first);
        challenge
    }
}

#[test]
fn the_published_conversations_come_out_as_published() {
    for vector in [SHA_1, SHA_256] {
        let last = vector.challenge("pencil").judge(vector.client_final.as_bytes()).unwrap();
        assert_eq!(last, vector.server_final);
    }
}

#[test]
fn the_proof_of_another_password_is_refused_and_nothing_else_is_said() {
    for vector in [SHA_1, SHA_256] {
        let refused = vector.challenge("eraser").judge(vector.client_final.as_bytes());
        let refused = refused.unwrap_err();
        assert_eq!((refused.code, refused.message.as_str()), (18, "Authentication failed."));
    }
}

#[test]
fn a_final_message_must_repeat_the_channel_binding_and_the_whole_nonce() {
    // RFC 5802, section 5.1: c= repeats the GS2 header, and r= the nonces of both.
    let vector = SHA_256;
    let challenge = vector.challenge("pencil");
    let (without_proof, proof) = vector.client_final.split_once(",p=").unwrap();
    let short = without_proof.strip_suffix('0').unwrap();
    for (message, code) in [
        (String::new(), 18),
        (without_proof.to_owned(), 18),
        (format!("{short},p={proof}"), 18),
        (format!("{without_proof}0,p={proof}"), 18),
        (vector.client_final.replace("c=biws", "c=eSws"), 18),
        (vector.client_final.replace(",p=", ",x=1,p="), 18),
        (format!("{without_proof},p="), 16),
        (format!("{without_proof},p=AAAA"), 16),
        (format!("{without_proof},p=!"), 10270),
        (format!("{without_proof},p={proof},x=1"), 10270),
    ] {
        let refused = challenge.judge(message.as_bytes()).unwrap_err();
        assert_eq!(refused.code, code, "{message:?}: {refused:?}");
    }
    assert_eq!(challenge.judge(&[0xff]).unwrap_err().code, 18);
}

#[test]
fn a_first_message_says_who_and_a_nonce_and_binds_no_channel() {
    // RFC 5802, section 7: "gs2-header", "client-first-message-bare".
    for message in ["n,,n=a,r=x", "y,,n=a,r=x", "n,a=a,n=a,r=x", "n,,n=a,r=x,t=1", "n,,n=a,r=ä"] {
        assert_eq!(ClientFirst::parse(message.as_bytes()).unwrap().username, "a", "{message}");
    }
    for message in [
        "",
        "x",
        "n",
        "n,",
        "n,,",
        ",,",
        "n,,n=a",
        "n,,n=a,",
        "n,,n=a,r=",
        "n,,r=x,n=a",
        "n=a,r=x",
        "n,,n=,r=x",
        "n,,n==,r=x",
        "n,,n==2c,r=x",
        "n,,n=a=3,r=x",
        "n,,m=1,n=a,r=x",
        "z,,n=a,r=x",
        "p=tls-unique,,n=a,r=x",
        "n,a=b,n=a,r=x",
        "n,b,n=a,r=x",
    ] {
        let refused = ClientFirst::parse(message.as_bytes()).unwrap_err();
        assert_eq!(refused.code, 18, "{message:?}");
        assert!(refused.message.starts_with("Authentication failed: "), "{refused:?}");
    }
    assert_eq!(ClientFirst::parse(b"n,,n=\xff,r=x").unwrap_err().code, 18);
}

#[test]
fn a_name_may_contain_what_separates_attributes() {
    // RFC 5802, section 5.1: ',' and '=' of a name are sent as "=2C" and "=3D".
    assert_eq!(unescaped("a=2Cb=3D=2C").as_deref(), Some("a,b=,"));
    assert_eq!(unescaped("plain").as_deref(), Some("plain"));
    for wrong in ["=", "a=2", "a=2c", "a=\u{e9}\u{e9}", "=3D=4"] {
        assert_eq!(unescaped(wrong), None, "{wrong}");
    }
}
