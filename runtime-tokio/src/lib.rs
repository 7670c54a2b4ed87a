//! tokio
