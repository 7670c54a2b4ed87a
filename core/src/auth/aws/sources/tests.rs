//! The sources of credentials, by their requests and what they answer.

use bson::DateTime;

use super::{
    Authorization, AwsEndpoints, AwsFetch, AwsSource, AwsSourceError, AwsStep, Container,
    WebIdentity,
};
use crate::auth::AwsCredentials;
use crate::http::{HttpError, HttpRequest};

const JSON: &str = r#"{"Code": "Success", "AccessKeyId": "AKID", "SecretAccessKey": "planted-key",
    "Token": "planted-token", "Expiration": "2026-08-25T12:00:00Z"}"#;

/// The longest body.
const LIMIT: usize = 64 * 1024;

fn find(variables: &[(&str, &str)]) -> Result<AwsSource, AwsSourceError> {
    let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
    AwsSource::find(|name| find(name).map(|(_, value)| (*value).to_owned()))
}

fn text(request: &HttpRequest) -> &str {
    std::str::from_utf8(&request.bytes).unwrap()
}

fn response(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn ecs() -> AwsFetch {
    let container = Container { endpoint: None, path: "/role".into(), authorization: None };
    AwsFetch::container(&AwsEndpoints::default(), &container, None).unwrap().0
}

fn found(step: Result<Option<AwsStep>, AwsSourceError>) -> AwsCredentials {
    match step {
        Ok(Some(AwsStep::Found(credentials))) => credentials,
        other => panic!("{other:?} where credentials are due"),
    }
}

fn next(step: Result<Option<AwsStep>, AwsSourceError>) -> HttpRequest {
    match step {
        Ok(Some(AwsStep::Next(request))) => request,
        other => panic!("{other:?} where a request is due"),
    }
}

#[test]
fn the_environment_comes_before_web_identity_ecs_and_ec2() {
    // "The order in which Drivers MUST search for credentials"
    let key = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "s3cret")];
    let web = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"), ("AWS_ROLE_ARN", "arn:role")];
    let ecs = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/role")];
    let all = [&key[..], &web, &ecs].concat();
    let Ok(AwsSource::Environment(credentials)) = find(&all) else { panic!("environment") };
    assert_eq!(credentials.expires, None, "these are never remembered");
    assert!(matches!(find(&all[2..]), Ok(AwsSource::WebIdentity(_))));
    assert!(matches!(find(&all[3..]), Ok(AwsSource::Container(it)) if it.path == "/role"));
    assert_eq!(find(&[]), Ok(AwsSource::Ec2));
    assert_eq!(find(&[("AWS_ACCESS_KEY_ID", "")]), Ok(AwsSource::Ec2), "empty is not set");
}

#[test]
fn the_environment_counts_whole_or_not_at_all() {
    let [key, secret] = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "planted")];
    let token = ("AWS_SESSION_TOKEN", "planted");
    let Ok(AwsSource::Environment(credentials)) = find(&[key, secret, token]) else {
        panic!("environment")
    };
    assert_eq!(credentials.session_token.unwrap().expose(), "planted");
    for incomplete in [&[key][..], &[secret], &[token], &[key, token], &[secret, token]] {
        let error = find(incomplete).unwrap_err();
        assert_eq!(error, AwsSourceError::Incomplete);
        assert!(!error.to_string().contains("planted"));
    }
    for path in ["role", "/a role", "/role\r\nX: y", "/r\u{f6}le"] {
        let ecs = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", path)];
        assert_eq!(find(&ecs), Err(AwsSourceError::Path));
    }
}

const FULL_URI: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";

fn container(variables: &[(&str, &str)]) -> Container {
    match find(variables) {
        Ok(AwsSource::Container(container)) => container,
        other => panic!("{other:?} where a container is meant"),
    }
}

#[test]
fn a_container_is_told_by_a_path_or_a_uri_and_shows_a_token() {
    let relative = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/role");
    let full = (FULL_URI, "http://169.254.170.23/v1/credentials");
    let token = ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Basic planted");
    let file = ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/var/run/token");
    let by_path = container(&[full, relative]);
    assert_eq!((by_path.endpoint, &*by_path.path, by_path.authorization), (None, "/role", None));
    let by_uri = container(&[full, token, file]);
    assert_eq!(by_uri.authorization, Some(Authorization::File("/var/run/token".into())));
    let by_uri = container(&[full, token]);
    assert_eq!(by_uri.authorization, Some(Authorization::Token("Basic planted".into())));
    assert!(!format!("{by_uri:?}").contains("planted"));

    let endpoints = AwsEndpoints::default();
    let shown = Some("Basic planted\n".into());
    let (mut fetch, request) = AwsFetch::container(&endpoints, &by_uri, shown.as_ref()).unwrap();
    let head = "GET /v1/credentials HTTP/1.1\r\nHost: 169.254.170.23\r\n\
                Authorization: Basic planted\r\n";
    assert!(text(&request).starts_with(head), "{}", text(&request));
    let endpoint = &request.endpoint;
    assert_eq!((&*endpoint.host, endpoint.port, endpoint.tls), ("169.254.170.23", 80, false));
    assert_eq!(found(fetch.receive(&response(JSON))).access_key_id, "AKID");
    for smuggled in ["", " ", "a\r\nX: y", "\u{f6}"] {
        let error = AwsFetch::container(&endpoints, &by_uri, Some(&smuggled.into())).unwrap_err();
        assert_eq!(error, AwsSourceError::ContainerToken);
    }
}

#[test]
fn a_container_without_tls_is_asked_for_nothing_but_loopback_and_the_agents() {
    // AWS SDKs and Tools Reference Guide, "AWS_CONTAINER_CREDENTIALS_FULL_URI"
    let allowed = [
        ("http://127.0.0.1:8080/role?a=b", "127.0.0.1", 8080, "/role?a=b", "127.0.0.1:8080"),
        ("http://127.9.9.9/", "127.9.9.9", 80, "/", "127.9.9.9"),
        ("http://localhost:1", "localhost", 1, "/", "localhost:1"),
        ("http://169.254.170.2/x", "169.254.170.2", 80, "/x", "169.254.170.2"),
        ("http://169.254.170.23/x", "169.254.170.23", 80, "/x", "169.254.170.23"),
        ("http://[fd00:ec2::23]/x", "fd00:ec2::23", 80, "/x", "[fd00:ec2::23]"),
        ("http://[::1]:80?q", "::1", 80, "/?q", "[::1]"),
        ("https://any.example", "any.example", 443, "/", "any.example"),
        ("https://10.0.0.1:8443/x", "10.0.0.1", 8443, "/x", "10.0.0.1:8443"),
    ];
    for (uri, host, port, path, header) in allowed {
        let container = container(&[(FULL_URI, uri)]);
        let (_, request) = AwsFetch::container(&AwsEndpoints::default(), &container, None).unwrap();
        let endpoint = &request.endpoint;
        assert_eq!((&*endpoint.host, endpoint.port), (host, port), "{uri}");
        assert_eq!(endpoint.tls, uri.starts_with("https"), "{uri}");
        let head = format!("GET {path} HTTP/1.1\r\nHost: {header}\r\n");
        assert!(text(&request).starts_with(&head), "{uri}: {}", text(&request));
    }
    let refused = [
        ("http://any.example/", "must begin with https://"),
        ("http://127.0.0.1.any.example/", "must begin with https://"),
        ("http://169.254.169.254/", "169.254.170.23"),
        ("http://10.0.0.1/", "must begin with https://"),
        ("http://[fd00:ec2::24]/", "[fd00:ec2::23]"),
        ("http://169.254.170.2@any.example/", "no user name"),
        ("http://any.example#@127.0.0.1/", "without spaces and #"),
        ("http://127.0.0.1:0/", "port"),
        ("http://127.0.0.1:65536/", "port"),
        ("http://127.0.0.1:+1/", "port"),
        ("http://127.0.0.1:/", "port"),
        ("http://[::1/", "host"),
        ("http://::1/", "host"),
        ("http:///path", "host"),
        ("https:///path", "host"),
        ("ftp://127.0.0.1/", "http://"),
        ("/path", "http://"),
        ("http://127.0.0.1/\r\nX: y", "printable"),
    ];
    for (uri, wanted) in refused {
        let error = find(&[(FULL_URI, uri)]).unwrap_err().to_string();
        assert!(error.contains(wanted) && error.contains(FULL_URI), "{uri}: {error}");
    }
}

#[test]
fn ec2_is_asked_for_a_token_a_role_and_its_credentials() {
    // "EC2 endpoint"
    let (mut fetch, request) = AwsFetch::ec2(&AwsEndpoints::default());
    assert_eq!((&*request.endpoint.host, request.endpoint.port), ("169.254.169.254", 80));
    assert!(text(&request).starts_with("PUT /latest/api/token HTTP/1.1\r\nHost: 169.254.169.254"));
    assert!(text(&request).contains("\r\nX-aws-ec2-metadata-token-ttl-seconds: 30\r\n"));
    let request = next(fetch.receive(&response("planted-session")));
    let path = "GET /latest/meta-data/iam/security-credentials/ HTTP/1.1\r\n";
    assert!(text(&request).starts_with(path));
    assert!(text(&request).contains("\r\nX-aws-ec2-metadata-token: planted-session\r\n"));
    assert!(!format!("{request:?} {fetch:?}").contains("planted"));
    let request = next(fetch.receive(&response("my-role\n")));
    let path = "GET /latest/meta-data/iam/security-credentials/my-role HTTP/1.1\r\n";
    assert!(text(&request).starts_with(path));
    assert!(text(&request).contains("\r\nX-aws-ec2-metadata-token: planted-session\r\n"));
    let credentials = found(fetch.receive(&response(JSON)));
    assert_eq!(credentials.access_key_id, "AKID");
    assert_eq!(credentials.secret_access_key.expose(), "planted-key");
    assert_eq!(credentials.session_token.unwrap().expose(), "planted-token");
    assert_eq!(credentials.expires, DateTime::parse_rfc3339_str("2026-08-25T12:00:00Z").ok());
}

#[test]
fn what_ec2_says_cannot_smuggle_headers() {
    for session in ["", "a\r\nX: y", "a b", "\u{f6}"] {
        let (mut fetch, _) = AwsFetch::ec2(&AwsEndpoints::default());
        let error = fetch.receive(&response(session)).unwrap_err();
        assert_eq!(error, AwsSourceError::Metadata("token"));
    }
    for role in ["", "one\ntwo", "role HTTP/1.1\r\n"] {
        let (mut fetch, _) = AwsFetch::ec2(&AwsEndpoints::default());
        next(fetch.receive(&response("session")));
        assert!(fetch.receive(&response(role)).is_err(), "{role:?}");
    }
}

#[test]
fn sts_is_shown_the_token_over_tls() {
    // "AssumeRoleWithWebIdentity", with and without AWS_ROLE_SESSION_NAME (AWS-P5)
    let mut identity = WebIdentity {
        token_file: "/token".into(),
        role_arn: "arn:aws:iam::1:role/db".into(),
        session_name: Some("app1".into()),
    };
    let endpoints = AwsEndpoints::default();
    let ask = |identity: &WebIdentity, token: &str| {
        AwsFetch::web_identity(&endpoints, identity, &token.into(), 7)
    };
    let (mut fetch, request) = ask(&identity, "planted.jwt\n").unwrap();
    let wanted = ("sts.amazonaws.com", 443, true);
    let endpoint = &request.endpoint;
    assert_eq!((&*endpoint.host, endpoint.port, endpoint.tls), wanted);
    let (head, body) = text(&request).split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST / HTTP/1.1\r\n"), "no secret is in the path");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
    assert!(head.contains("\r\nAccept: application/json\r\n"));
    let fields: Vec<&str> = body.split('&').collect();
    assert!(fields.contains(&"Action=AssumeRoleWithWebIdentity"));
    assert!(fields.contains(&"RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fdb"));
    assert!(fields.contains(&"RoleSessionName=app1"));
    assert!(fields.contains(&"WebIdentityToken=planted%2Ejwt"));
    let json = format!(
        r#"{{"AssumeRoleWithWebIdentityResponse": {{"AssumeRoleWithWebIdentityResult":
            {{"Credentials": {}}}}}}}"#,
        r#"{"AccessKeyId": "AKID", "SecretAccessKey": "s", "SessionToken": "t",
            "Expiration": 1.787659200E9}"#,
    );
    let credentials = found(fetch.receive(&response(&json)));
    assert_eq!(credentials.expires, DateTime::parse_rfc3339_str("2026-08-25T12:00:00Z").ok());
    identity.session_name = None;
    let (mut fetch, request) = ask(&identity, "jwt").unwrap();
    assert!(text(&request).contains("RoleSessionName=sdam%2D0000000000000007"));
    let json = r#"{"Credentials": {"AccessKeyId": "AKID", "SecretAccessKey": "s",
        "SessionToken": "t", "Expiration": "2026-08-25T12:00:00Z"}}"#;
    found(fetch.receive(&response(json)));
    assert_eq!(ask(&identity, " \n").unwrap_err(), AwsSourceError::WebToken);
    assert_eq!(ask(&identity, "two words").unwrap_err(), AwsSourceError::WebToken);
}

#[test]
fn however_a_response_is_split_and_framed_it_is_read() {
    let half = JSON.len() / 2;
    let chunked = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x};a=b\r\n{}\r\n{:X}\r\n{}\r\n0\r\n\r\n",
        half,
        &JSON[..half],
        JSON.len() - half,
        &JSON[half..]
    );
    for bytes in [chunked.as_bytes(), &response(JSON)] {
        let mut fetch = ecs();
        let mut last = None;
        for byte in bytes {
            match fetch.receive(&[*byte]) {
                Ok(None) => {}
                step => {
                    last = Some(step);
                    break;
                }
            }
        }
        assert_eq!(found(last.unwrap()).access_key_id, "AKID");
    }
    let mut fetch = ecs();
    let until_close = format!("HTTP/1.0 200 OK\r\n\r\n{JSON}");
    assert!(matches!(fetch.receive(until_close.as_bytes()), Ok(None)));
    assert_eq!(found(fetch.ended().map(Some)).access_key_id, "AKID");
}

#[test]
fn a_response_that_is_none_is_refused_without_showing_it() {
    let cases: [(&[u8], HttpError); 9] = [
        (b"HTTP/1.1 404 Not planted\r\n\r\n", HttpError::Status(404)),
        (b"HTTP/1.1 302 Found\r\nLocation: http://planted\r\n\r\n", HttpError::Status(302)),
        (b"SSH-2.0-planted\r\n", HttpError::Malformed("its head cannot be read")),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            HttpError::Malformed("it has two lengths"),
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            HttpError::Malformed("its length is no number"),
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n", HttpError::TooLong(LIMIT)),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            HttpError::Malformed("its transfer encoding is not chunked"),
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nplanted\r\n",
            HttpError::Malformed("a chunk of it cannot be read"),
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n",
            HttpError::TooLong(LIMIT),
        ),
    ];
    for (bytes, wanted) in cases {
        let error = ecs().receive(bytes).unwrap_err();
        assert_eq!(error, AwsSourceError::Http(wanted));
        assert!(!error.to_string().contains("planted"), "{error}");
    }
    let mut fetch = ecs();
    let head = b"HTTP/1.1 200 OK\r\nX-Endless: ";
    fetch.receive(head).unwrap();
    let endless = (0..).find_map(|_| fetch.receive(&[b'x'; 1024]).err());
    assert_eq!(endless, Some(HttpError::HeadTooLong.into()));
    let mut fetch = ecs();
    fetch.receive(&response(JSON)[..80]).unwrap();
    assert_eq!(fetch.ended().unwrap_err(), HttpError::EndsEarly.into());
}

#[test]
fn json_without_credentials_is_refused_without_showing_it() {
    let cases = [
        "planted",
        "{}",
        r#"{"AccessKeyId": "planted", "SecretAccessKey": "planted", "Token": "planted"}"#,
        r#"{"AccessKeyId": "", "SecretAccessKey": "planted", "Token": "planted",
            "Expiration": "2026-08-25T12:00:00Z"}"#,
        r#"{"AccessKeyId": "planted", "SecretAccessKey": 7, "Token": "planted",
            "Expiration": "2026-08-25T12:00:00Z"}"#,
        r#"{"AccessKeyId": "planted", "SecretAccessKey": "planted", "Token": "planted",
            "Expiration": "tomorrow"}"#,
    ];
    for json in cases {
        let error = ecs().receive(&response(json)).unwrap_err();
        assert_eq!(error, AwsSourceError::Json);
        assert!(!error.to_string().contains("planted"));
    }
    // Neither a depth nor a length of its own choice does harm.
    let deep = "[".repeat(60_000);
    assert_eq!(ecs().receive(&response(&deep)).unwrap_err(), AwsSourceError::Json);
}

/// As servers of AWS answer: with headers that say nothing of the length.
#[test]
fn headers_that_say_nothing_of_the_length_are_passed_over() {
    let others = "Content-Type: application/json\r\nDate: Sun, 22 Nov 2026 12:00:00 GMT\r\n";
    let length = JSON.len();
    let bytes = format!(
        "HTTP/1.1 200 OK\r\n{others}Content-Length: {length}\r\nServer: EC2ws\r\n\r\n{JSON}"
    );
    assert_eq!(found(ecs().receive(bytes.as_bytes())).access_key_id, "AKID");
}

#[test]
fn a_response_may_be_as_long_as_the_limit_and_no_longer() {
    let head = response(&" ".repeat(60_000)).len() - 60_000;
    for excess in [0, 1] {
        let padding = " ".repeat(LIMIT + excess - JSON.len());
        let bytes = response(&format!("{JSON}{padding}"));
        assert_eq!(bytes.len(), head + LIMIT + excess);
        let mut fetch = ecs();
        let outcome =
            bytes.chunks(1000).map(|part| fetch.receive(part)).find_map(|step| match step {
                Ok(None) => None,
                step => Some(step),
            });
        match (excess, outcome.unwrap()) {
            (0, step) => assert_eq!(found(step).access_key_id, "AKID"),
            (_, step) => assert_eq!(step.unwrap_err(), HttpError::TooLong(LIMIT).into()),
        }
        // It is known as soon as the head is.
        let refused = ecs().receive(&bytes[..head]).err();
        assert_eq!(refused, (excess > 0).then_some(HttpError::TooLong(LIMIT).into()));
    }
}
