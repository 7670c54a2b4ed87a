//! The values of options, as the suites write them.

use std::time::Duration;

use bson::{Bson, Document};
use sdam_core::config::{Acknowledgment, AuthMechanism, Options, Secret};

/// Returns the value of an option by its name in lower case, null if it is unset, or `None` if
/// there is no such option.
pub(super) fn value_of(options: &Options, name: &str) -> Option<Bson> {
    let value = deployment(options, name).or_else(|| connections(options, name));
    value.or_else(|| authentication(options, name)).or_else(|| commands(options, name))
}

/// Returns whether two values are the same, numbers of every type compared by value.
pub(super) fn same(one: &Bson, other: &Bson) -> bool {
    match (integer(one), integer(other)) {
        (None, None) => one == other,
        (one, other) => one == other,
    }
}

/// Shows a value.
pub(super) fn shown(value: &Bson) -> String {
    match value {
        Bson::Null => "unset".to_owned(),
        value => value.to_string(),
    }
}

fn integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(number) => Some((*number).into()),
        Bson::Int64(number) => Some(*number),
        _ => None,
    }
}

fn deployment(options: &Options, name: &str) -> Option<Bson> {
    let srv = options.srv();
    Some(match name {
        "replicaset" => text(options.replica_set().map(|name| &**name)),
        "directconnection" => Bson::Boolean(options.direct_connection()),
        "loadbalanced" => Bson::Boolean(options.load_balanced()),
        "srvservicename" => text(srv.map(|srv| &*srv.service_name)),
        "srvallowedhostssuffix" => text(srv.and_then(|srv| srv.allowed_hosts_suffix.as_deref())),
        "srvmaxhosts" => number(srv.map(|srv| srv.max_hosts)),
        "heartbeatfrequencyms" => milliseconds(Some(options.heartbeat_frequency())),
        "localthresholdms" => milliseconds(Some(options.local_threshold())),
        "serverselectiontimeoutms" => milliseconds(Some(options.server_selection_timeout())),
        "serverselectiontryonce" => Bson::Boolean(options.server_selection_try_once()),
        "servermonitoringmode" => text(Some(options.monitoring_mode().name())),
        "appname" => text(options.metadata().application()),
        _ => return None,
    })
}

fn connections(options: &Options, name: &str) -> Option<Bson> {
    let (tls, pool, proxy) = (options.tls(), options.pool(), options.proxy());
    Some(match name {
        "connecttimeoutms" => milliseconds(options.connect_timeout()),
        "sockettimeoutms" => milliseconds(options.socket_timeout()),
        "tls" | "ssl" => Bson::Boolean(tls.is_some()),
        "tlscafile" => text(tls.and_then(|tls| tls.ca_file.as_deref())),
        "tlscertificatekeyfile" => text(tls.and_then(|tls| tls.certificate_key_file.as_deref())),
        "tlscertificatekeyfilepassword" => {
            let password = tls.and_then(|tls| tls.certificate_key_file_password.as_ref());
            text(password.map(Secret::expose))
        }
        "tlsallowinvalidcertificates" => boolean(tls.map(|tls| tls.allow_invalid_certificates)),
        "tlsallowinvalidhostnames" => boolean(tls.map(|tls| tls.allow_invalid_hostnames)),
        "tlsinsecure" => {
            boolean(tls.map(|tls| tls.allow_invalid_certificates && tls.allow_invalid_hostnames))
        }
        "tlsdisablecertificaterevocationcheck" => {
            boolean(tls.map(|tls| tls.disable_certificate_revocation_check))
        }
        "tlsdisableocspendpointcheck" => boolean(tls.map(|tls| tls.disable_ocsp_endpoint_check)),
        "proxyhost" => text(proxy.map(|proxy| &*proxy.host)),
        "proxyport" => number(proxy.map(|proxy| proxy.port)),
        "maxpoolsize" => number(Some(pool.max_pool_size)),
        "minpoolsize" => number(Some(pool.min_pool_size)),
        "maxconnecting" => number(Some(pool.max_connecting)),
        "maxidletimems" => milliseconds(Some(pool.max_idle_time)),
        "waitqueuetimeoutms" => milliseconds(pool.wait_queue_timeout),
        _ => return None,
    })
}

fn authentication(options: &Options, name: &str) -> Option<Bson> {
    let credential = options.credential();
    Some(match name {
        "authsource" => text(credential.map(|credential| &*credential.source)),
        "authmechanism" => {
            let mechanism = credential.and_then(|credential| credential.mechanism);
            text(mechanism.map(AuthMechanism::name))
        }
        "authmechanismproperties" => {
            let properties = &credential?.mechanism_properties;
            let pair = |(name, value): (&String, &Secret)| (name.clone(), value.expose().into());
            Bson::Document(properties.iter().map(pair).collect::<Document>())
        }
        _ => return None,
    })
}

fn commands(options: &Options, name: &str) -> Option<Bson> {
    let (preference, concern) = (options.read_preference(), options.write_concern());
    Some(match name {
        "readpreference" => text(Some(preference.mode().name())),
        "readpreferencetags" => {
            let document = |tags: &sdam_core::config::TagSet| {
                let pairs = tags.iter().map(|(name, value)| (name.clone(), value.into()));
                Bson::Document(pairs.collect::<Document>())
            };
            Bson::Array(preference.tag_sets().iter().map(document).collect())
        }
        "maxstalenessseconds" => number(preference.max_staleness().map(|most| most.as_secs())),
        "readconcernlevel" => text(options.read_concern_level()),
        "w" => match &concern.w {
            None => Bson::Null,
            Some(Acknowledgment::Servers(servers)) => number(Some(*servers)),
            Some(Acknowledgment::Named(name)) => text(Some(name)),
        },
        "journal" => boolean(concern.journal),
        "wtimeoutms" => milliseconds(concern.timeout),
        "retryreads" => Bson::Boolean(options.retry_reads()),
        "retrywrites" => Bson::Boolean(options.retry_writes()),
        "maxadaptiveretries" => number(Some(options.max_adaptive_retries())),
        "enableoverloadretargeting" => Bson::Boolean(options.overload_retargeting()),
        "timeoutms" => milliseconds(options.timeout()),
        "compressors" => {
            let names = options.compressors().iter().map(|compressor| compressor.name().into());
            Bson::Array(names.collect())
        }
        "zlibcompressionlevel" => number(Some(options.zlib_compression_level())),
        _ => return None,
    })
}

fn text(value: Option<&str>) -> Bson {
    value.map_or(Bson::Null, Bson::from)
}

fn boolean(value: Option<bool>) -> Bson {
    value.map_or(Bson::Null, Bson::Boolean)
}

fn number(value: Option<impl TryInto<i64>>) -> Bson {
    value.and_then(|value| value.try_into().ok()).map_or(Bson::Null, Bson::Int64)
}

fn milliseconds(value: Option<Duration>) -> Bson {
    number(value.map(|time| time.as_millis()))
}
