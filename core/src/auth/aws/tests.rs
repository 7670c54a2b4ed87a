//! The signature against a second, plain implementation, which is itself held against the vector
//! "get-vanilla" that AWS has published; and the rules for hosts and regions.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bson::DateTime;

use super::{BODY, check_host, region, signed};
use crate::auth::keys::Hash;
use crate::auth::{AuthError, AwsCredentials};

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const TIME: &str = "20150830T123600Z";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(text: &[u8]) -> String {
    hex(&Hash::Sha256.digest(text))
}

/// Signs a canonical request at [`TIME`] with [`SECRET`] (AWS, "Create a signed AWS API request").
fn signature(region: &str, service: &str, canonical: &str) -> String {
    let day = &TIME[..8];
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let to_sign = format!("AWS4-HMAC-SHA256\n{TIME}\n{scope}\n{}", sha256(canonical.as_bytes()));
    let mut key = Hash::Sha256.hmac(format!("AWS4{SECRET}").as_bytes(), day.as_bytes());
    for part in [region, service, "aws4_request", &to_sign] {
        key = Hash::Sha256.hmac(&key, part.as_bytes());
    }
    hex(&key)
}

#[test]
fn the_second_implementation_agrees_with_the_published_vector() {
    let canonical = format!(
        "GET\n/\n\nhost:example.amazonaws.com\nx-amz-date:{TIME}\n\nhost;x-amz-date\n{}",
        sha256(b"")
    );
    let expected = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
    assert_eq!(signature("us-east-1", "service", &canonical), expected);
}

#[test]
fn the_request_is_signed_with_the_headers_that_the_specification_lists() {
    // Authentication, "MONGODB-AWS": every header of the table "MUST be included in SignedHeaders".
    for token in [None, Some("planted-token")] {
        let (host, nonce) = ("sts.us-west-2.amazonaws.com", [9; 64]);
        let credentials = AwsCredentials {
            access_key_id: "AKIDEXAMPLE".into(),
            secret_access_key: SECRET.into(),
            session_token: token.map(Into::into),
            expires: None,
        };
        let now = DateTime::parse_rfc3339_str("2015-08-30T12:36:00Z").unwrap();
        let signed = signed(&nonce, host, &credentials, now).unwrap();
        assert_eq!(signed.date, TIME);
        let (token_line, token_name) = match token {
            Some(token) => (format!("x-amz-security-token:{token}\n"), "x-amz-security-token;"),
            None => (String::new(), ""),
        };
        let names = format!(
            "content-length;content-type;host;x-amz-date;{token_name}x-mongodb-gs2-cb-flag;\
             x-mongodb-server-nonce"
        );
        let canonical = format!(
            "POST\n/\n\ncontent-length:43\ncontent-type:application/x-www-form-urlencoded\n\
             host:{host}\nx-amz-date:{TIME}\n{token_line}x-mongodb-gs2-cb-flag:n\n\
             x-mongodb-server-nonce:{}\n\n{names}\n{}",
            BASE64_STANDARD.encode(nonce),
            sha256(BODY),
        );
        let expected = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-west-2/sts/aws4_request, \
             SignedHeaders={names}, Signature={}",
            signature("us-west-2", "sts", &canonical),
        );
        assert_eq!(signed.authorization, expected);
        assert!(!format!("{credentials:?}").contains("planted"));
        assert!(!format!("{credentials:?}").contains(SECRET));
    }
}

#[test]
fn the_region_is_part_of_the_host() {
    // Authentication, "Region Calculation"
    let table = [
        ("sts.amazonaws.com", "us-east-1"),
        ("sts.us-west-2.amazonaws.com", "us-west-2"),
        ("sts.us-west-2.amazonaws.com.ch", "us-west-2"),
        ("example.com", "com"),
        ("localhost", "us-east-1"),
    ];
    for (host, expected) in table {
        check_host(host).unwrap();
        assert_eq!(region(host), expected, "{host}");
    }
    let long = "a".repeat(256);
    for host in ["sts..com", ".amazonaws.com", "sts.amazonaws.", "", &long, "a.b/c", "a b", "a:1"] {
        assert!(matches!(check_host(host), Err(AuthError::Host(_))), "{host}");
    }
}
