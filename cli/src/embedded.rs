//! The deployment that `sdam` starts inside itself when none is named.

/// What is said of an embedded deployment.
pub(crate) const BANNER: &str = "started an embedded demonstration deployment, \
                                 whose primary is killed again and again";

/// Keeps an embedded deployment running until it is dropped.
#[derive(Debug)]
pub(crate) enum Deployment {}

/// Why there is no embedded deployment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EmbeddedError {
    /// This build contains none.
    #[error(
        "this build has no embedded deployment; name one, as in sdam watch mongodb://localhost"
    )]
    Missing,
}

/// Starts a deployment, and returns it with its connection string.
pub(crate) async fn start() -> Result<(Deployment, String), EmbeddedError> {
    Err(EmbeddedError::Missing)
}
