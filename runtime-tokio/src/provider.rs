//! Where tokens and temporary credentials come from if the application has no provider.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Arc;

use sdam_core::auth::{Answer, OidcToken, Question};
#[cfg(feature = "aws")]
use sdam_core::bson::DateTime;
use sdam_core::config::{AuthMechanism, Options, Secret};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_host::{Answering, CredentialProvider};
use tokio::task::spawn_blocking;

#[cfg(feature = "aws")]
use crate::aws::AwsSources;

/// What answers where the application has no provider: the sources of AWS credentials, and the
/// files of tokens that `ENVIRONMENT` stands for.
pub(crate) struct BuiltIn {
    /// The property ENVIRONMENT of MONGODB-OIDC.
    environment: Option<String>,
    variable: Variable,
    #[cfg(feature = "aws")]
    pub(crate) aws: Arc<AwsSources>,
}

/// Reads an environment variable.
pub(crate) type Variable = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl BuiltIn {
    pub(crate) fn new(options: &Options) -> Self {
        let variable: Variable = Arc::new(|name| std::env::var(name).ok());
        Self {
            environment: oidc_environment(options).map(str::to_owned),
            #[cfg(feature = "aws")]
            aws: Arc::new(AwsSources::new(Arc::clone(&variable))),
            variable,
        }
    }
}

/// Returns which environment the options take the tokens of MONGODB-OIDC from.
pub(crate) fn oidc_environment(options: &Options) -> Option<&str> {
    let credential = options.credential()?;
    let property = credential.mechanism_properties.get("ENVIRONMENT");
    property.filter(|_| credential.mechanism == Some(AuthMechanism::Oidc)).map(Secret::expose)
}

impl CredentialProvider for BuiltIn {
    fn answer(&self, question: Question) -> Answering {
        match question {
            #[cfg(feature = "aws")]
            Question::Aws => {
                let aws = Arc::clone(&self.aws);
                Box::pin(async move {
                    let credentials = aws.credentials().await?;
                    Ok(Answer::Aws { credentials, now: DateTime::now() })
                })
            }
            Question::Oidc(_) => {
                let file = token_file(self.environment.as_deref(), &*self.variable);
                Box::pin(async move {
                    let token = read_token(file.map_err(failure)?).await.map_err(failure)?;
                    Ok(Answer::Oidc(OidcToken::new(token.expose().trim_ascii())))
                })
            }
        }
    }
}

fn failure(detail: impl Into<Arc<str>>) -> Failure {
    Failure::new(Stage::Authenticate, Cause::Configuration, detail)
}

/// Where Kubernetes puts a pod's token.
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Returns the file that holds the token of an environment (Authentication, "Built-in OIDC
/// Environment Integrations").
fn token_file(
    environment: Option<&str>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    const PROVIDER: &str =
        "OptionsBuilder::oidc_callback(true) and ClientBuilder::credential_provider";
    match environment {
        Some("k8s") => Ok(set("AZURE_FEDERATED_TOKEN_FILE")
            .or_else(|| set("AWS_WEB_IDENTITY_TOKEN_FILE"))
            .unwrap_or_else(|| SERVICE_ACCOUNT_TOKEN.into())),
        Some("test") => {
            set("OIDC_TOKEN_FILE").ok_or_else(|| "ENVIRONMENT:test needs OIDC_TOKEN_FILE".into())
        }
        Some(other) => Err(format!(
            "ENVIRONMENT:{other} of MONGODB-OIDC is not built in; leave it out, and give a \
             provider of tokens: {PROVIDER}"
        )),
        None => Err(format!("MONGODB-OIDC needs a provider of tokens: {PROVIDER}")),
    }
}

/// How long a file with a token may be, in bytes.
const MAX_TOKEN_FILE_LEN: u64 = 1 << 20;

/// Reads a file with a token, each time, as it is replaced before the token expires.
pub(crate) async fn read_token(path: String) -> Result<Secret, String> {
    let read = move || -> io::Result<String> {
        let file = File::open(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
        // As large as it can get, so that no copy is left behind.
        let mut text = String::with_capacity(16 * 1024);
        match file.take(MAX_TOKEN_FILE_LEN + 1).read_to_string(&mut text) {
            Ok(0) => Err(io::Error::other(format!("{path}: the file is empty"))),
            Ok(length) if length as u64 > MAX_TOKEN_FILE_LEN => Err(io::Error::other(format!(
                "{path}: the file is longer than {MAX_TOKEN_FILE_LEN} bytes, which no token is"
            ))),
            Ok(_) => Ok(text),
            Err(error) => Err(io::Error::new(error.kind(), format!("{path}: {error}"))),
        }
    };
    match spawn_blocking(read).await {
        Ok(Ok(text)) => Ok(text.into()),
        Ok(Err(error)) => Err(format!("cannot read the token: {error}")),
        Err(_) => Err("the runtime is shutting down".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::{MAX_TOKEN_FILE_LEN, SERVICE_ACCOUNT_TOKEN, read_token, token_file};

    fn file_of(environment: Option<&str>, variables: &[(&str, &str)]) -> Result<String, String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        token_file(environment, &|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn each_environment_has_its_file_or_says_what_is_missing() {
        let azure = ("AZURE_FEDERATED_TOKEN_FILE", "/azure");
        let aws = ("AWS_WEB_IDENTITY_TOKEN_FILE", "/aws");
        assert_eq!(file_of(Some("k8s"), &[aws, azure]).as_deref(), Ok("/azure"));
        assert_eq!(file_of(Some("k8s"), &[aws]).as_deref(), Ok("/aws"));
        assert_eq!(file_of(Some("k8s"), &[]).as_deref(), Ok(SERVICE_ACCOUNT_TOKEN));
        assert_eq!(file_of(Some("test"), &[("OIDC_TOKEN_FILE", "/t")]).as_deref(), Ok("/t"));
        assert!(file_of(Some("test"), &[]).unwrap_err().contains("OIDC_TOKEN_FILE"));
        for environment in [Some("azure"), Some("gcp"), None] {
            let error = file_of(environment, &[]).unwrap_err();
            assert!(error.contains("ClientBuilder::credential_provider"), "{error}");
            assert!(error.contains(environment.unwrap_or("MONGODB-OIDC")), "{error}");
        }
    }

    #[tokio::test]
    async fn a_token_is_read_anew_each_time_and_never_shown() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        assert!(read_token(path.clone()).await.unwrap_err().contains("empty"));
        file.write_all(b"planted").unwrap();
        assert_eq!(read_token(path.clone()).await.unwrap().expose(), "planted");
        file.write_all(&[0xff]).unwrap();
        let error = read_token(path.clone()).await.unwrap_err();
        assert!(!error.contains("planted") && error.contains(&path), "{error}");
        let long = vec![b'x'; usize::try_from(MAX_TOKEN_FILE_LEN).unwrap() + 1];
        std::fs::write(&path, long).unwrap();
        assert!(read_token(path).await.unwrap_err().contains("longer than"));
        assert!(read_token("/none".into()).await.unwrap_err().contains("/none"));
    }
}
