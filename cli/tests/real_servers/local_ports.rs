//! `sdam tunnel` in front of real replica sets whose names mean nothing here: three ways to the
//! members, and what `sdam watch` sees through each.

use std::collections::BTreeSet;

use sdam_conformance::mongod::{Binary, Member, Options, ReplicaSet, Server};
use sdam_conformance::proxy::Proxy;
use sdam_conformance::ssh_server::{ALIAS, SshServer};
use serde_json::Value;

use crate::Outcome;
use crate::watch::{GENEROUS, Watch};

const WHOLE: &[&str] = &["RSPrimary", "RSSecondary", "RSSecondary"];

/// A tunnel, and a watch of what is behind it.
struct Through {
    tunnel: Watch,
    watch: Watch,
    /// The local address of each member.
    members: Value,
}

impl Through {
    fn start(arguments: &[String], uri: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let mut tunnel = Watch::of_command("tunnel", arguments, uri)?;
        let ready = tunnel.expect("the tunnel", |event| event["event"] == "ready")?;
        let local = ready["uri"].as_str().ok_or("there is no connection string")?;
        if local.contains("sdam.invalid") {
            return Err(format!("{local} has a name of the other side").into());
        }
        let mut watch = Watch::start(local)?;
        let view = watch.expect_types("ReplicaSetWithPrimary", WHOLE)?;
        let members = ready["members"].clone();
        let locals = members.as_object().ok_or("there are no members")?;
        let locals: BTreeSet<&str> = locals.values().filter_map(Value::as_str).collect();
        assert_eq!(addresses(&view), locals);
        Ok(Self { tunnel, watch, members })
    }

    fn local(&self, server: &Server) -> String {
        self.members[server.advertised().to_string()].as_str().unwrap_or_default().to_owned()
    }

    fn end(self) -> Outcome {
        self.watch.end()?;
        self.tunnel.terminate()?;
        self.tunnel.ended()
    }
}

fn addresses(view: &Value) -> BTreeSet<&str> {
    let servers = view["newDescription"]["servers"].as_array().map_or(&[][..], Vec::as_slice);
    servers.iter().filter_map(|server| server["address"].as_str()).collect()
}

/// The name that stands for all members' names in a rule.
const ALL: &str = "*.sdam.invalid";

fn names() -> Vec<String> {
    (1..=4).map(|n| format!("db{n}.sdam.invalid")).collect()
}

/// Ways by which the names lead to the members: by a map, and by a resolver there.
struct Ways {
    /// More options of the connection string, and arguments.
    each: Vec<(String, Vec<String>)>,
    _proxy: Option<Proxy>,
    _ssh: Option<SshServer>,
}

impl Ways {
    fn open(all: bool) -> std::io::Result<Self> {
        let map = vec!["--map".to_owned(), format!("{ALL}=127.0.0.1")];
        let mut each = vec![(String::new(), map)];
        let proxy = match all && Proxy::is_installed() {
            true => Some(Proxy::start_among(&names(), None)?),
            false => None,
        };
        if let Some(proxy) = &proxy {
            let options = format!("&proxyHost=127.0.0.1&proxyPort={}", proxy.port());
            each.push((options, Vec::new()));
        }
        let ssh = match all && SshServer::is_installed() {
            true => Some(SshServer::start(&names())?),
            false => None,
        };
        if let Some(ssh) = &ssh {
            let config = ssh.config().to_string_lossy().into_owned();
            let flags = ["--ssh", ALIAS, "--ssh-config", &config].map(str::to_owned);
            each.push((String::new(), flags.to_vec()));
        }
        Ok(Self { each, _proxy: proxy, _ssh: ssh })
    }

    fn through(&self, uri: &str) -> Result<Vec<Through>, Box<dyn std::error::Error>> {
        let one = |(options, arguments): &(String, Vec<String>)| {
            Through::start(arguments, &format!("{uri}{options}"))
        };
        self.each.iter().map(one).collect()
    }
}

/// SDAM, "Topology type ReplicaSetWithPrimary": the members are those that the primary lists, which
/// are local ports here, through a step-down, a kill and, in `all` ways, a change of the members.
pub(crate) fn members_at_local_ports(binary: &Binary, all: bool) -> Outcome {
    let options = Options { private_names: names(), ..Options::default() };
    let mut set = ReplicaSet::start(binary, 3, &options)?;
    let uri = format!(
        "mongodb://{}/?replicaSet={}&heartbeatFrequencyMS=1000&connectTimeoutMS=20000",
        set.members()[0].advertised(),
        set.set_name()
    );
    let ways = Ways::open(all)?;
    let mut through = ways.through(&uri)?;

    let old = set.wait_for_primary(GENEROUS)?;
    set.step_down()?;
    for it in &mut through {
        let old = it.local(&set.members()[old]);
        it.watch.expect_change(&old, "RSSecondary")?;
        it.watch.expect_types("ReplicaSetWithPrimary", WHOLE)?;
    }
    let primary = set.wait_for_primary(GENEROUS)?;
    set.kill(primary)?;
    for it in &mut through {
        let old = it.local(&set.members()[primary]);
        it.watch.expect_change(&old, "Unknown")?;
        let rest = &["RSPrimary", "RSSecondary", "Unknown"];
        it.watch.expect_types("ReplicaSetWithPrimary", rest)?;
        it.tunnel.expect("why it is unknown", |event| event["event"] == "unreachable")?;
    }
    set.restart(primary)?;
    for it in &mut through {
        it.watch.expect_types("ReplicaSetWithPrimary", WHOLE)?;
        it.tunnel.expect("its return", |event| event["event"] == "reachable")?;
    }
    if all {
        set.wait_until_settled(GENEROUS)?;
        set.add_member(&Member::default())?;
        let more = &["RSPrimary", "RSSecondary", "RSSecondary", "RSSecondary"];
        for it in &mut through {
            let joined = it.tunnel.expect("a member", |event| event["event"] == "joined")?;
            let view = it.watch.expect_types("ReplicaSetWithPrimary", more)?;
            let local = joined["address"].as_str().unwrap_or_default();
            assert!(addresses(&view).contains(local), "{view}");
        }
    }
    through.into_iter().try_for_each(Through::end)
}
