//! Errors of commands, as clients receive them.

use bson::Document;
use sdam_core::bson;

use crate::options::ServerVersion;
use crate::store::StoreError;

/// The error of a command, as the client receives it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CommandError {
    pub(crate) code: i32,
    pub(crate) code_name: String,
    pub(crate) message: String,
    /// The fields of the reply besides these.
    pub(crate) details: Box<Document>,
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        Self { details: error.details, ..Self::coded(error.code, error.message) }
    }
}

/// The errors by which a member says that it is not primary, or not any more; since 4.4 they carry
/// its `topologyVersion`.
const NOT_PRIMARY: [i32; 6] = [10107, 13435, 13436, 10058, 189, 11602];

impl CommandError {
    /// An error that servers have a name for, or else number.
    pub(crate) fn coded(code: i32, message: impl Into<String>) -> Self {
        match name(code) {
            Some(name) => Self { code_name: name.to_owned(), ..Self::numbered(code, message) },
            None => Self::numbered(code, message),
        }
    }

    /// Returns whether the error reports a change of the topology.
    pub(crate) fn is_not_primary(&self) -> bool {
        NOT_PRIMARY.contains(&self.code)
    }

    /// Returns the error under the name that servers of that version have for it.
    pub(crate) fn named_by(&self, version: ServerVersion) -> Self {
        let (is_old, is_new) = (version <= ServerVersion::V4_2, version >= ServerVersion::V6_0);
        let name = match self.code {
            10107 if is_old => "NotMaster",
            13435 if is_old => "NotMasterNoSlaveOk",
            13436 if is_old => "NotMasterOrSecondary",
            40414 if is_new => "IDLFailedToParse",
            40415 if is_new => "IDLUnknownField",
            _ => return self.clone(),
        };
        Self { code_name: name.to_owned(), ..self.clone() }
    }

    /// An error without a name of its own; servers name those after their number.
    pub(crate) fn numbered(code: i32, message: impl Into<String>) -> Self {
        let code_name = format!("Location{code}");
        Self { code, code_name, message: message.into(), details: Box::default() }
    }

    /// The command has taken longer than its `maxTimeMS`.
    pub(crate) fn time_is_over() -> Self {
        Self::coded(50, "operation exceeded time limit")
    }

    /// The OP_MSG does not say for which database it is.
    pub(crate) fn no_database() -> Self {
        Self::numbered(40571, "an OP_MSG request needs the argument $db")
    }

    /// The command is only for those who have logged in.
    pub(crate) fn unauthorized(command: &str) -> Self {
        Self::coded(13, format!("command {command} requires authentication"))
    }

    /// The command is not known; of a long name only the beginning is repeated.
    pub(crate) fn not_found(command: &str) -> Self {
        const LONGEST: usize = 64;
        let name: String = command.chars().take(LONGEST).collect();
        Self::coded(59, format!("no such command: '{name}'"))
    }

    /// The client knows more changes of this process than there were.
    pub(crate) fn counter_ahead(theirs: i64, ours: i64) -> Self {
        Self::numbered(
            31382,
            format!(
                "the client's topology version counter {theirs} is ahead of the server's {ours}"
            ),
        )
    }
}

/// The names of the errors that tests ask for, by their codes.
const NAMES: &[(i32, &str)] = &[
    (1, "InternalError"),
    (2, "BadValue"),
    (4, "NoSuchKey"),
    (6, "HostUnreachable"),
    (7, "HostNotFound"),
    (9, "FailedToParse"),
    (13, "Unauthorized"),
    (14, "TypeMismatch"),
    (15, "Overflow"),
    (16, "InvalidLength"),
    (17, "ProtocolError"),
    (18, "AuthenticationFailed"),
    (20, "IllegalOperation"),
    (22, "InvalidBSON"),
    (24, "LockTimeout"),
    (26, "NamespaceNotFound"),
    (27, "IndexNotFound"),
    (28, "PathNotViable"),
    (40, "ConflictingUpdateOperators"),
    (43, "CursorNotFound"),
    (47, "NoMatchingDocument"),
    (48, "NamespaceExists"),
    (50, "MaxTimeMSExpired"),
    (52, "DollarPrefixedFieldName"),
    (53, "InvalidIdField"),
    (59, "CommandNotFound"),
    (63, "StaleShardVersion"),
    (64, "WriteConcernFailed"),
    (66, "ImmutableField"),
    (72, "InvalidOptions"),
    (73, "InvalidNamespace"),
    (76, "NoReplicationEnabled"),
    (79, "UnknownReplWriteConcern"),
    (85, "IndexOptionsConflict"),
    (86, "IndexKeySpecsConflict"),
    (89, "NetworkTimeout"),
    (91, "ShutdownInProgress"),
    (93, "InvalidReplicaSetConfig"),
    (94, "NotYetInitialized"),
    (96, "OperationFailed"),
    (100, "UnsatisfiableWriteConcern"),
    (112, "WriteConflict"),
    (115, "CommandNotSupported"),
    (117, "ConflictingOperationInProgress"),
    (121, "DocumentValidationFailure"),
    (125, "CommandFailed"),
    (133, "FailedToSatisfyReadPreference"),
    (136, "CappedPositionLost"),
    (150, "StaleEpoch"),
    (165, "ViewDepthLimitExceeded"),
    (166, "CommandNotSupportedOnView"),
    (168, "InvalidPipelineOperator"),
    (189, "PrimarySteppedDown"),
    (197, "InvalidIndexSpecificationOption"),
    (217, "IncompleteTransactionHistory"),
    (225, "TransactionTooOld"),
    (234, "RetryChangeStream"),
    (237, "CursorKilled"),
    (238, "NotImplemented"),
    (239, "SnapshotTooOld"),
    (246, "SnapshotUnavailable"),
    (251, "NoSuchTransaction"),
    (256, "TransactionCommitted"),
    (260, "InvalidResumeToken"),
    (261, "TooManyLogicalSessions"),
    (262, "ExceededTimeLimit"),
    (263, "OperationNotSupportedInTransaction"),
    (266, "FailPointSetFailed"),
    (267, "PreparedTransactionInProgress"),
    (280, "ChangeStreamFatalError"),
    (286, "ChangeStreamHistoryLost"),
    (291, "NoQueryExecutionPlans"),
    (322, "APIVersionError"),
    (323, "APIStrictError"),
    (334, "MechanismUnavailable"),
    (352, "UnsupportedOpQueryCommand"),
    (359, "CannotConvertIndexToUnique"),
    (391, "ReauthenticationRequired"),
    (462, "IngressRequestRateLimitExceeded"),
    (9001, "SocketException"),
    (10107, "NotWritablePrimary"),
    (10334, "BSONObjectTooLarge"),
    (11000, "DuplicateKey"),
    (11600, "InterruptedAtShutdown"),
    (11601, "Interrupted"),
    (11602, "InterruptedDueToReplStateChange"),
    (13435, "NotPrimaryNoSecondaryOk"),
    (13436, "NotPrimaryOrSecondary"),
    (31082, "SearchNotEnabled"),
];

fn name(code: i32) -> Option<&'static str> {
    NAMES.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}
