//! The records of a deployment in DNS: as applications ask for them, and each name server directly.

use std::net::SocketAddr;
use std::time::Duration;

use sdam_core::config::{Options, SrvOptions};
use sdam_core::diagnosis::Verdict;
use sdam_core::dns::srv::{self, SrvError};
use sdam_core::dns::{DnsError, DnsRecords, NameServers, Question};
use sdam_host::system::{client_seed, name_servers};
use sdam_host::{Records, Resolver};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::doctor::evidence::{Asked, Lookups, NameServerSeen, Said};
use crate::stream::resolve;

/// The time that one name server has for its answer, in two attempts: a datagram may get lost.
const DIRECT: Duration = Duration::from_secs(3);

/// The answers of all, and the first good one.
#[derive(Debug)]
pub(in crate::doctor) struct Found {
    pub(in crate::doctor) lookups: Lookups,
    /// The options with the hosts; `None` if there are none that can be used.
    pub(in crate::doctor) options: Option<Options>,
}

/// Looks up the hosts of `options`, and asks `more` name servers too.
pub(in crate::doctor) async fn look_up(
    options: &Options,
    srv: &SrvOptions,
    more: &[SocketAddr],
    limit: Duration,
) -> Found {
    let (hosts, text) =
        (Question::srv(&srv.service_name, &srv.hostname), Question::txt(&srv.hostname));
    let configured = name_servers(&hosts).map(|servers| servers.addresses().to_vec());
    let configured = configured.unwrap_or_default();
    let others = more.iter().filter(|address| !configured.contains(address));
    let asked = configured.iter().map(|it| (*it, true)).chain(others.map(|it| (*it, false)));
    let direct_limit = DIRECT.min(limit / 2);
    let mut under_way = JoinSet::new();
    for (address, is_configured) in asked {
        let (hosts, text) = (hosts.clone(), text.clone());
        under_way.spawn(async move {
            let servers = || NameServers::new([address]).timeout(direct_limit / 2).attempts(2);
            let records = || Records::NameServers(servers());
            let (srv, txt) = tokio::join!(
                ask(hosts, records(), direct_limit),
                ask(text, records(), direct_limit)
            );
            (address, is_configured, srv, txt)
        });
    }
    let address = timeout(direct_limit, resolve(srv.hostname.to_string(), 27017));
    let in_turn = |question: &Question| ask(question.clone(), Records::System, direct_limit);
    let (direct, address, (system, in_turn_srv), (_, in_turn_txt)) =
        tokio::join!(under_way.join_all(), address, in_turn(&hosts), in_turn(&text));
    let mut lookups = Lookups {
        hostname: srv.hostname.to_string(),
        question: hosts.name.to_string(),
        system: Some(system),
        addresses_resolve: Some(address.is_ok_and(|found| {
            found.map_or_else(|error| !is_temporary(&error.to_string()), |_| true)
        })),
        ..Lookups::default()
    };
    let mut direct: Vec<_> = direct;
    let position = |address: &SocketAddr| configured.iter().position(|it| it == address);
    direct.sort_by_key(|(address, is_configured, ..)| (!is_configured, position(address)));
    let mut usable = None;
    for (address, is_configured, (srv_said, srv_answer), (txt_said, txt_answer)) in direct {
        if let (None, Ok(records)) = (&usable, srv_answer) {
            usable = Some((records, txt_answer));
        }
        let seen = NameServerSeen { address, is_configured, srv: srv_said, txt: txt_said };
        lookups.name_servers.push(seen);
    }
    // Applications ask all of them, one after the other.
    let usable = usable.or_else(|| Some((in_turn_srv.ok()?, in_turn_txt)));
    let Some((records, txt)) = usable else { return Found { lookups, options: None } };
    let txt = txt.and_then(|answer| answer.into_txt(&text));
    let completed = records
        .into_srv(&hosts)
        .map_err(SrvError::from)
        .and_then(|records| srv::complete(options, &records, txt, client_seed().unwrap_or(0)));
    let options = match completed {
        Ok(options) => Some(options),
        Err(error) => {
            lookups.refused = Some(Verdict::from(&error));
            None
        }
    };
    lookups.seeds = options.iter().flat_map(Options::seeds).cloned().collect();
    Found { lookups, options }
}

/// Distinguishes a resolver that gives no answer from one that knows no address, by the words of
/// glibc and musl.
fn is_temporary(error: &str) -> bool {
    ["Temporary failure in name resolution", "Try again"].iter().any(|it| error.contains(it))
}

async fn ask(
    question: Question,
    records: Records,
    limit: Duration,
) -> (Asked, Result<DnsRecords, DnsError>) {
    let begun = Instant::now();
    let resolver = match sdam_tokio::resolver(records) {
        Ok(resolver) => resolver,
        Err(error) => unreachable!("probes run in a runtime: {error}"),
    };
    // A little more, so that the lookup's own words for its silence come first.
    let answer =
        timeout(limit + Duration::from_millis(50), resolver.lookup(question.clone())).await;
    let took = begun.elapsed();
    match answer {
        Ok(Ok(answer)) => {
            (Asked { took, said: Said::Answered { records: printed(&answer) } }, Ok(answer))
        }
        Ok(Err(error)) => {
            let detail = error.cause.to_string();
            let said = match (error.is_absence(), error.is_timeout()) {
                (true, _) => Said::Absent { detail },
                (_, true) => Said::Silent,
                (false, false) => Said::Failed { detail },
            };
            (Asked { took, said }, Err(error))
        }
        Err(_) => {
            let cause = sdam_core::dns::DnsCause::Resolver("no answer in time".into());
            (Asked { took, said: Said::Silent }, Err(DnsError::new(question, cause)))
        }
    }
}

fn printed(answer: &DnsRecords) -> Vec<String> {
    match answer {
        DnsRecords::Srv(records) => {
            records.iter().map(|record| format!("{}:{}", record.host, record.port)).collect()
        }
        DnsRecords::Txt(texts) => texts.clone(),
        _ => Vec::new(),
    }
}
