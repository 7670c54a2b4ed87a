//! Logins by SCRAM, and TLS, against the embedded deployment.

mod support;

use std::time::Duration;

use sdam_conformance::certificates::Authority;
use sdam_conformance::cluster::{EmbeddedCluster, EmbeddedOptions, MemberId, TlsIdentity, User};
use sdam_core::bson::{RawDocumentBuf, rawdoc};
use sdam_core::failure::Cause;
use sdam_core::operation::OperationError;
use sdam_core::options::{AuthMechanism, Options, OptionsBuilder};
use sdam_core::selection::Criteria;
use sdam_tokio::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use support::{is_whole, soon, view};
