//! The connection string by which clients use a tunnel.

use sdam_cluster::encoded;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::{TopologyDescription, TopologyType};

/// The text that stands for a secret.
const HIDDEN: &str = "***";

/// The manner in which clients speak TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientTls {
    /// Not at all.
    None,
    /// With the tunnel.
    Tunnel,
    /// With the members, as the options say.
    Members,
}

/// Returns the connection string for these local addresses.
///
/// It has what is known of the deployment, and those of the `written` options that matter to
/// clients: neither the way to the members nor user name, mechanism and password.
pub(super) fn connection_string(
    written: &Options,
    view: &TopologyDescription,
    hosts: &[ServerAddress],
    tls: ClientTls,
) -> String {
    let mut options: Vec<String> = Vec::new();
    match view.topology_type {
        TopologyType::ReplicaSetWithPrimary | TopologyType::ReplicaSetNoPrimary => {
            let name = view.set_name.as_deref();
            options.extend(name.map(|name| format!("replicaSet={}", encoded(name))));
        }
        TopologyType::Single if written.direct_connection() => {
            options.push("directConnection=true".to_owned());
        }
        TopologyType::LoadBalanced => options.push("loadBalanced=true".to_owned()),
        _ => {}
    }
    if tls == ClientTls::Tunnel {
        options.push("tls=true".to_owned());
    }
    let printed = written.to_uri();
    let (start, query) = printed.split_once('?').unwrap_or((&printed, ""));
    let has_user = written.credential().is_some_and(|it| it.username.is_some());
    let kept = query.split('&').filter(|option| {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        !value.is_empty() && !value.contains(HIDDEN) && concerns_clients(name, tls, has_user)
    });
    options.extend(kept.map(str::to_owned));
    let database = start.rsplit_once('/').map_or("", |(_, database)| database);
    let hosts = hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let mark = if options.is_empty() { "" } else { "?" };
    format!("mongodb://{hosts}/{database}{mark}{}", options.join("&"))
}

/// Returns whether an option is for the clients of the tunnel.
fn concerns_clients(name: &str, tls: ClientTls, has_user: bool) -> bool {
    match name {
        "replicaSet" | "directConnection" | "loadBalanced" => false,
        // They go with the user name, and are wrong without it.
        "authMechanism" | "authMechanismProperties" => !has_user,
        name if name.starts_with("tls") || name == "ssl" => tls == ClientTls::Members,
        name => !name.starts_with("proxy") && !name.starts_with("srv"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sdam_core::config::Options;
    use sdam_core::description::{TopologyDescription, TopologyType};

    use super::{ClientTls, connection_string};

    fn printed(uri: &str, topology_type: TopologyType, tls: ClientTls) -> String {
        let mut view = TopologyDescription::default();
        view.topology_type = topology_type;
        view.set_name = Some(Arc::from("a&b"));
        let hosts = ["127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()];
        let hosts = if topology_type == TopologyType::Sharded { &hosts[..] } else { &hosts[..1] };
        connection_string(&Options::parse(uri).unwrap(), &view, hosts, tls)
    }

    #[test]
    fn options_of_the_application_are_kept_and_those_of_the_way_are_not() {
        let uri = "mongodb://me:sesame@db1,db2/app?authSource=admin&authMechanism=SCRAM-SHA-256\
            &tls=true&tlsInsecure=true&proxyHost=p&proxyUsername=u&proxyPassword=sesame\
            &readPreference=secondary&maxPoolSize=7&compressors=zlib";
        let set = printed(uri, TopologyType::ReplicaSetWithPrimary, ClientTls::None);
        let (start, query) = set.split_once('?').unwrap();
        assert_eq!(start, "mongodb://127.0.0.1:1/app");
        let mut options: Vec<&str> = query.split('&').collect();
        options.sort_unstable();
        let expected = [
            "authSource=admin",
            "compressors=zlib",
            "maxPoolSize=7",
            "readPreference=secondary",
            "replicaSet=a%26b",
        ];
        assert_eq!(options, expected);
        let tls = printed(uri, TopologyType::ReplicaSetNoPrimary, ClientTls::Tunnel);
        assert!(tls.contains("&tls=true") && !tls.contains("tlsAllow"), "{tls}");
        let passed = printed(uri, TopologyType::ReplicaSetNoPrimary, ClientTls::Members);
        assert!(passed.contains("tlsAllowInvalidCertificates=true"), "{passed}");
        for uri in [set, tls, passed] {
            assert!(!uri.contains("sesame") && !uri.contains("***"), "{uri}");
            Options::parse(&uri).unwrap();
        }
    }

    #[test]
    fn a_mechanism_without_a_user_name_is_kept() {
        let uri = "mongodb://db1/?authMechanism=MONGODB-X509&tls=true";
        let printed = printed(uri, TopologyType::Sharded, ClientTls::None);
        assert!(printed.starts_with("mongodb://127.0.0.1:1,[::1]:2/?"), "{printed}");
        assert!(printed.contains("authMechanism=MONGODB-X509"), "{printed}");
    }

    #[test]
    fn each_kind_of_deployment_is_named_as_such() {
        let uri = "mongodb://db1/?directConnection=true";
        let direct = printed(uri, TopologyType::Single, ClientTls::None);
        assert_eq!(direct, "mongodb://127.0.0.1:1/?directConnection=true");
        let alone = printed("mongodb://db1", TopologyType::Single, ClientTls::None);
        assert_eq!(alone, "mongodb://127.0.0.1:1/");
        let uri = "mongodb://db1/?loadBalanced=true";
        let balanced = printed(uri, TopologyType::LoadBalanced, ClientTls::None);
        assert_eq!(balanced, "mongodb://127.0.0.1:1/?loadBalanced=true");
    }
}
