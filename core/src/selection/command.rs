//! The fields that the chosen server needs added to a command.

use bson::{RawArrayBuf, RawDocumentBuf, cstr, rawdoc};

use crate::config::{ReadMode, ReadPreference};
use crate::description::{ServerType, TopologyType};

/// Returns the `$readPreference` that a command must carry to the server chosen for it, if any.
///
/// No preference, as for writes and where the application names none, is mode primary.
///
/// Server Selection, "Passing read preference to mongos and load balancers" and "Topology types
/// ReplicaSetWithPrimary or ReplicaSetNoPrimary", for OP_MSG: mode primary sends none, every other
/// mode its document. With a direct connection to a member of a replica set, mode primary becomes
/// primaryPreferred, so that a secondary answers ("Topology type: Single"). A standalone needs
/// none.
///
/// ```
/// use sdam_core::description::{ServerType, TopologyType};
/// use sdam_core::config::{ReadMode, ReadPreference};
/// use sdam_core::selection::read_preference_argument;
///
/// let nearest = ReadPreference::new(ReadMode::Nearest);
/// let (topology, server) = (TopologyType::Sharded, ServerType::Mongos);
/// let argument = read_preference_argument(topology, server, Some(&nearest)).unwrap();
/// assert_eq!(argument.get_str("mode").unwrap(), "nearest");
/// ```
pub fn read_preference_argument(
    topology: TopologyType,
    server: ServerType,
    preference: Option<&ReadPreference>,
) -> Option<RawDocumentBuf> {
    let routed = matches!(server, ServerType::Mongos | ServerType::LoadBalancer);
    if server == ServerType::Standalone {
        return None;
    }
    match preference.filter(|preference| preference.mode() != ReadMode::Primary) {
        Some(preference) => Some(document(preference)),
        None if topology == TopologyType::Single && !routed => {
            Some(rawdoc! { "mode": "primaryPreferred" })
        }
        None => None,
    }
}

/// "Document structure"
fn document(preference: &ReadPreference) -> RawDocumentBuf {
    let mut document = rawdoc! { "mode": preference.mode().name() };
    if !preference.tag_sets().is_empty() {
        let mut tag_sets = RawArrayBuf::new();
        for tags in preference.tag_sets() {
            let tags: Vec<(&str, &str)> =
                tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            let mut set = bson::Document::new();
            set.extend(tags.into_iter().map(|(key, value)| (key.to_owned(), value.into())));
            if let Ok(set) = RawDocumentBuf::try_from(&set) {
                tag_sets.push(set);
            }
        }
        document.append(cstr!("tags"), tag_sets);
    }
    if let Some(most) = preference.max_staleness() {
        let seconds = i64::try_from(most.as_secs()).unwrap_or(i64::MAX);
        document.append(cstr!("maxStalenessSeconds"), seconds);
    }
    if let Some(enabled) = preference.hedge() {
        document.append(cstr!("hedge"), rawdoc! { "enabled": enabled });
    }
    document
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::rawdoc;

    use super::read_preference_argument;
    use crate::config::{ReadMode, ReadPreference, TagSet};
    use crate::description::{ServerType, TopologyType};

    #[test]
    fn sel_p3_read_preference_is_absent_for_primary_and_present_for_every_other_mode() {
        for (topology, server) in [
            (TopologyType::Sharded, ServerType::Mongos),
            (TopologyType::LoadBalanced, ServerType::LoadBalancer),
            (TopologyType::Single, ServerType::Mongos),
            (TopologyType::ReplicaSetWithPrimary, ServerType::RsSecondary),
            (TopologyType::ReplicaSetWithPrimary, ServerType::RsPrimary),
        ] {
            let argument =
                |mode| read_preference_argument(topology, server, Some(&ReadPreference::new(mode)));
            assert_eq!(argument(ReadMode::Primary), None);
            for mode in [
                ReadMode::PrimaryPreferred,
                ReadMode::Secondary,
                ReadMode::SecondaryPreferred,
                ReadMode::Nearest,
            ] {
                assert_eq!(argument(mode), Some(rawdoc! { "mode": mode.name() }));
            }
        }
    }

    #[test]
    fn direct_connections_turn_primary_into_primary_preferred_but_for_standalones() {
        let argument = |topology, server| {
            read_preference_argument(
                topology,
                server,
                Some(&ReadPreference::new(ReadMode::Primary)),
            )
        };
        let preferred = rawdoc! { "mode": "primaryPreferred" };
        assert_eq!(argument(TopologyType::Single, ServerType::RsSecondary), Some(preferred));
        assert_eq!(argument(TopologyType::Single, ServerType::Standalone), None);
        assert_eq!(argument(TopologyType::ReplicaSetWithPrimary, ServerType::RsPrimary), None);
        let nearest = ReadPreference::new(ReadMode::Nearest);
        let standalone = (TopologyType::Single, ServerType::Standalone);
        assert_eq!(read_preference_argument(standalone.0, standalone.1, Some(&nearest)), None);
    }

    #[test]
    fn all_parts_of_a_read_preference_are_passed_through() {
        let east = TagSet::from([("dc".into(), "east".into()), ("rack".into(), "1".into())]);
        let preference = ReadPreference::new(ReadMode::Secondary)
            .with_tag_sets(vec![east, TagSet::new()])
            .and_then(|preference| preference.with_max_staleness(Duration::from_secs(120)))
            .and_then(|preference| preference.with_hedge(true))
            .unwrap();
        let expected = rawdoc! {
            "mode": "secondary",
            "tags": [{ "dc": "east", "rack": "1" }, {}],
            "maxStalenessSeconds": 120_i64,
            "hedge": { "enabled": true },
        };
        let argument =
            read_preference_argument(TopologyType::Sharded, ServerType::Mongos, Some(&preference));
        assert_eq!(argument, Some(expected));
    }
}
