//! SCRAM against published vectors, and against servers that do not know the password.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bson::spec::BinarySubtype;
use bson::{Binary, rawdoc};

use super::{Hash, Scram, ScramState};
use crate::auth::keys::Keys;
#[cfg(feature = "saslprep")]
use crate::auth::keys::prepare;
use crate::auth::sasl::Sasl;
use crate::auth::{AuthError, AuthStep, Conversation, CredentialCache};
use crate::config::{Credential, Options};

/// A conversation as text: what the server says first and last, and the client in between.
struct Vector {
    hash: Hash,
    nonce: &'static str,
    server_first: &'static str,
    client_final: &'static str,
    server_final: &'static str,
}

/// The example of the Authentication specification, "SCRAM-SHA-1".
const SHA_1: Vector = Vector {
    hash: Hash::Sha1,
    nonce: "fyko+d2lbbFgONRv9qkxdawL",
    server_first: "r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE,\
                   s=rQ9ZY3MntBeuP3E1TDVC4w==,i=10000",
    client_final: "c=biws,r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE,\
                   p=MC2T8BvbmWRckDw8oWl5IVghwCY=",
    server_final: "v=UMWeI25JD1yNYZRMpZ4VHvhZ9e0=",
};

/// The example of RFC 7677, section 3, and of the Authentication specification, "SCRAM-SHA-256".
const SHA_256: Vector = Vector {
    hash: Hash::Sha256,
    nonce: "rOprNGfwEbeRWgbNEkqO",
    server_first: "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                   s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    client_final: "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                   p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    server_final: "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
};

fn credential(password: &str) -> Credential {
    let builder = Options::builder().uri("mongodb://a").unwrap();
    let options = builder.username("user").password(password).build().unwrap();
    options.credential().unwrap().clone()
}

fn scram(vector: &Vector, password: &str) -> Scram {
    Scram {
        hash: vector.hash,
        sasl: Sasl::new("SCRAM"),
        credential: credential(password),
        most: 100_000,
        nonce: vector.nonce.to_owned(),
        state: ScramState::First,
    }
}

/// Has the server say something, and returns what the client says.
fn say(
    scram: &mut Scram,
    payload: &str,
    done: bool,
    credential_cache: &mut CredentialCache,
) -> Result<Option<String>, AuthError> {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: payload.into() };
    let reply = rawdoc! { "conversationId": 1, "done": done, "payload": payload, "ok": 1 };
    let step = match scram.reply(&reply, credential_cache)? {
        AuthStep::Derive(derivation) => scram.derived(derivation.run().0)?,
        step => step,
    };
    Ok(match step {
        AuthStep::Derive(_) => panic!("keys are derived once"),
        AuthStep::Send(command) => {
            let payload = command.get_binary("payload").unwrap().bytes.to_vec();
            Some(String::from_utf8(payload).unwrap())
        }
        AuthStep::Ask(_) => panic!("SCRAM asks nothing"),
        AuthStep::Done => None,
    })
}

fn converse(
    vector: &Vector,
    password: &str,
    credential_cache: &mut CredentialCache,
) -> Result<(), AuthError> {
    let mut scram = scram(vector, password);
    assert_eq!(scram.first_bare(), format!("n=user,r={}", vector.nonce));
    let answer = say(&mut scram, vector.server_first, false, credential_cache)?;
    if password == "pencil" {
        assert_eq!(answer.as_deref(), Some(vector.client_final));
    }
    assert_eq!(say(&mut scram, vector.server_final, true, credential_cache)?, None);
    Ok(())
}

#[test]
fn the_published_conversations_come_out_as_published() {
    for vector in [SHA_1, SHA_256] {
        converse(&vector, "pencil", &mut CredentialCache::default()).unwrap();
    }
}

#[test]
fn hi_of_rfc_5802_is_that_of_its_example() {
    // RFC 5802, section 5: there the password itself is salted, without MongoDB's digest.
    let salt = BASE64_STANDARD.decode("QSXCR+Q6sek8bf92").unwrap();
    let salted = Hash::Sha1.salted(b"pencil", &salt, 4096);
    let client_key = Hash::Sha1.hmac(&salted, b"Client Key");
    let message = "n=user,r=fyko+d2lbbFgONRv9qkxdawL,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,\
                   s=QSXCR+Q6sek8bf92,i=4096,c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j";
    let stored_key = Hash::Sha1.digest(&client_key);
    let mut proof = Hash::Sha1.hmac(&stored_key, message.as_bytes());
    proof.iter_mut().zip(client_key.iter()).for_each(|(byte, key)| *byte ^= key);
    assert_eq!(BASE64_STANDARD.encode(&*proof), "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=");
    let server_key = Hash::Sha1.hmac(&salted, b"Server Key");
    let signature = Hash::Sha1.hmac(&server_key, message.as_bytes());
    assert_eq!(BASE64_STANDARD.encode(&*signature), "rmF9pqV8S7suAoZWja4dJRkFsKQ=");
}

#[test]
fn fewer_than_4096_iterations_are_an_error() {
    // AUTH-P4: "drivers MUST enforce a minimum iteration count of 4096 and MUST error"
    for vector in [SHA_1, SHA_256] {
        for count in [0, 1, 4095, 100_001, u64::MAX] {
            let first = format!("r={}x,s=AAAA,i={count}", vector.nonce);
            let mut scram = scram(&vector, "pencil");
            let error =
                say(&mut scram, &first, false, &mut CredentialCache::default()).unwrap_err();
            assert_eq!(error, AuthError::Iterations { asked: count, most: 100_000 });
            let allowed = "from 4096 to 100000 (maxScramIterations) are allowed";
            assert!(error.to_string().contains(allowed), "{error}");
        }
        let first = format!("r={}x,s=AAAA,i=4096", vector.nonce);
        let mut scram = scram(&vector, "pencil");
        assert!(say(&mut scram, &first, false, &mut CredentialCache::default()).is_ok());
    }
}

#[test]
fn the_application_allows_more_iterations_or_fewer() {
    // Authentication (since): "a maximum iteration count", which `maxScramIterations` sets.
    let ask = |most, count| {
        let mut scram = Scram { most, ..scram(&SHA_256, "pencil") };
        let first = format!("r={}x,s=AAAA,i={count}", SHA_256.nonce);
        say(&mut scram, &first, false, &mut CredentialCache::default()).map(drop)
    };
    assert_eq!(ask(100_000, 100_000), Ok(()));
    assert_eq!(ask(100_001, 100_001), Ok(()));
    assert_eq!(ask(4_096, 4_096), Ok(()));
    assert_eq!(ask(4_096, 4_097), Err(AuthError::Iterations { asked: 4_097, most: 4_096 }));
}

#[test]
fn a_server_that_does_not_know_the_password_is_found_out() {
    // RFC 5802, section 3: the client authenticates the server too.
    for vector in [SHA_1, SHA_256] {
        let error = converse(&vector, "other", &mut CredentialCache::default()).unwrap_err();
        assert_eq!(error, AuthError::Signature);
        let mut ends_early = scram(&vector, "pencil");
        let credential_cache = &mut CredentialCache::default();
        assert_eq!(say(&mut ends_early, "", true, credential_cache), Err(AuthError::EndsEarly));
        let mut silent = scram(&vector, "pencil");
        say(&mut silent, vector.server_first, false, credential_cache).unwrap();
        let error = say(&mut silent, "", true, credential_cache).unwrap_err();
        assert!(matches!(error, AuthError::Message { .. }), "{error}");
        let mut refusing = scram(&vector, "pencil");
        say(&mut refusing, vector.server_first, false, credential_cache).unwrap();
        let error = say(&mut refusing, "e=invalid-proof", true, credential_cache).unwrap_err();
        assert_eq!(error, AuthError::Scram("invalid-proof".into()));
    }
}

#[test]
fn a_part_of_the_servers_signature_proves_nothing() {
    // RFC 5802, section 5: the client authenticates the server by all of its signature.
    for vector in [SHA_1, SHA_256] {
        let right = BASE64_STANDARD.decode(&vector.server_final[2..]).unwrap();
        let last_but_one = right.len() - 1;
        let forged = [
            vec![],
            right[..1].to_vec(),
            right[..last_but_one].to_vec(),
            right[1..].to_vec(),
            [&right[..], &[0]].concat(),
            [&right[..], &right[..]].concat(),
        ];
        for signature in forged {
            let mut scram = scram(&vector, "pencil");
            let credential_cache = &mut CredentialCache::default();
            say(&mut scram, vector.server_first, false, credential_cache).unwrap();
            let last = format!("v={}", BASE64_STANDARD.encode(&signature));
            let error = say(&mut scram, &last, true, credential_cache).unwrap_err();
            assert_eq!(error, AuthError::Signature, "{} bytes", signature.len());
        }
    }
}

#[test]
fn a_nonce_that_does_not_continue_the_clients_is_refused() {
    // RFC 5802, section 5.1: "The client MUST verify that the initial part of the nonce … is the
    // same as the nonce it initially specified."
    for nonce in ["", "x", "xrOprNGfwEbeRWgbNEkqO", "rOprNGfwEbeRWgbNEkq", "rOprNGfwEbeRWgbNEkqO"] {
        let first = format!("r={nonce},s=AAAA,i=4096");
        let mut scram = scram(&SHA_256, "pencil");
        let error = say(&mut scram, &first, false, &mut CredentialCache::default()).unwrap_err();
        assert_eq!(error, AuthError::Nonce, "{nonce}");
    }
}

#[test]
fn a_malformed_message_is_an_error_that_names_it() {
    let nonce = SHA_256.nonce;
    let messages = [
        String::new(),
        "s=AAAA,i=4096".into(),
        format!("m=x,r={nonce}x,s=AAAA,i=4096"),
        format!("r={nonce}x"),
        format!("r={nonce}x,s=AAAA"),
        format!("r={nonce}x,s=?,i=4096"),
        format!("r={nonce}x,s=AAAA,i=many"),
        format!("r={nonce}x,s=AAAA,i=-1"),
        format!("r={nonce}x,s=AAAA,i=99999999999999999999999"),
    ];
    for message in messages {
        let mut scram = scram(&SHA_256, "pencil");
        let error = say(&mut scram, &message, false, &mut CredentialCache::default()).unwrap_err();
        assert!(matches!(error, AuthError::Message { .. }), "{message}: {error}");
    }
    let mut scram = scram(&SHA_256, "pencil");
    let long = "x".repeat(20_000);
    assert!(say(&mut scram, &long, false, &mut CredentialCache::default()).is_err());
}

#[test]
fn a_server_that_wants_one_more_exchange_gets_an_empty_one() {
    let (mut scram, credential_cache) =
        (scram(&SHA_256, "pencil"), &mut CredentialCache::default());
    say(&mut scram, SHA_256.server_first, false, credential_cache).unwrap();
    let answer = say(&mut scram, SHA_256.server_final, false, credential_cache).unwrap();
    assert_eq!(answer.as_deref(), Some(""));
    assert_eq!(say(&mut scram, "", false, credential_cache), Err(AuthError::GoesOn));
}

#[test]
fn names_are_escaped_and_not_prepared() {
    // RFC 5802, section 5.1; "User names MUST NOT be prepared with SASLprep."
    let mut scram = scram(&SHA_256, "pencil");
    scram.credential.username = Some("a=b,c\u{2168}".into());
    assert_eq!(scram.first_bare(), format!("n=a=3Db=2Cc\u{2168},r={}", SHA_256.nonce));
}

#[test]
fn passwords_are_prepared_for_sha_256_and_never_for_sha_1() {
    // "Passwords MUST be prepared with SASLprep" and "MUST NOT be prepared with SASLprep before
    // hashing"; the passwords are those of AUTH-P3.
    #[cfg(feature = "saslprep")]
    {
        for ascii in '\0'..='\x7f' {
            let of_stringprep = stringprep::saslprep(ascii.encode_utf8(&mut [0; 4])).is_ok();
            let password = ascii.to_string();
            assert_eq!(prepare(&password).ok(), of_stringprep.then_some(password.as_str().into()));
        }
        assert_eq!(key(Hash::Sha256, "I\u{ad}X").unwrap(), key(Hash::Sha256, "IX").unwrap());
        assert_eq!(key(Hash::Sha256, "\u{2163}").unwrap(), key(Hash::Sha256, "IV").unwrap());
        assert_eq!(
            key(Hash::Sha256, "\u{627}1"),
            Err(AuthError::Prohibited),
            "it has two directions"
        );
    }
    assert_ne!(key(Hash::Sha1, "I\u{ad}X").unwrap(), key(Hash::Sha1, "IX").unwrap());
    assert_eq!(key(Hash::Sha256, "bell\u{7}"), Err(AuthError::Prohibited));
    assert!(key(Hash::Sha1, "bell\u{7}").is_ok());
}

/// "Passwords MUST be prepared with SASLprep": without it, one that it may change is refused.
#[cfg(not(feature = "saslprep"))]
#[test]
fn a_password_beyond_ascii_needs_the_feature_for_sha_256() {
    assert_eq!(key(Hash::Sha256, "I\u{ad}X"), Err(AuthError::NoSaslprep));
    assert!(key(Hash::Sha1, "I\u{ad}X").is_ok());
}

fn key(hash: Hash, password: &str) -> Result<Vec<u8>, AuthError> {
    Keys::derive(hash, "IX", password, b"salt", 4096).map(|keys| keys.client.to_vec())
}

#[test]
fn keys_are_remembered_once_the_server_has_proven_itself() {
    // "drivers MUST maintain a cache of computed SCRAM credentials"
    let salt = BASE64_STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    let mut credential_cache = CredentialCache::default();
    converse(&SHA_256, "other", &mut credential_cache).unwrap_err();
    assert!(credential_cache.keys(Hash::Sha256, &salt, 4096).is_none(), "the server has not");
    converse(&SHA_256, "pencil", &mut credential_cache).unwrap();
    assert!(credential_cache.keys(Hash::Sha256, &salt, 4096).is_some());
    assert!(credential_cache.keys(Hash::Sha1, &salt, 4096).is_none(), "of another mechanism");
    assert!(
        credential_cache.keys(Hash::Sha256, &salt, 4097).is_none(),
        "of another iteration count"
    );
    assert!(credential_cache.keys(Hash::Sha256, b"salt", 4096).is_none(), "of another salt");
    // With them the password itself is not needed: the client says the same with a wrong one.
    let mut by_keys = scram(&SHA_256, "other");
    let answer = say(&mut by_keys, SHA_256.server_first, false, &mut credential_cache).unwrap();
    assert_eq!(answer.as_deref(), Some(SHA_256.client_final));
}
