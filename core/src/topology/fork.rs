//! The inheritance of a client that goes on where another one was: in a process that was forked
//! off, say.

use std::sync::Arc;

use crate::config::Options;
use crate::description::{TopologyDescription, TopologyType};

/// Returns the options of a client that begins with what another one of these options knows: the
/// members are its first seeds, the primary before the others, and the seeds of the options follow.
///
/// They are the same options if there can be no other member, if it is not known yet whether there
/// can, and if that would be more seeds than are allowed.
pub fn inherited_options(options: &Arc<Options>, known: &TopologyDescription) -> Arc<Options> {
    use TopologyType::{ReplicaSetNoPrimary, ReplicaSetWithPrimary, Sharded};

    let (ReplicaSetNoPrimary | ReplicaSetWithPrimary | Sharded) = known.topology_type else {
        return Arc::clone(options);
    };
    // A seed that is named twice counts once.
    let servers = known.primary().into_iter().chain(known.servers().iter());
    let members = servers.map(|server| server.address.clone());
    let seeds = members.chain(options.seeds().iter().cloned());
    options.with_seeds(seeds).map_or_else(|_| Arc::clone(options), Arc::new)
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::super::transitions;
    use super::{Arc, Options, inherited_options};

    /// The reply of a member of a replica set of these members.
    fn reply(is_primary: bool, hosts: &[String]) -> RawDocumentBuf {
        let hosts: bson::RawArrayBuf = hosts.iter().map(String::as_str).collect();
        rawdoc! {
            "ok": 1, "isWritablePrimary": is_primary, "secondary": !is_primary, "setName": "rs",
            "hosts": hosts, "minWireVersion": 0, "maxWireVersion": 17,
        }
    }

    /// Returns the seeds of the heir of a client with these options, to which the first of its
    /// seeds has given that reply, if it has.
    fn inherited(uri: &str, reply: Option<&RawDocumentBuf>) -> Vec<String> {
        let options = Arc::new(Options::parse(uri).unwrap());
        let known = transitions::initial(&options);
        let known = match reply {
            Some(reply) => {
                transitions::after_reply(&known, &options, &options.seeds()[0], reply).unwrap()
            }
            None => known,
        };
        let seeds = inherited_options(&options, &known).seeds().to_vec();
        seeds.iter().map(|seed| seed.host().to_owned()).collect()
    }

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| format!("{name}:27017")).collect()
    }

    #[test]
    fn an_heir_begins_with_the_primary_then_with_other_members_and_with_its_own_seeds_at_last() {
        let members = hosts(&["a", "b", "c"]);
        assert_eq!(
            inherited("mongodb://c,d/?replicaSet=rs", Some(&reply(true, &members))),
            ["c", "a", "b", "d"]
        );
        let secondary = reply(false, &members);
        let seeds = inherited("mongodb://b,z/?replicaSet=rs", Some(&secondary));
        assert_eq!(seeds, ["a", "b", "c", "z"], "no reply has said that z is no member");
    }

    #[test]
    fn an_heir_has_nothing_but_its_own_seeds_of_a_deployment_that_has_or_may_have_no_other_member()
    {
        let members = hosts(&["a", "b"]);
        assert_eq!(inherited("mongodb://b,a", None), ["b", "a"], "nothing is known yet");
        let direct = "mongodb://b/?directConnection=true";
        assert_eq!(inherited(direct, Some(&reply(true, &members))), ["b"]);
    }

    #[test]
    fn of_members_that_are_too_many_for_seeds_an_heir_begins_with_none() {
        let names: Vec<String> = (0..1_000).map(|index| format!("m{index}:27017")).collect();
        let uri = "mongodb://m0,gone/?replicaSet=rs";
        assert_eq!(inherited(uri, Some(&reply(true, &names))), ["m0", "gone"]);
        assert_eq!(inherited(uri, Some(&reply(true, &names[..999]))).len(), 1_000);
    }
}
