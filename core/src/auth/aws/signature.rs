//! The request that proves to AWS who the client is, and its signature (AWS Signature Version 4).

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bson::DateTime;
use zeroize::Zeroizing;

use crate::auth::keys::Hash;
use crate::auth::{AuthError, AwsCredentials};
use crate::config::Secret;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The request that is signed.
const BODY: &str = "Action=GetCallerIdentity&Version=2011-06-15";

/// The headers of the request that the server cannot know by itself.
pub(super) struct Signed {
    pub(super) authorization: String,
    pub(super) date: String,
}

impl Signed {
    /// Signs the request to the service of AWS at `host`.
    pub(super) fn new(
        nonce: &[u8],
        host: &str,
        credentials: &AwsCredentials,
        now: DateTime,
    ) -> Result<Self, AuthError> {
        let token = credentials.session_token.as_ref().map(Secret::expose);
        check("the access key id", &credentials.access_key_id)?;
        check("the session token", token.unwrap_or("none"))?;
        let date = date(now)?;
        let scope = Scope { date: &date, region: region(host), service: "sts" };
        let (length, nonce) = (BODY.len().to_string(), BASE64_STANDARD.encode(nonce));
        // Sorted, as they are in the canonical request.
        let mut headers = vec![
            ("content-length", &*length),
            ("content-type", "application/x-www-form-urlencoded"),
            ("host", host),
            ("x-amz-date", &date),
        ];
        headers.extend(token.map(|token| ("x-amz-security-token", token)));
        headers.extend([("x-mongodb-gs2-cb-flag", "n"), ("x-mongodb-server-nonce", &*nonce)]);
        let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let signature =
            scope.sign(&credentials.secret_access_key, &canonical("POST", &headers, &names, BODY));
        let id = &credentials.access_key_id;
        let authorization = format!(
            "{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}"
        );
        Ok(Self { authorization, date })
    }
}

/// The scope of a signature: when, where and for what it holds.
struct Scope<'a> {
    /// As in `20150830T123600Z`.
    date: &'a str,
    region: &'a str,
    service: &'a str,
}

impl Scope<'_> {
    /// Returns the day of the date.
    fn day(&self) -> &str {
        &self.date[..8]
    }

    fn sign(&self, secret: &Secret, canonical: &str) -> String {
        let hash = hex(&Hash::Sha256.digest(canonical.as_bytes()));
        let text = format!("{ALGORITHM}\n{}\n{self}\n{hash}", self.date);
        let mut key = Zeroizing::new(["AWS4", secret.expose()].concat().into_bytes());
        for part in [self.day(), self.region, self.service, "aws4_request", &text] {
            key = Hash::Sha256.hmac(&key, part.as_bytes());
        }
        hex(&key)
    }
}

impl fmt::Display for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/aws4_request", self.day(), self.region, self.service)
    }
}

/// Returns a request for `/` in its canonical form, made in one piece, as a token may be in it.
fn canonical(method: &str, headers: &[(&str, &str)], names: &str, body: &str) -> Zeroizing<String> {
    let hash = hex(&Hash::Sha256.digest(body.as_bytes()));
    let mut parts = vec![method, "\n/\n\n"];
    parts.extend(headers.iter().flat_map(|(name, value)| [name, ":", value, "\n"]));
    parts.extend(["\n", names, "\n", &hash]);
    Zeroizing::new(parts.concat())
}

/// Refuses what would be something else, or several things, in a header.
fn check(what: &'static str, value: &str) -> Result<(), AuthError> {
    match value.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(()),
        false => Err(AuthError::Signing(what)),
    }
}

/// "Region Calculation"
fn region(host: &str) -> &str {
    match host.split('.').nth(1) {
        Some(region) if host != "sts.amazonaws.com" => region,
        _ => "us-east-1",
    }
}

/// Returns a time in the basic form of ISO 8601, in full seconds.
fn date(now: DateTime) -> Result<String, AuthError> {
    let text = now.try_to_rfc3339_string().map_err(|_| AuthError::Signing("the time"))?;
    // 2015-08-30T12:36:00.5Z
    let digits = text[..19].chars().filter(|character| !"-:".contains(*character));
    Ok(digits.chain(['Z']).collect())
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    //! Signatures against the vector "get-vanilla", which AWS has published, and against what the
    //! SDK of AWS makes of the same request; dates, regions, and what no header may have.

    use bson::DateTime;

    use super::{Scope, Signed, canonical, date, region};
    use crate::auth::{AuthError, AwsCredentials};

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    const TIME: &str = "20150830T123600Z";

    fn at(time: &str) -> DateTime {
        DateTime::parse_rfc3339_str(time).unwrap()
    }

    fn credentials(token: Option<&str>) -> AwsCredentials {
        AwsCredentials {
            access_key_id: "AKIDEXAMPLE".into(),
            secret_access_key: SECRET.into(),
            session_token: token.map(Into::into),
            expires: None,
        }
    }

    fn sign(credentials: &AwsCredentials) -> Result<Signed, AuthError> {
        let host = "sts.us-west-2.amazonaws.com";
        Signed::new(&[9; 64], host, credentials, at("2015-08-30T12:36:00Z"))
    }

    #[test]
    fn the_signature_is_that_of_the_published_vector() {
        let headers = [("host", "example.amazonaws.com"), ("x-amz-date", TIME)];
        let canonical = canonical("GET", &headers, "host;x-amz-date", "");
        let scope = Scope { date: TIME, region: "us-east-1", service: "service" };
        assert_eq!(
            scope.sign(&SECRET.into(), &canonical),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
        );
    }

    #[test]
    fn the_request_is_signed_with_the_headers_that_the_specification_lists() {
        // Authentication, "MONGODB-AWS": every header of the table "MUST be included in
        // SignedHeaders".
        let table = [
            (None, "", "8f48dbff6dea463125c7bb6bd197b3710861b6fd5bc175ab8ffe6299d290d71f"),
            (
                Some("planted-token"),
                "x-amz-security-token;",
                "528d73c226e2b0a244b5cd471b9117f981327e20d570c4be821792dbd269c4a2",
            ),
        ];
        for (token, name, signature) in table {
            let credentials = credentials(token);
            let signed = sign(&credentials).unwrap();
            assert_eq!(signed.date, TIME);
            let expected = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-west-2/sts/aws4_request, \
                 SignedHeaders=content-length;content-type;host;x-amz-date;{name}\
                 x-mongodb-gs2-cb-flag;x-mongodb-server-nonce, Signature={signature}"
            );
            assert_eq!(signed.authorization, expected);
            assert!(!format!("{credentials:?}").contains("planted"));
            assert!(!format!("{credentials:?}").contains(SECRET));
        }
    }

    #[test]
    fn what_no_header_may_have_is_refused_and_not_shown() {
        for bad in ["two words", "line\nfeed", "ü", "end\r\n"] {
            let error = sign(&credentials(Some(bad))).err().unwrap();
            assert_eq!(error, AuthError::Signing("the session token"));
            assert!(!error.to_string().contains(bad), "{error}");
            let credentials = AwsCredentials { access_key_id: bad.into(), ..credentials(None) };
            assert_eq!(sign(&credentials).err(), Some(AuthError::Signing("the access key id")));
        }
    }

    #[test]
    fn dates_are_full_seconds_of_years_with_four_digits() {
        assert_eq!(date(at("2015-08-30T12:36:59.999Z")).unwrap(), "20150830T123659Z");
        assert_eq!(date(at("2015-08-30T14:36:00+02:00")).unwrap(), TIME);
        assert_eq!(date(DateTime::MAX).unwrap(), "99991231T235959Z");
        assert_eq!(date(DateTime::MIN), Err(AuthError::Signing("the time")));
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
            super::super::check_host(host).unwrap();
            assert_eq!(region(host), expected, "{host}");
        }
    }
}
