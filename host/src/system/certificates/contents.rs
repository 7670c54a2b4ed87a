//! The contents of the files of TLS, as long as a configuration is made of them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use sdam_core::config::TlsOptions;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::CertificateKeyProvider;

/// The greatest size of a file of certificates; those of distributions have 250 kB.
const MAX_FILE_LEN: u64 = 4 * 1024 * 1024;

/// The number of kinds of section that an error lists, and the maximum length of a name.
const MAX_LABELS: usize = 4;
const MAX_LABEL_LEN: usize = 40;

/// The byte that certificates and lists begin with in DER: that of a sequence.
const DER: u8 = 0x30;

/// The digest of contents that are not kept, to see whether they have changed.
pub(super) type Digest = [u8; 32];

/// The contents of the files.
pub(super) struct Contents {
    pub(super) authorities: Option<Pem>,
    pub(super) certificate_key: Option<Pem>,
    pub(super) revocation_lists: Option<Pem>,
}

/// The contents of a file, or of what the application's provider gives; wiped from memory when
/// dropped.
pub(super) struct Pem {
    origin: Origin,
    bytes: Zeroizing<Vec<u8>>,
}

enum Origin {
    /// A file that an option names.
    File {
        option: &'static str,
        path: String,
    },
    Provider,
}

impl Contents {
    pub(super) fn read(
        options: &TlsOptions,
        provider: Option<&CertificateKeyProvider>,
    ) -> Result<Self, String> {
        let file = options.certificate_key_file.as_deref();
        Ok(Self {
            authorities: Pem::read("tlsCAFile", options.ca_file.as_deref())?,
            certificate_key: match provider {
                Some(provider) => Some(Pem::ask(provider)?),
                None => Pem::read("tlsCertificateKeyFile", file)?,
            },
            revocation_lists: Pem::read(
                "file of revocation lists",
                options.revocation_lists_file.as_deref(),
            )?,
        })
    }

    /// Returns what changes if the files do, or what was read of the system's store.
    pub(super) fn digest(&self, store: Option<&Digest>) -> Digest {
        let of =
            |pem: &Option<Pem>| pem.as_ref().map(|pem| Digest::from(Sha256::digest(&*pem.bytes)));
        let mut all = Sha256::new();
        let files = [&self.authorities, &self.certificate_key, &self.revocation_lists].map(of);
        for part in files.into_iter().chain([store.copied()]) {
            all.update([u8::from(part.is_some())]);
            all.update(part.unwrap_or_default());
        }
        all.finalize().into()
    }
}

impl Pem {
    fn read(option: &'static str, path: Option<&str>) -> Result<Option<Self>, String> {
        let Some(path) = path else { return Ok(None) };
        let bytes =
            read_file(path).map_err(|error| format!("cannot read the {option} {path}: {error}"))?;
        Ok(Some(Self { origin: Origin::File { option, path: path.to_owned() }, bytes }))
    }

    fn ask(provider: &CertificateKeyProvider) -> Result<Self, String> {
        let found = provider.ask();
        let pem = found.map_err(|error| format!("the provider of certificates failed: {error}"))?;
        let bytes = Zeroizing::new(pem.expose().as_bytes().to_vec());
        Ok(Self { origin: Origin::Provider, bytes })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Says what it consists of: the names of its sections, and nothing of what is in them.
    pub(super) fn found(&self) -> String {
        let it = match self.origin {
            Origin::File { .. } => "the file",
            Origin::Provider => "it",
        };
        if self.bytes.is_empty() {
            return format!("{it} is empty");
        }
        let label = |line: &[u8]| -> Option<String> {
            let label = line.trim_ascii().strip_prefix(b"-----BEGIN ")?.strip_suffix(b"-----")?;
            let is_plain =
                |byte: &u8| byte.is_ascii_uppercase() || matches!(byte, b' ' | b'0'..=b'9');
            let is_name = label.len() <= MAX_LABEL_LEN && label.iter().all(is_plain);
            is_name.then(|| String::from_utf8_lossy(label).into_owned())
        };
        let labels: BTreeSet<_> =
            self.bytes.split(|byte| *byte == b'\n').filter_map(label).collect();
        let labels: Vec<_> = labels.into_iter().take(MAX_LABELS).collect();
        match labels.is_empty() {
            true if self.bytes.first() == Some(&DER) => {
                format!("{it} is in DER, not in PEM; openssl converts it with -inform DER")
            }
            true => format!("{it} has {} bytes, and nothing in PEM", self.bytes.len()),
            false => format!("{it} contains {}", labels.join(" and ")),
        }
    }
}

/// Shows the option and the path, never the contents.
impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::File { option, path } => write!(f, "the {option} {path}"),
            Origin::Provider => f.write_str("what the provider of certificates gives"),
        }
    }
}

fn read_file(path: &str) -> io::Result<Zeroizing<Vec<u8>>> {
    let metadata = std::fs::metadata(path)?;
    // Opening a pipe could wait for ever.
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    // With room to spare, so that the buffer need not grow and leave a copy behind.
    let room = usize::try_from(metadata.len().min(MAX_FILE_LEN)).unwrap_or_default() + 64;
    let mut contents = Zeroizing::new(Vec::with_capacity(room));
    File::open(path)?.take(MAX_FILE_LEN + 1).read_to_end(&mut contents)?;
    match contents.len() as u64 > MAX_FILE_LEN {
        true => Err(io::Error::other(format!("it has more than {MAX_FILE_LEN} bytes"))),
        false => Ok(contents),
    }
}
