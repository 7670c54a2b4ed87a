//! The commands and stages that are about indexes for searches: servers have them since 7.0, and
//! refuse them unless a process for searches stands beside, which none does here.

use crate::options::ServerVersion;
use crate::wire::CommandError;

/// The stage that lists the indexes of a collection.
const LIST: &str = "$listSearchIndexes";

/// Returns whether a command is about indexes for searches, and known to servers of this version.
pub(crate) fn is_about_indexes(command: &str, version: ServerVersion) -> bool {
    let is_its = matches!(command, "createSearchIndexes" | "dropSearchIndex" | "updateSearchIndex");
    is_its && version >= ServerVersion::V7_0
}

/// Returns why a command about them fails, with the codes and words of servers.
pub(crate) fn refusal(version: ServerVersion) -> CommandError {
    match version < ServerVersion::V8_0 {
        true => CommandError::coded(115, "Search index commands are only supported with Atlas."),
        false => CommandError::coded(
            31082,
            "Using Atlas Search Database Commands and the $listSearchIndexes aggregation stage \
             requires additional configuration. Please connect to Atlas or an AtlasCLI local \
             deployment to enable. For more information on how to connect, see \
             https://dochub.mongodb.org/core/atlas-cli-deploy-local-reqs.",
        ),
    }
}

/// Checks that a pipeline does not begin with the list of such indexes.
///
/// # Errors
///
/// Fails as the commands do.
pub(crate) fn check_stage(first: Option<&str>, version: ServerVersion) -> Result<(), CommandError> {
    match first {
        Some(LIST) if version >= ServerVersion::V8_0 => Err(refusal(version)),
        Some(LIST) if version >= ServerVersion::V7_0 => {
            let reason = format!("{LIST} stage is only allowed on MongoDB Atlas");
            Err(CommandError::numbered(6_047_401, reason))
        }
        _ => Ok(()),
    }
}
