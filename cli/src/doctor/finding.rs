//! A finding: what is wrong in one sentence, what to do about it, and lines to copy.

use sdam_core::diagnosis::Verdict;
use serde::Serialize;

use crate::findings::Severity;

/// The kind of a finding, with its particulars.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Kind {
    /// One that clients know, too.
    Known(Verdict),
    /// One about a bucket of GridFS.
    Bucket(BucketVerdict),
}

impl Kind {
    /// Returns the label.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Known(verdict) => verdict.name(),
            Self::Bucket(verdict) => verdict.verdict,
        }
    }

    /// Returns the verdict, if clients know it, too.
    pub(super) const fn known(&self) -> Option<&Verdict> {
        match self {
            Self::Known(verdict) => Some(verdict),
            Self::Bucket(_) => None,
        }
    }
}

/// The kind of a finding about a bucket of GridFS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct BucketVerdict {
    /// The label.
    pub(super) verdict: &'static str,
    /// The database and the name of the bucket.
    pub(super) bucket: String,
    /// The file that it is about.
    #[serde(flatten)]
    pub(super) subject: Subject,
}

/// A file that a finding is about, if it is about one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Subject {
    /// The `_id`, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<String>,
    /// The name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) filename: Option<String>,
}

/// One thing that is wrong, or to be known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// The kind, with its particulars.
    #[serde(flatten)]
    pub(super) verdict: Kind,
    /// The weight.
    pub(super) severity: Severity,
    /// The cause, in one sentence without a full stop.
    pub(super) cause: String,
    /// The thing to do, in one sentence without a full stop; none of what is well.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) advice: String,
    /// Lines to copy: options, arguments or commands.
    pub(super) lines: Vec<String>,
}

impl Finding {
    /// Describes what applications fail of.
    pub(super) fn error(verdict: Verdict) -> Self {
        let (cause, advice) = (verdict.to_string(), verdict.advice());
        let (text, lines) = (advice.text.into_owned(), advice.line.into_iter().collect());
        let verdict = Kind::Known(verdict);
        Self { verdict, severity: Severity::Error, cause, advice: text, lines }
    }

    /// Describes something about a bucket, whose cause is still to be said.
    pub(super) fn of_bucket(severity: Severity, verdict: BucketVerdict) -> Self {
        let (cause, advice) = (String::new(), String::new());
        Self { verdict: Kind::Bucket(verdict), severity, cause, advice, lines: Vec::new() }
    }

    /// Describes what applications work in spite of.
    pub(super) fn warning(verdict: Verdict) -> Self {
        Self { severity: Severity::Warning, ..Self::error(verdict) }
    }

    /// Describes what is to be known, and not wrong.
    pub(super) fn note(verdict: Verdict) -> Self {
        Self { severity: Severity::Note, ..Self::error(verdict) }
    }

    /// Returns whether something is wrong, as opposed to what is only to be known.
    pub(super) fn is_wrong(&self) -> bool {
        self.severity != Severity::Note
    }

    /// Returns whether no deployment could be right: the connection string or a file that it names
    /// cannot be used.
    pub(super) fn is_of_the_call(&self) -> bool {
        let is_of_options = matches!(
            self.verdict.known(),
            Some(Verdict::InvalidOptions { .. } | Verdict::CertificatesUnavailable { .. })
        );
        self.severity == Severity::Error && is_of_options
    }

    /// Describes the same more closely than the verdict alone does.
    pub(super) fn because(self, cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), ..self }
    }

    /// Describes the same with other advice, and no line to copy yet.
    pub(super) fn advising(self, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), lines: Vec::new(), ..self }
    }

    /// Describes the same with one more line to copy.
    pub(super) fn with_line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Describes the same as a warning, if that is what it is.
    pub(super) fn warning_if(mut self, is_warning: bool) -> Self {
        if is_warning {
            self.severity = Severity::Warning;
        }
        self
    }
}

/// Joins names for a sentence: `a`, `a and b`, `a, b and c`, `a, b, c and 4 more`.
pub(super) fn listed<T: std::fmt::Display>(items: &[T]) -> String {
    const MAX_NAMED: usize = 4;
    let named: Vec<String> = items.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    match (named.as_slice(), items.len().saturating_sub(MAX_NAMED)) {
        ([], _) => String::new(),
        ([one], _) => one.clone(),
        ([rest @ .., last], 0) => format!("{} and {last}", rest.join(", ")),
        (named, more) => format!("{} and {more} more", named.join(", ")),
    }
}
